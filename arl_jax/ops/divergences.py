"""Estimates of the divergence from a reference policy, one per token."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, masking
from arl_jax.types import Array


def _log_ratio(logprobs: ArrayLike, ref_logprobs: ArrayLike) -> Array:
  """The log-ratio log π - log π_ref, float32."""
  logprobs = checks.floats("logprobs", logprobs, "any shape", None)
  ref_logprobs = checks.floats(
    "ref_logprobs", ref_logprobs, "the shape of logprobs", logprobs.shape
  )
  return logprobs - ref_logprobs


def kl_k1(logprobs: ArrayLike, ref_logprobs: ArrayLike) -> Array:
  """The plain estimate: unbiased, of high variance, may be negative.

  k1 = d, d = log π - log π_ref

  As a loss its expected gradient is zero; it belongs in the reward.

  Reference: http://joschu.net/blog/kl-approx.html

  Args:
    logprobs: `[...]` log-probability of each token under the current policy.
    ref_logprobs: `[...]` the same under the frozen reference.

  Returns:
    `[...]` float32.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> print(arl.kl_k1(jnp.array([-1.0]), jnp.array([-1.5])))
    [0.5]
  """
  return _log_ratio(logprobs, ref_logprobs)


def kl_k2(logprobs: ArrayLike, ref_logprobs: ArrayLike) -> Array:
  """Half the squared log-ratio.

  k2 = d² / 2, d = log π - log π_ref

  As a loss on fresh samples its gradient is that of KL(π ‖ π_ref).

  Reference: http://joschu.net/blog/kl-approx.html

  Args:
    logprobs: `[...]` log-probability of each token under the current policy.
    ref_logprobs: `[...]` the same under the frozen reference.

  Returns:
    `[...]` float32, never negative.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> print(arl.kl_k2(jnp.array([-1.0]), jnp.array([-1.5])))
    [0.125]
  """
  return 0.5 * _log_ratio(logprobs, ref_logprobs) ** 2


def kl_k3(logprobs: ArrayLike, ref_logprobs: ArrayLike) -> Array:
  """The estimate that is unbiased in value, of low variance.

  k3 = e^(-d) - 1 + d, d = log π - log π_ref

  As a loss on fresh samples its gradient is that of KL(π_ref ‖ π), the other
  direction; `kl_penalty_loss(estimator="k3_unbiased")` mends that.

  Reference: http://joschu.net/blog/kl-approx.html

  Args:
    logprobs: `[...]` log-probability of each token under the current policy.
    ref_logprobs: `[...]` the same under the frozen reference.

  Returns:
    `[...]` float32, never negative but for rounding.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> print(arl.kl_k3(jnp.array([-1.0]), jnp.array([-1.5])).round(4))
    [0.1065]
  """
  log_ratio = _log_ratio(logprobs, ref_logprobs)
  # Where the exponential is clipped its slope is gone; the lone +d would then
  # push the policy further away from the reference, so that d stops as well.
  log_ratio = jnp.maximum(log_ratio, -masking.LOG_RATIO_LIMIT)
  return masking.exp_log_ratio(-log_ratio) - 1.0 + log_ratio


def kl_penalty_loss(
  logprobs: ArrayLike,
  ref_logprobs: ArrayLike,
  behavior_logprobs: ArrayLike,
  mask: ArrayLike,
  *,
  estimator: str = "k2",
) -> Array:
  """Loss that pulls the policy towards the reference.

  k2: d² / 2    k3: e^(-d) - 1 + d    k3_unbiased: (π / π_behavior) · k3

  Reference: https://arxiv.org/abs/2512.02556 for the weighted form.

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    ref_logprobs: `[B, T]` the same under the frozen reference.
    behavior_logprobs: `[B, T]` the same when it was sampled; read by
      k3_unbiased alone, which differentiates through the ratio.
    mask: bool `[B, T]` 1 where a token counts.
    estimator: "k2", "k3" or "k3_unbiased".

  Returns:
    `[B, T]` float32, to be minimised; 0 where masked.

  Raises:
    ValueError: on shapes that differ or an unknown estimator.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logprobs, ref = jnp.array([[-1.0, -9.0]]), jnp.array([[-1.5, -2.0]])
    >>> mask = jnp.array([[1, 0]])
    >>> print(arl.kl_penalty_loss(logprobs, ref, logprobs, mask))
    [[0.125 0.   ]]
  """
  checks.choice("estimator", estimator, ("k2", "k3", "k3_unbiased"))
  logprobs = checks.floats("logprobs", logprobs, "[B, T]", (None, None))
  shape = logprobs.shape
  mask = checks.mask("mask", mask, "[B, T]", shape)
  ref = checks.floats("ref_logprobs", ref_logprobs, "[B, T]", shape)
  behavior = checks.floats(
    "behavior_logprobs", behavior_logprobs, "[B, T]", shape
  )
  logprobs, ref, behavior = (
    jnp.where(mask, x, 0.0) for x in (logprobs, ref, behavior)
  )
  if estimator == "k2":
    return kl_k2(logprobs, ref)
  penalty = kl_k3(logprobs, ref)
  if estimator == "k3":
    return penalty
  # A missing behaviour log-prob (NaN) leaves its token unweighted.
  missing = jnp.isnan(behavior)
  log_ratio = jnp.where(
    missing, 0.0, logprobs - jnp.where(missing, 0.0, behavior)
  )
  return masking.exp_log_ratio(log_ratio) * penalty
