"""What an update measured, as sums that add up over micro-batches."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from arl_jax.learner import surrogates
from arl_jax.learner.surrogates import LossConfig, Terms
from arl_jax.ops import divergences, masking
from arl_jax.types import Array


class Diagnostics(NamedTuple):
  """Parts of metrics; sums and counts stay apart until the end.

  Attributes:
    sums: name to a value that adds up over micro-batches.
    means: name to (sum, count).
    maxima: name to a value of which the largest counts.
    samples: name to (sum, sum of squares, count) of weights, of which the
      effective share of the samples counts.
  """

  sums: Mapping[str, Any]
  means: Mapping[str, tuple[Any, Any]]
  maxima: Mapping[str, Any]
  samples: Mapping[str, tuple[Any, Any, Any]]


def measure(
  terms: Terms,
  ref_logprobs: Array | None,
  behavior_logprobs: Array,
  share: Array,
  *,
  loss: LossConfig,
) -> Diagnostics:
  """Measures one micro-batch.

  Args:
    terms: what its loss was computed from.
    ref_logprobs: `[B, T]` log-probs under the reference policy, if it is used.
    behavior_logprobs: `[B, T]` log-probs as the engine reported them.
    share: its part of the loss.
    loss: settings of the objective.

  Returns:
    Scalars over the action tokens that count.
  """
  mask = terms.mask
  count = jnp.sum(mask)

  def mean(values: Array) -> tuple[Array, Array]:
    return masking.masked_sum(values, mask), count

  sums = {"loss": share, "tokens": count}
  means = {"entropy": mean(terms.entropies)}
  if loss.supervised:
    return Diagnostics(sums, means, {}, {})

  # Zero at masked tokens, where a bad value must not reach an exp.
  current, behavior = (
    jnp.where(mask, values, 0.0)
    for values in (terms.logprobs, terms.behavior_logprobs)
  )
  ratio = masking.exp_log_ratio(surrogates.log_ratio(terms, loss))
  too_low = (ratio < 1 - loss.clip_low) & (terms.advantages < 0)
  too_high = (ratio > 1 + loss.clip_high) & (terms.advantages > 0)
  gap = jnp.abs(current - behavior)
  masked, truncated = _corrected(terms, loss)
  means |= {
    # Of the engine that sampled to the learner.
    "engine_kl": mean(divergences.kl_k3(behavior, current)),
    "importance/masked_fraction": mean(masked),
    "importance/truncated_fraction": mean(truncated),
    "ratio/mean": mean(ratio),
    "clip_fraction/low": mean(too_low),
    "clip_fraction/high": mean(too_high),
    "logprob_gap/mean": mean(gap),
    "logprob_gap/missing": mean(~jnp.isfinite(behavior_logprobs)),
    "advantage/zero_fraction": mean(terms.advantages == 0),
  }
  if ref_logprobs is not None:
    reference = jnp.where(mask, ref_logprobs, 0.0)
    means["kl"] = mean(divergences.kl_k3(current, reference))
  maxima = {
    "ratio/max": jnp.max(jnp.where(mask, ratio, 0.0)),
    "logprob_gap/max": jnp.max(gap),
  }
  weights = masking.exp_log_ratio(current - behavior)
  samples = {"ess": (mean(weights)[0], mean(weights**2)[0], count)}
  return Diagnostics(sums, means, maxima, samples)


def _corrected(terms: Terms, loss: LossConfig) -> tuple[Array, Array]:
  """Bool `[B, T]`: tokens the correction silences, and tokens it cuts."""
  nothing = jnp.zeros_like(terms.mask)
  if callable(loss.surrogate) or loss.surrogate != "decoupled":
    if loss.importance == "none":
      return nothing, nothing
    if callable(loss.importance):
      # What it would be without a bound is not known.
      weights = surrogates.importance_weights(terms, loss)
      return jnp.broadcast_to(weights == 0, terms.mask.shape), nothing
    mode, level = loss.importance, loss.importance_level
  else:
    mode, level = "truncate", "token"
  free = dataclasses.replace(loss, importance="none")
  ratio = surrogates.IMPORTANCE_LEVELS[level](terms, free)
  ratio = jnp.broadcast_to(ratio, terms.mask.shape)
  outside = ratio > loss.importance_upper
  if mode != "truncate" and loss.importance_lower is not None:
    outside |= ratio < loss.importance_lower
  return (outside, nothing) if mode == "mask" else (nothing, outside)


def summarize(parts: Sequence[Diagnostics]) -> dict[str, float]:
  """Merges the measurements of a minibatch's micro-batches, on the host."""
  metrics = {
    name: float(sum(part.sums[name] for part in parts))
    for name in parts[0].sums
  }
  for name in parts[0].means:
    total, count = np.sum([part.means[name] for part in parts], axis=0)
    metrics[name] = float(total / max(count, 1))
  for name in parts[0].maxima:
    metrics[name] = float(max(part.maxima[name] for part in parts))
  for name in parts[0].samples:
    found = np.asarray([part.samples[name] for part in parts], np.float64)
    total, squares, count = found.sum(axis=0)
    metrics[name] = float(total**2 / (count * squares)) if squares else 0.0
  return metrics
