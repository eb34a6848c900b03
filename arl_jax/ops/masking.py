"""Sums and moments over the entries that count."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks
from arl_jax.types import Array

Axis = int | tuple[int, ...] | None

# Every exp of a log-ratio clips it to this first: e^20 is about 5e8, so that
# products and sums of a few of them stay far inside float32.
LOG_RATIO_LIMIT = 20.0


def _inputs(x: ArrayLike, mask: ArrayLike) -> tuple[Array, Array]:
  """Returns `x` in float32 with 0 where masked, the mask at its full shape."""
  x = checks.floats("x", x, "any shape", None)
  mask = checks.mask("mask", mask, "any shape", None)
  try:
    mask = jnp.broadcast_to(mask, x.shape)
  except ValueError as error:
    raise ValueError(
      f"mask has shape {mask.shape}; expected one that broadcasts to the "
      f"shape {x.shape} of x"
    ) from error
  return jnp.where(mask, x, 0.0), mask


def masked_sum(x: ArrayLike, mask: ArrayLike, axis: Axis = None) -> Array:
  """Sums the entries that count.

  Σ m·x

  Args:
    x: `[...]` values; those where `mask` is 0 are never read.
    mask: broadcasts to `x`, 1 where an entry counts.
    axis: the axes to sum over, all of them if None.

  Returns:
    The sum, float32; 0 where nothing counts.

  Raises:
    ValueError: if `mask` does not broadcast to `x`.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> x = jnp.array([1.0, 2.0, jnp.nan])
    >>> print(arl.masked_sum(x, jnp.array([1, 1, 0])))
    3.0
  """
  x, _ = _inputs(x, mask)
  return jnp.sum(x, axis=axis)


def masked_mean(x: ArrayLike, mask: ArrayLike, axis: Axis = None) -> Array:
  """Averages the entries that count.

  Σ m·x / Σ m

  Args:
    x: `[...]` values; those where `mask` is 0 are never read.
    mask: broadcasts to `x`, 1 where an entry counts.
    axis: the axes to average over, all of them if None.

  Returns:
    The mean, float32; 0 where nothing counts.

  Raises:
    ValueError: if `mask` does not broadcast to `x`.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> x = jnp.array([1.0, 2.0, jnp.nan])
    >>> print(arl.masked_mean(x, jnp.array([1, 1, 0])))
    1.5
  """
  x, mask = _inputs(x, mask)
  num = jnp.sum(mask, axis=axis, dtype=jnp.float32)
  return jnp.sum(x, axis=axis) / jnp.maximum(num, 1.0)


def _centre(x: Array, mask: Array, axis: Axis) -> Array:
  """Subtracts the mean of what counts; 0 where masked.

  The lowest entry goes first: entries that are all equal then come out as
  exact zeros, where x - mean(x) leaves a rounding error for the next
  division to blow up.
  """
  lowest = jnp.min(
    x, axis=axis, keepdims=True, where=mask, initial=float("inf")
  )
  shifted = x - jax.lax.stop_gradient(jnp.where(mask, lowest, 0.0))
  num = jnp.sum(mask, axis=axis, keepdims=True, dtype=jnp.float32)
  total = jnp.sum(shifted, axis=axis, keepdims=True)
  return jnp.where(mask, shifted - total / jnp.maximum(num, 1.0), 0.0)


def masked_var(
  x: ArrayLike, mask: ArrayLike, axis: Axis = None, *, ddof: int = 0
) -> Array:
  """Variance of the entries that count.

  Σ m·(x - μ)² / max(Σ m - ddof, 1)

  Args:
    x: `[...]` values; those where `mask` is 0 are never read.
    mask: broadcasts to `x`, 1 where an entry counts.
    axis: the axes to reduce, all of them if None.
    ddof: 0 for the population, 1 for the sample variance.

  Returns:
    The variance, float32; 0 where at most one entry counts.

  Raises:
    ValueError: if `mask` does not broadcast to `x`.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> x = jnp.array([1.0, 3.0, jnp.nan])
    >>> print(arl.masked_var(x, jnp.array([1, 1, 0]), ddof=1))
    2.0
  """
  x, mask = _inputs(x, mask)
  centred = _centre(x, mask, axis)
  num = jnp.sum(mask, axis=axis, dtype=jnp.float32)
  return jnp.sum(centred**2, axis=axis) / jnp.maximum(num - ddof, 1.0)


def masked_whiten(
  x: ArrayLike, mask: ArrayLike, *, ddof: int = 1, eps: float = 1e-8
) -> Array:
  """Shifts and scales what counts to mean 0 and variance 1.

  (x - μ) / √(σ² + eps)

  Args:
    x: `[...]` values; those where `mask` is 0 are never read.
    mask: broadcasts to `x`, 1 where an entry counts.
    ddof: 0 for the population, 1 for the sample variance.
    eps: added to the variance.

  Returns:
    `[...]` float32; 0 where masked, 0 everywhere if nothing varies.

  Raises:
    ValueError: if `mask` does not broadcast to `x`.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> x = jnp.array([1.0, 3.0, jnp.nan])
    >>> print(arl.masked_whiten(x, jnp.array([1, 1, 0]), ddof=0))
    [-1.  1.  0.]
  """
  x, mask = _inputs(x, mask)
  centred = _centre(x, mask, None)
  num = jnp.sum(mask, dtype=jnp.float32)
  variance = jnp.sum(centred**2) / jnp.maximum(num - ddof, 1.0)
  return centred * jax.lax.rsqrt(variance + eps)


def exp_log_ratio(log_ratio: Array) -> Array:
  """Ratio of two probabilities from the difference of their logs, bounded."""
  return jnp.exp(jnp.clip(log_ratio, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
