"""Weights that correct for tokens another policy sampled."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, masking
from arl_jax.types import Array

_MODES = ("truncate", "mask", "clamp", "none")


def _log_ratio(
  logprobs: ArrayLike, behavior_logprobs: ArrayLike, mask: ArrayLike
) -> tuple[Array, Array, Array]:
  """Returns log(current / behaviour), the mask, where behaviour is missing.

  An engine that reports NaN for a token has no log-prob for it; its log-ratio
  is 0, because dropping or exploding it would bias the rest of the row.
  """
  logprobs = checks.floats("logprobs", logprobs, "[B, T]", (None, None))
  shape = logprobs.shape
  behavior = checks.floats(
    "behavior_logprobs", behavior_logprobs, "[B, T]", shape
  )
  mask = checks.mask("mask", mask, "[B, T]", shape)
  missing = jnp.isnan(behavior) & mask
  known = mask & ~missing
  log_ratio = jnp.where(known, logprobs, 0.0) - jnp.where(known, behavior, 0.0)
  return jax.lax.stop_gradient(log_ratio), mask, missing


def _bounded(
  ratio: Array, mode: str, lower: float | None, upper: float | None
) -> Array:
  """Bounds ratios as `mode` says."""
  low = 0.0 if lower is None else lower
  high = float("inf") if upper is None else upper
  if mode == "none":
    return ratio
  if mode == "truncate":
    return jnp.minimum(ratio, high)
  if mode == "clamp":
    return jnp.clip(ratio, low, high)
  return jnp.where((ratio >= low) & (ratio <= high), ratio, 0.0)


def _check_bounds(
  lower: float | None, upper: float | None, *, lower_of: float = 0.0
) -> None:
  """Raises if the bounds leave nothing between them."""
  if lower is not None:
    checks.within("lower", lower, lower_of)
  if upper is not None:
    checks.within("upper", upper, lower_of)
  if lower is None or upper is None or not checks.is_concrete(lower, upper):
    return
  if lower > upper:
    raise ValueError(f"lower is {lower}, above upper, which is {upper}")


def token_importance_weights(
  logprobs: ArrayLike,
  behavior_logprobs: ArrayLike,
  mask: ArrayLike,
  *,
  mode: str = "truncate",
  lower: float | None = None,
  upper: float | None = 2.0,
) -> Array:
  """Ratio of the current to the behaviour policy, per token, bounded.

  w = π / π_behavior, then
  truncate: min(w, upper)    mask: w inside [lower, upper], else 0
  clamp: clip(w, lower, upper)    none: w

  Reference: Ionides, "Truncated importance sampling", 2008;
  https://arxiv.org/abs/2510.18855 for the masked form.

  Args:
    logprobs: `[B, T]` log-probability of each token under the policy that is
      corrected to: the proximal one if there is one.
    behavior_logprobs: `[B, T]` log-probability when it was sampled; NaN is a
      missing one, its weight is 1.
    mask: bool `[B, T]` 1 where a token counts.
    mode: "truncate", "mask", "clamp" or "none".
    lower: bound on the ratio itself, none if None; not read by truncate.
    upper: bound on the ratio itself, none if None.

  Returns:
    `[B, T]` float32 without gradient; 0 where masked.

  Raises:
    ValueError: on shapes that differ, an unknown mode or crossed bounds.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new = jnp.log(jnp.array([[0.9, 0.5]]))
    >>> old = jnp.log(jnp.array([[0.3, 0.5]]))
    >>> print(arl.token_importance_weights(new, old, jnp.ones((1, 2), bool)))
    [[2. 1.]]
  """
  checks.choice("mode", mode, _MODES)
  _check_bounds(lower, upper)
  log_ratio, mask, missing = _log_ratio(logprobs, behavior_logprobs, mask)
  weights = _bounded(masking.exp_log_ratio(log_ratio), mode, lower, upper)
  return jnp.where(mask, jnp.where(missing, 1.0, weights), 0.0)


def sequence_importance_weights(
  logprobs: ArrayLike,
  behavior_logprobs: ArrayLike,
  mask: ArrayLike,
  *,
  reduce: str = "sum",
  mode: str = "truncate",
  lower: float | None = None,
  upper: float | None = 2.0,
) -> Array:
  """Ratio of the current to the behaviour policy, per row, bounded.

  sum: w = Π_t π / π_behavior    mean: its geometric mean over the tokens

  Reference: https://arxiv.org/abs/2507.18071 for the geometric mean.

  Args:
    logprobs: `[B, T]` log-probability of each token under the policy that is
      corrected to.
    behavior_logprobs: `[B, T]` log-probability when it was sampled; NaN is a
      missing one, its log-ratio counts as 0.
    mask: bool `[B, T]` 1 where a token counts.
    reduce: "sum" or "mean" of the log-ratios of a row.
    mode: "truncate", "mask", "clamp" or "none", as for tokens.
    lower: bound on the ratio itself, none if None; not read by truncate.
    upper: bound on the ratio itself, none if None.

  Returns:
    `[B]` float32 without gradient; 0 for a row without live tokens.

  Raises:
    ValueError: on shapes that differ, an unknown word or crossed bounds.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new = jnp.log(jnp.array([[0.6, 0.5]]))
    >>> old = jnp.log(jnp.array([[0.5, 0.4]]))
    >>> mask = jnp.ones((1, 2), bool)
    >>> print(arl.sequence_importance_weights(new, old, mask).round(4))
    [1.5]
  """
  checks.choice("reduce", reduce, ("sum", "mean"))
  checks.choice("mode", mode, _MODES)
  _check_bounds(lower, upper)
  log_ratio, mask, _ = _log_ratio(logprobs, behavior_logprobs, mask)
  combine = masking.masked_sum if reduce == "sum" else masking.masked_mean
  ratio = masking.exp_log_ratio(combine(log_ratio, mask, axis=1))
  weights = _bounded(ratio, mode, lower, upper)
  return jnp.where(jnp.any(mask, axis=1), weights, 0.0)


def sequence_keep_mask(
  logprobs: ArrayLike,
  behavior_logprobs: ArrayLike,
  mask: ArrayLike,
  *,
  metric: str = "geometric_ratio",
  lower: float | None = None,
  upper: float,
) -> Array:
  """Rows whose sampling policy was close enough to the current one.

  lower ≤ metric ≤ upper, where
  geometric_ratio: exp(mean_t log r)    k3: mean_t (r - 1 - log r)
  max_ratio: max_t r    with r = π / π_behavior

  The sign of the advantage plays no part. DeepSeek-V3.2
  (https://arxiv.org/abs/2512.02556) drops a row below `lower` only where
  A < 0: keep `sequence_keep_mask(...) | (advantages >= 0)`.

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    behavior_logprobs: `[B, T]` log-probability when it was sampled; NaN is a
      missing one, its log-ratio counts as 0.
    mask: bool `[B, T]` 1 where a token counts.
    metric: "geometric_ratio", "k3" or "max_ratio".
    lower: bound on the metric, none if None.
    upper: bound on the metric.

  Returns:
    bool `[B]`; False for a row without live tokens.

  Raises:
    ValueError: on shapes that differ, an unknown metric or crossed bounds.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new = jnp.log(jnp.array([[0.5], [0.9]]))
    >>> old = jnp.log(jnp.array([[0.5], [0.1]]))
    >>> mask = jnp.ones((2, 1), bool)
    >>> print(arl.sequence_keep_mask(new, old, mask, upper=2.0))
    [ True False]
  """
  checks.choice("metric", metric, ("geometric_ratio", "k3", "max_ratio"))
  _check_bounds(lower, upper)
  log_ratio, mask, _ = _log_ratio(logprobs, behavior_logprobs, mask)
  if metric == "geometric_ratio":
    score = masking.exp_log_ratio(masking.masked_mean(log_ratio, mask, axis=1))
  elif metric == "max_ratio":
    ratio = jnp.where(mask, masking.exp_log_ratio(log_ratio), 0.0)
    score = jnp.max(ratio, axis=1, initial=0.0)
  else:
    k3 = masking.exp_log_ratio(log_ratio) - 1.0 - log_ratio
    score = masking.masked_mean(k3, mask, axis=1)
  low = -float("inf") if lower is None else lower
  return (score >= low) & (score <= upper) & jnp.any(mask, axis=1)


def interpolated_logprobs(
  logprobs: ArrayLike,
  behavior_logprobs: ArrayLike,
  ages: ArrayLike,
  mask: ArrayLike,
) -> Array:
  """Guesses a proximal policy, between the one that sampled and the current.

  log π_proximal = α log π_behavior + (1 - α) log π, α = 1 / max(age, 1)

  Up to age 1 it is the behaviour policy itself. The ratio to it is then
  π / π_proximal = (π / π_behavior)^α, closer to 1 the older a token is.

  Reference: https://arxiv.org/abs/2512.06547 (A-3PO)

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    behavior_logprobs: `[B, T]` log-probability when it was sampled; NaN is a
      missing one, the current one stands in for it.
    ages: `[B, T]` versions between the weights that sampled a token and those
      before the updates on it.
    mask: bool `[B, T]` 1 where a token counts.

  Returns:
    `[B, T]` float32 without gradient; 0 where masked.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new, old = jnp.full((1, 3), -1.0), jnp.full((1, 3), -2.0)
    >>> ages, mask = jnp.array([[0, 1, 4]]), jnp.ones((1, 3), bool)
    >>> print(arl.interpolated_logprobs(new, old, ages, mask))
    [[-2.   -2.   -1.25]]
  """
  log_ratio, mask, missing = _log_ratio(logprobs, behavior_logprobs, mask)
  ages = checks.floats("ages", ages, "[B, T]", mask.shape)
  pull = 1.0 / jnp.maximum(jnp.where(mask, ages, 0.0), 1.0)
  known = jnp.where(missing, logprobs, behavior_logprobs)
  start = jnp.where(mask, known, 0.0).astype(jnp.float32)
  return jax.lax.stop_gradient(start + (1.0 - pull) * log_ratio)


def effective_sample_size(weights: ArrayLike, mask: ArrayLike) -> Array:
  """Share of the samples that the weights leave effective.

  (Σ w)² / (n Σ w²)

  Args:
    weights: `[...]` importance weights, none negative.
    mask: `[...]` 1 where a weight counts.

  Returns:
    A float32 scalar in (0, 1]; 0 if no weight is above 0.

  Raises:
    ValueError: if `mask` does not broadcast to `weights`.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> weights = jnp.array([1.0, 1.0, 0.0, 0.0])
    >>> print(arl.effective_sample_size(weights, jnp.ones(4, bool)))
    0.5
  """
  weights = checks.floats("weights", weights, "any shape", None)
  total = masking.masked_sum(weights, mask)
  squares = masking.masked_sum(weights**2, mask)
  num = masking.masked_sum(jnp.ones(weights.shape), mask)
  scale = num * squares
  return jax.lax.stop_gradient(
    jnp.where(scale > 0, total**2 / jnp.where(scale > 0, scale, 1.0), 0.0)
  )
