"""Rewards of single turns, from judges or from log-probabilities."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, masking
from arl_jax.types import Array

_MODES = ("sum", "mean", "min", "prod", "last")


def _scores(
  name: str, scores: ArrayLike, turn_mask: ArrayLike
) -> tuple[Array, Array]:
  """Checks scores per turn; 0 where masked."""
  scores = checks.floats(name, scores, "[B, K]", (None, None))
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", scores.shape)
  return jnp.where(mask, scores, 0.0), mask


def aggregate_process_rewards(
  scores: ArrayLike, turn_mask: ArrayLike, *, mode: str = "sum"
) -> Array:
  """Reduces the scores of a row's turns to one.

  sum, mean, min or prod over the turns, or the last turn's score

  Reference: https://arxiv.org/abs/2305.20050 (prod),
  https://arxiv.org/abs/2504.15275 (min against sum)

  Args:
    scores: `[B, K]` score of each turn; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    mode: "sum", "mean", "min", "prod" or "last".

  Returns:
    `[B]` float32; 0 for a row without turns.

  Raises:
    ValueError: on shapes that differ or an unknown mode.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> scores, mask = jnp.array([[0.5, 0.25, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.aggregate_process_rewards(scores, mask, mode="min"))
    [0.25]
  """
  checks.choice("mode", mode, _MODES)
  scores, mask = _scores("scores", scores, turn_mask)
  if mode == "sum":
    return jnp.sum(scores, axis=1)
  if mode == "mean":
    return masking.masked_mean(scores, mask, axis=1)
  live = jnp.any(mask, axis=1)
  if mode == "min":
    lowest = jnp.min(scores, axis=1, where=mask, initial=float("inf"))
    return jnp.where(live, lowest, 0.0)
  if mode == "prod":
    product = jnp.prod(jnp.where(mask, scores, 1.0), axis=1)
    return jnp.where(live, product, 0.0)
  place = jnp.arange(mask.shape[1])
  is_last = mask & (place == jnp.sum(mask, axis=1, keepdims=True) - 1)
  return jnp.sum(jnp.where(is_last, scores, 0.0), axis=1)


def soft_min_process_rewards(
  scores: ArrayLike, turn_mask: ArrayLike, *, temperature: float = 0.1
) -> Array:
  """Rewards whose sum is close to the lowest score of the row.

  r*_k = r_k · softmax(-r / temperature)_k

  Reference: https://arxiv.org/abs/2504.15275 (PURE)

  Args:
    scores: `[B, K]` score of each turn; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    temperature: the lower, the closer to the minimum; above 0.

  Returns:
    `[B, K]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ or a temperature of 0 or less.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> scores, mask = jnp.array([[0.5, 0.5, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.soft_min_process_rewards(scores, mask))
    [[0.25 0.25 0.  ]]
  """
  checks.positive("temperature", temperature)
  scores, mask = _scores("scores", scores, turn_mask)
  logits = -scores / temperature
  highest = jnp.max(
    logits, axis=1, keepdims=True, where=mask, initial=-float("inf")
  )
  offset = jax.lax.stop_gradient(jnp.where(mask, highest, 0.0))
  powers = jnp.where(mask, jnp.exp(logits - offset), 0.0)
  total = jnp.sum(powers, axis=1, keepdims=True)
  return scores * powers / jnp.where(total > 0, total, 1.0)


def implicit_process_rewards(
  logprobs: ArrayLike,
  ref_logprobs: ArrayLike,
  mask: ArrayLike,
  *,
  beta: float = 0.05,
) -> Array:
  """Rewards per token that a reward model trained on outcomes implies.

  r_t = β (log π_φ - log π_ref)

  Reference: https://arxiv.org/abs/2502.01456 (PRIME)

  Args:
    logprobs: `[B, T]` log-probability of each token under the reward model.
    ref_logprobs: `[B, T]` the same under its frozen reference.
    mask: bool `[B, T]` 1 where a token counts.
    beta: β.

  Returns:
    `[B, T]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logprobs, ref = jnp.array([[-1.0, 3.0]]), jnp.array([[-2.0, 0.0]])
    >>> print(
    ...   arl.implicit_process_rewards(
    ...     logprobs, ref, jnp.array([[1, 0]]), beta=0.5
    ...   )
    ... )
    [[0.5 0. ]]
  """
  logprobs = checks.floats("logprobs", logprobs, "[B, T]", (None, None))
  shape = logprobs.shape
  ref = checks.floats("ref_logprobs", ref_logprobs, "[B, T]", shape)
  mask = checks.mask("mask", mask, "[B, T]", shape)
  return beta * (jnp.where(mask, logprobs, 0.0) - jnp.where(mask, ref, 0.0))


def progress_loss(
  contributions: ArrayLike, turn_mask: ArrayLike, returns: ArrayLike
) -> Array:
  """Trains a head whose contributions per turn add up to the return.

  ℓ = (Σ_k c_k - R)²

  Reference: https://arxiv.org/abs/2505.20732 (SPA-RL)

  Args:
    contributions: `[B, K]` predicted share of each turn.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    returns: `[B]` return of each row; carries no gradient.

  Returns:
    `[B]` float32; 0 for a row without turns.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> shares, mask = jnp.array([[0.25, 0.25, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.progress_loss(shares, mask, jnp.array([1.0])))
    [0.25]
  """
  contributions, mask = _scores("contributions", contributions, turn_mask)
  returns = checks.floats("returns", returns, "[B]", mask.shape[:1])
  returns = jnp.where(jnp.any(mask, axis=1), returns, 0.0)
  predicted = jnp.sum(contributions, axis=1)
  return (predicted - jax.lax.stop_gradient(returns)) ** 2
