"""The scalar that an update minimises."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from arl_jax.learner.state import ModelFns
from arl_jax.learner.surrogates import SURROGATES, LossConfig, Terms
from arl_jax.ops import aggregation, divergences, importance, logprobs
from arl_jax.types import Array, PyTree, TrajectoryBatch


class MicroBatch(NamedTuple):
  """Rows that fit on the device at once.

  Attributes:
    batch: the rows.
    advantages: float32 `[b, T]`, None for supervised learning.
    old_logprobs: float32 `[b, T]` of the weights before the first update on
      this batch, or None. See `Terms.old_logprobs` for what then stands in.
  """

  batch: TrajectoryBatch
  advantages: jax.typing.ArrayLike | None = None
  old_logprobs: jax.typing.ArrayLike | None = None


def objective(
  params: PyTree,
  ref_params: PyTree | None,
  micro: MicroBatch,
  normalizer: Array,
  *,
  model: ModelFns,
  loss: LossConfig,
) -> tuple[Array, tuple[Terms, Array | None]]:
  """Computes one micro-batch's share of a minibatch's loss.

  Args:
    params: of the policy being trained.
    ref_params: of the reference policy; read only if `kl_weight` is above 0.
    micro: rows with their advantages.
    normalizer: scalar, the loss's denominator over the whole minibatch.
    model: the architecture.
    loss: settings of the objective.

  Returns:
    The share, and the terms and reference log-probs that it came from.
  """
  terms = _terms(params, micro, model=model, loss=loss)
  surrogate = (
    loss.surrogate if callable(loss.surrogate) else SURROGATES[loss.surrogate]
  )
  values = surrogate(terms, loss)
  if loss.importance != "none" and not loss.supervised:
    values *= importance.token_importance_weights(
      jax.lax.stop_gradient(terms.old_logprobs),
      terms.behavior_logprobs,
      terms.mask,
      mode=loss.importance,
      lower=loss.importance_lower,
      upper=loss.importance_upper,
    )
  ref_logprobs = None
  if loss.kl_weight > 0:
    frozen = jax.lax.stop_gradient(ref_params)
    ref_logprobs, _ = row_logprobs(frozen, micro.batch, model=model, loss=loss)
    values += loss.kl_weight * divergences.kl_penalty_loss(
      terms.logprobs,
      ref_logprobs,
      terms.behavior_logprobs,
      terms.mask,
      estimator=loss.kl_estimator,
    )
  if loss.entropy_weight != 0:
    entropies = jnp.where(terms.mask, terms.entropies, 0.0)
    values -= loss.entropy_weight * entropies
  share = aggregation.aggregate(
    values,
    terms.mask,
    mode=loss.aggregation,
    length=loss.length,
    normalizer=normalizer,
  )
  return share, (terms, ref_logprobs)


def row_logprobs(
  params: PyTree, batch: TrajectoryBatch, *, model: ModelFns, loss: LossConfig
) -> tuple[Array, Array]:
  """Scores every token: `[B, T]` log-probs and entropies, both float32."""
  hidden = model.apply(params, batch.tokens, batch.positions, batch.segment_ids)
  head = model.unembedding(params)
  chunk = loss.logprob_chunk
  if chunk is not None and chunk < batch.tokens.shape[1]:
    return logprobs.chunked_token_logprobs(
      hidden,
      head,
      batch.tokens,
      chunk_size=chunk,
      temperature=loss.temperature,
    )
  # Two-dimensional: XLA's CPU backend is slow at the other weight gradient.
  logits = hidden.reshape(-1, hidden.shape[-1]) @ head
  logits = logits.reshape(*batch.tokens.shape, -1).astype(jnp.float32)
  return (
    logprobs.token_logprobs(logits, batch.tokens, temperature=loss.temperature),
    logprobs.token_entropies(logits, temperature=loss.temperature),
  )


def loss_mask(batch: TrajectoryBatch) -> Array:
  """Bool `[B, T]`: action tokens of rows that were not rejected."""
  return batch.action_mask & batch.row_mask[:, None]


def loss_normalizer(batch: TrajectoryBatch, config: LossConfig) -> Array:
  """Denominator of the loss over these rows; sums over micro-batches."""
  mask = loss_mask(batch)
  _, denominator = aggregation.aggregate_terms(
    jnp.zeros(mask.shape, jnp.float32),
    mask,
    mode=config.aggregation,
    length=config.length,
  )
  return denominator


def _terms(
  params: PyTree, micro: MicroBatch, *, model: ModelFns, loss: LossConfig
) -> Terms:
  batch = micro.batch
  current, entropies = row_logprobs(params, batch, model=model, loss=loss)
  advantages = micro.advantages
  if advantages is None:
    advantages = jnp.zeros(batch.tokens.shape)
  advantages = jnp.asarray(advantages, jnp.float32)
  chex.assert_equal_shape([current, advantages, batch.tokens])
  constant = jax.lax.stop_gradient(current)
  behavior = batch.behavior_logprobs
  behavior = jnp.where(jnp.isfinite(behavior), behavior, constant)
  if micro.old_logprobs is not None:
    old = jnp.asarray(micro.old_logprobs, jnp.float32)
  else:
    old = behavior if loss.importance == "none" else constant
  return Terms(
    logprobs=current,
    entropies=entropies,
    old_logprobs=old,
    behavior_logprobs=behavior,
    advantages=advantages,
    mask=loss_mask(batch),
    turn_ids=batch.turn_ids,
    num_turns=batch.turn_mask.shape[1],
  )
