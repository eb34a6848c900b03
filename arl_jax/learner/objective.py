"""The scalar that an update minimises."""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from arl_jax.learner import surrogates
from arl_jax.learner.state import ModelFns
from arl_jax.learner.surrogates import SURROGATES, LossConfig, Terms
from arl_jax.ops import divergences, importance, logprobs
from arl_jax.types import Array, PyTree, TrajectoryBatch


class Packing(NamedTuple):
  """The rows of a micro-batch behind each other, so that little is padding.

  The model runs on these p rows of W tokens; what it says goes back to the b
  rows that they came from, so the objective is the same with and without.

  Attributes:
    tokens: int32 `[p, W]`.
    positions: int32 `[p, W]`, restarting with every row.
    segment_ids: int32 `[p, W]`, telling the rows apart; 0 is padding.
    scored: int32 `[p, A]` columns of action tokens, padded with W.
    index: int32 `[b, T]` where each token stands in the flattened `[p, W]`;
      p·W for padding.
  """

  tokens: jax.typing.ArrayLike
  positions: jax.typing.ArrayLike
  segment_ids: jax.typing.ArrayLike
  scored: jax.typing.ArrayLike
  index: jax.typing.ArrayLike


class MicroBatch(NamedTuple):
  """Rows that fit on the device at once.

  Attributes:
    batch: the rows.
    advantages: float32 `[b, T]`, None for supervised learning.
    old_logprobs: float32 `[b, T]` of the weights before the first update on
      this batch, or None. See `Terms.old_logprobs` for what then stands in.
    scored: int32 `[b, A]` columns of each row's action tokens, padded with T;
      the output head runs only for these. None runs it for all.
    packing: how the rows share longer ones, None if each is alone. It has its
      own `scored`.
    ages: float32 `[b, T]` versions between the weights that sampled a token
      and those before the first update on this batch; None unless
      `LossConfig.needs_ages`.
  """

  batch: TrajectoryBatch
  advantages: jax.typing.ArrayLike | None = None
  old_logprobs: jax.typing.ArrayLike | None = None
  scored: jax.typing.ArrayLike | None = None
  packing: Packing | None = None
  ages: jax.typing.ArrayLike | None = None


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
  weights = surrogates.importance_weights(terms, loss)
  if weights is not None:
    values *= weights
  ref_logprobs = None
  if loss.kl_weight > 0:
    frozen = jax.lax.stop_gradient(ref_params)
    ref_logprobs, _ = row_logprobs(
      frozen,
      micro.batch,
      micro.scored,
      micro.packing,
      model=model,
      loss=loss,
    )
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
  numerator, _ = surrogates.aggregate_terms(values, terms.mask, loss)
  share = numerator / jnp.where(normalizer == 0.0, 1.0, normalizer)
  return share, (terms, ref_logprobs)


def row_logprobs(
  params: PyTree,
  batch: TrajectoryBatch | Packing,
  scored: jax.typing.ArrayLike | None = None,
  packing: Packing | None = None,
  *,
  model: ModelFns,
  loss: LossConfig,
) -> tuple[Array, Array]:
  """Scores tokens under the policy.

  Args:
    params: of the policy.
    batch: the rows.
    scored: int32 `[b, A]` columns to score, padded with T; None is all.
    packing: what the model runs on in place of the rows, if given.
    model: the architecture.
    loss: gives temperature and chunk.

  Returns:
    `[B, T]` log-probs and entropies, float32, 0 where nothing was scored.
  """
  if packing is not None:
    packed = row_logprobs(
      params, packing, packing.scored, model=model, loss=loss
    )
    scores, entropies = (
      jnp.take(
        values.reshape(-1),
        jnp.asarray(packing.index),
        mode="fill",
        fill_value=0.0,
      )
      for values in packed
    )
    return scores, entropies
  tokens = jnp.asarray(batch.tokens)
  hidden = model.apply(
    params,
    tokens,
    jnp.asarray(batch.positions),
    jnp.asarray(batch.segment_ids),
  )
  head = model.unembedding(params)
  score = functools.partial(_score, loss=loss, transposed=model.transposed)
  if scored is None:
    return score(hidden, head, tokens)
  columns = jnp.asarray(scored)
  last = tokens.shape[1] - 1
  # The state that predicts a token stands one column before it. Targets move
  # one to the right, so that position t again scores token t.
  states = jnp.take_along_axis(
    hidden, jnp.clip(columns - 1, 0, last)[..., None], axis=1
  )
  targets = jnp.take_along_axis(tokens, jnp.minimum(columns, last), axis=1)
  values = score(
    jnp.pad(states, ((0, 0), (0, 1), (0, 0))),
    head,
    jnp.pad(targets, ((0, 0), (1, 0))),
  )
  rows = jnp.arange(columns.shape[0])[:, None]
  empty = jnp.zeros(tokens.shape, jnp.float32)
  scores, entropies = (
    empty.at[rows, columns].set(value[:, 1:], mode="drop") for value in values
  )
  return scores, entropies


def _score(
  hidden: Array,
  head: Array,
  tokens: Array,
  *,
  loss: LossConfig,
  transposed: bool,
) -> tuple[Array, Array]:
  chunk = loss.logprob_chunk
  if chunk is not None and chunk < tokens.shape[1]:
    return logprobs.chunked_token_logprobs(
      hidden,
      head,
      tokens,
      chunk_size=chunk,
      temperature=loss.temperature,
      transposed=transposed,
    )
  # Two-dimensional: XLA's CPU backend is slow at the other weight gradient.
  head = head.T if transposed else head
  logits = hidden.reshape(-1, hidden.shape[-1]) @ head
  logits = logits.reshape(*tokens.shape, -1).astype(jnp.float32)
  return (
    logprobs.token_logprobs(logits, tokens, temperature=loss.temperature),
    logprobs.token_entropies(logits, temperature=loss.temperature),
  )


def loss_mask(batch: TrajectoryBatch) -> Array:
  """Bool `[B, T]`: action tokens of rows that were not rejected."""
  return batch.action_mask & batch.row_mask[:, None]


def loss_normalizer(batch: TrajectoryBatch, config: LossConfig) -> Array:
  """Denominator of the loss over these rows; sums over micro-batches."""
  mask = loss_mask(batch)
  zeros = jnp.zeros(mask.shape, jnp.float32)
  _, denominator = surrogates.aggregate_terms(zeros, mask, config)
  return denominator


def _terms(
  params: PyTree, micro: MicroBatch, *, model: ModelFns, loss: LossConfig
) -> Terms:
  batch = micro.batch
  current, entropies = row_logprobs(
    params, batch, micro.scored, micro.packing, model=model, loss=loss
  )
  advantages = micro.advantages
  if advantages is None:
    advantages = jnp.zeros(batch.tokens.shape)
  advantages = jnp.asarray(advantages, jnp.float32)
  chex.assert_equal_shape([current, advantages, batch.tokens])
  constant = jax.lax.stop_gradient(current)
  behavior = batch.behavior_logprobs
  behavior = jnp.where(jnp.isfinite(behavior), behavior, constant)
  mask = loss_mask(batch)
  if loss.needs_ages:
    if micro.ages is None:
      raise ValueError(
        "loss proximal is 'interpolated', but a micro-batch has no ages; pass"
        " MicroBatch(..., ages=version - policy_versions)"
      )
    old = importance.interpolated_logprobs(constant, behavior, micro.ages, mask)
  elif micro.old_logprobs is not None:
    old = jnp.asarray(micro.old_logprobs, jnp.float32)
  else:
    old = behavior if loss.importance == "none" else constant
  return Terms(
    logprobs=current,
    entropies=entropies,
    old_logprobs=old,
    behavior_logprobs=behavior,
    advantages=advantages,
    mask=mask,
    turn_ids=batch.turn_ids,
    num_turns=batch.turn_mask.shape[1],
  )
