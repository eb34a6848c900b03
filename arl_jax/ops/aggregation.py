"""The one reduction from a loss per token to a scalar."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, masking
from arl_jax.types import Array

_MODES = ("token_mean", "sequence_mean", "sequence_sum", "fixed_length")


def aggregate_terms(
  values: ArrayLike,
  mask: ArrayLike,
  *,
  mode: str = "token_mean",
  length: float | None = None,
  normalizer: ArrayLike | float | None = None,
) -> tuple[Array, Array]:
  """Numerator and denominator of `aggregate`, to be summed apart.

  Add the numerators of all micro-batches or shards, divide once. A mean of
  means would give tokens of short micro-batches more weight.

  Args:
    values: `[B, T]` loss of each token; never read where masked.
    mask: bool `[B, T]` 1 where a token counts.
    mode: "token_mean", "sequence_mean", "sequence_sum" or "fixed_length".
    length: the constant that "fixed_length" divides by, unused otherwise.
    normalizer: takes the place of the denominator; the whole batch's.

  Returns:
    Numerator and denominator, float32 scalars.

  Raises:
    ValueError: on shapes that differ, an unknown mode or a missing length.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> values, mask = jnp.array([[1.0, 2.0, 9.0]]), jnp.array([[1, 1, 0]])
    >>> total, num = arl.aggregate_terms(values, mask)
    >>> print(total, num)
    3.0 2.0
  """
  checks.choice("mode", mode, _MODES)
  values = checks.floats("values", values, "[B, T]", (None, None))
  mask = checks.mask("mask", mask, "[B, T]", values.shape)
  if mode == "fixed_length" and length is None:
    raise ValueError(
      'length is None; mode "fixed_length" divides by it, so pass a constant '
      "such as the longest response allowed"
    )
  num_rows = jnp.sum(jnp.any(mask, axis=1), dtype=jnp.float32)
  numerator = masking.masked_sum(values, mask)
  if mode == "token_mean":
    denominator = jnp.sum(mask, dtype=jnp.float32)
  elif mode == "sequence_mean":
    numerator = jnp.sum(masking.masked_mean(values, mask, axis=1))
    denominator = num_rows
  elif mode == "sequence_sum":
    denominator = num_rows
  else:
    checks.positive("length", length)
    denominator = num_rows * jnp.asarray(length, jnp.float32)
  if normalizer is not None:
    denominator = checks.floats("normalizer", normalizer, "a scalar", ())
  return numerator, denominator


def aggregate(
  values: ArrayLike,
  mask: ArrayLike,
  *,
  mode: str = "token_mean",
  length: float | None = None,
  normalizer: ArrayLike | float | None = None,
) -> Array:
  """Reduces a loss per token to the scalar that is differentiated.

  token_mean: Σ m·ℓ / Σ m
  sequence_mean: mean over rows with a live token of the row's token mean
  sequence_sum: mean over those rows of the row's token sum
  fixed_length: Σ m·ℓ / (those rows · length)

  Reference: https://arxiv.org/abs/2503.14476 (token_mean),
  https://arxiv.org/abs/2402.03300 (sequence_mean),
  https://arxiv.org/abs/2503.20783 (fixed_length)

  Args:
    values: `[B, T]` loss of each token; never read where masked.
    mask: bool `[B, T]` 1 where a token counts.
    mode: "token_mean", "sequence_mean", "sequence_sum" or "fixed_length".
    length: the constant that "fixed_length" divides by, unused otherwise.
    normalizer: takes the place of the denominator, so that the results of
      micro-batches or shards add up to that of the whole batch.

  Returns:
    A float32 scalar; 0 if no token counts.

  Raises:
    ValueError: on shapes that differ, an unknown mode or a missing length.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> values, mask = jnp.array([[1.0, 2.0, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.aggregate(values, mask))
    1.5
    >>> print(arl.aggregate(values, mask, normalizer=4.0))
    0.75
  """
  numerator, denominator = aggregate_terms(
    values, mask, mode=mode, length=length, normalizer=normalizer
  )
  return numerator / jnp.where(denominator == 0.0, 1.0, denominator)
