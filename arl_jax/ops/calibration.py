"""How far predicted probabilities are from what happened."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, masking
from arl_jax.types import Array


def _inputs(
  probabilities: ArrayLike, targets: ArrayLike, mask: ArrayLike
) -> tuple[Array, Array, Array]:
  """Checks predictions and what they predict; 0 where masked."""
  found = checks.floats("probabilities", probabilities, "[...]", None)
  wanted = checks.floats("targets", targets, "[...]", found.shape)
  live = checks.mask("mask", mask, "[...]", found.shape)
  return jnp.where(live, found, 0.0), jnp.where(live, wanted, 0.0), live


def brier_score(
  probabilities: ArrayLike, targets: ArrayLike, mask: ArrayLike
) -> Array:
  """Mean squared distance of predictions from what happened.

  mean (p - y)²

  Reference: Brier, "Verification of forecasts expressed in terms of
  probability" (1950), the form for two outcomes

  Args:
    probabilities: `[...]` p in [0, 1]; never read where masked.
    targets: `[...]` y in [0, 1], usually 0 or 1.
    mask: bool `[...]` what counts.

  Returns:
    A float32 scalar; 0 if nothing counts.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> p, y = jnp.array([0.5, 1.0, 9.0]), jnp.array([1.0, 1.0, 0.0])
    >>> print(arl.brier_score(p, y, jnp.array([1, 1, 0])))
    0.125
  """
  found, wanted, live = _inputs(probabilities, targets, mask)
  return masking.masked_mean((found - wanted) ** 2, live)


def calibration_error(
  probabilities: ArrayLike,
  targets: ArrayLike,
  mask: ArrayLike,
  *,
  num_bins: int = 10,
) -> Array:
  """Expected distance of a prediction from how often it comes true (ECE).

  Σ_b n_b / n |mean_b p - mean_b y|, over bins of equal width

  Reference: https://arxiv.org/abs/1706.04599

  Args:
    probabilities: `[...]` p in [0, 1]; never read where masked.
    targets: `[...]` y in [0, 1], usually 0 or 1.
    mask: bool `[...]` what counts.
    num_bins: bins of [0, 1], each without its upper bound but the last.

  Returns:
    A float32 scalar in [0, 1]; 0 if nothing counts.

  Raises:
    ValueError: on shapes that differ or a number of bins below 1.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> p, y = jnp.array([0.75, 0.75, 9.0]), jnp.array([1.0, 0.0, 0.0])
    >>> print(arl.calibration_error(p, y, jnp.array([1, 1, 0])))
    0.25
  """
  num_bins = checks.count("num_bins", num_bins)
  found, wanted, live = _inputs(probabilities, targets, mask)
  # Values outside of [0, 1] go to the outer bins.
  places = jnp.clip(found, 0.0, 1.0) * num_bins
  bins = jnp.minimum(jnp.floor(places).astype(jnp.int32), num_bins - 1)
  gaps = jax.ops.segment_sum(
    jnp.where(live, found - wanted, 0.0).reshape(-1),
    bins.reshape(-1),
    num_segments=num_bins,
  )
  return jnp.sum(jnp.abs(gaps)) / jnp.maximum(jnp.sum(live), 1)
