"""What an update measured, as sums that add up over micro-batches."""

from collections.abc import Mapping, Sequence
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
  """

  sums: Mapping[str, Any]
  means: Mapping[str, tuple[Any, Any]]
  maxima: Mapping[str, Any]


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
    return Diagnostics(sums, means, {})

  # Zero at masked tokens, where a bad value must not reach an exp.
  current, behavior = (
    jnp.where(mask, values, 0.0)
    for values in (terms.logprobs, terms.behavior_logprobs)
  )
  ratio = masking.exp_log_ratio(surrogates.log_ratio(terms, loss))
  too_low = (ratio < 1 - loss.clip_low) & (terms.advantages < 0)
  too_high = (ratio > 1 + loss.clip_high) & (terms.advantages > 0)
  gap = jnp.abs(current - behavior)
  means |= {
    "approx_kl": mean(divergences.kl_k3(behavior, current)),
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
  return Diagnostics(sums, means, maxima)


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
  return metrics
