"""Policy losses with one ratio per row or per turn, to be minimised."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, masking, surrogate, turns
from arl_jax.types import Array


def gspo_loss(
  logprobs: ArrayLike,
  old_logprobs: ArrayLike,
  advantages: ArrayLike,
  mask: ArrayLike,
  *,
  clip_low: float = 3e-4,
  clip_high: float = 4e-4,
) -> Array:
  """The clipped surrogate on the ratio of a whole row.

  s = exp(mean_t log ρ_t); token t reads s · π_t / sg[π_t], so that each of
  n tokens carries 1 / n of the row's gradient

  The row's ratio is clipped. GMPO (https://arxiv.org/abs/2507.20673) clips
  that of each token, before the mean.

  Reference: https://arxiv.org/abs/2507.18071

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    old_logprobs: `[B, T]` the same before this batch's first update.
    advantages: `[B]`, `[B, 1]` or `[B, T]`; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    clip_low: how far the row's ratio may fall below 1.
    clip_high: how far the row's ratio may rise above 1.

  Returns:
    `[B, T]` float32, unreduced, for mode "sequence_mean"; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit or a clip out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logprobs, mask = jnp.array([[-1.0, -2.0]]), jnp.ones((1, 2), bool)
    >>> print(arl.gspo_loss(logprobs, logprobs, jnp.array([1.0]), mask))
    [[-1. -1.]]
  """
  mask = surrogate.check_mask(mask)
  costs = surrogate.costs(advantages, mask)
  log_ratio = surrogate.log_ratio(
    logprobs, old_logprobs, mask, old="old_logprobs"
  )
  row = jnp.where(
    mask, masking.masked_mean(log_ratio, mask, axis=1)[:, None], 0.0
  )
  own = log_ratio - jax.lax.stop_gradient(log_ratio)
  ratio = masking.exp_log_ratio(jax.lax.stop_gradient(row) + own)
  return surrogate.clip(ratio, costs, clip_low, clip_high)


def turn_surrogate_loss(
  logprobs: ArrayLike,
  old_logprobs: ArrayLike,
  advantages: ArrayLike,
  mask: ArrayLike,
  turn_ids: ArrayLike,
  *,
  num_turns: int,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
) -> Array:
  """The clipped surrogate on one ratio per turn.

  ρ_k = exp(mean_{t in turn k} log π_t / π_old,t), read by each of its tokens

  Reference: https://arxiv.org/abs/2512.17008

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    old_logprobs: `[B, T]` the same before this batch's first update.
    advantages: `[B]`, `[B, 1]` or `[B, T]`; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    turn_ids: int32 `[B, T]` the turn of an action token, -1 elsewhere.
    num_turns: K, a static int above every turn id.
    clip_low: how far a turn's ratio may fall below 1.
    clip_high: how far a turn's ratio may rise above 1.

  Returns:
    `[B, T]` float32, unreduced; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit, a clip or a turn id out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new, old = jnp.array([[-1.0, -2.0]]), jnp.array([[-2.0, -1.0]])
    >>> one, mask = jnp.ones((1, 2)), jnp.ones((1, 2), bool)
    >>> turns = jnp.array([[0, 0]])
    >>> print(arl.turn_surrogate_loss(new, old, one, mask, turns, num_turns=1))
    [[-1. -1.]]
  """
  mask = surrogate.check_mask(mask)
  turn_ids = checks.ids("turn_ids", turn_ids, "[B, T]", mask.shape)
  turn_ids = jnp.where(mask, turn_ids, -1)
  mask = mask & (turn_ids >= 0)
  costs = surrogate.costs(advantages, mask)
  log_ratio = surrogate.log_ratio(
    logprobs, old_logprobs, mask, old="old_logprobs"
  )
  per_turn = turns.mean_over_turns(log_ratio, turn_ids, num_turns=num_turns)
  ratio = masking.exp_log_ratio(turns.broadcast_turns(per_turn, turn_ids))
  return surrogate.clip(ratio, costs, clip_low, clip_high)


def mirror_descent_loss(
  logprobs: ArrayLike,
  old_logprobs: ArrayLike,
  advantages: ArrayLike,
  mask: ArrayLike,
  *,
  tau: float,
) -> Array:
  """Squared distance of each row from its mirror-descent optimum.

  ℓ = (A - τ Σ_t log π / π_old)²

  Reference: https://arxiv.org/abs/2501.12599

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    old_logprobs: `[B, T]` the same before this batch's first update.
    advantages: `[B]` return minus baseline; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    tau: strength of the pull to the old policy.

  Returns:
    `[B]` float32; 0 for a row without live tokens.

  Raises:
    ValueError: on shapes that do not fit or a negative τ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new, old = jnp.array([[-1.0]]), jnp.array([[-2.0]])
    >>> one, mask = jnp.ones(1), jnp.ones((1, 1), bool)
    >>> print(arl.mirror_descent_loss(new, old, one, mask, tau=0.5))
    [0.25]
  """
  checks.within("tau", tau, 0.0)
  mask = surrogate.check_mask(mask)
  live = jnp.any(mask, axis=1)
  advantages = checks.floats("advantages", advantages, "[B]", live.shape)
  advantages = jax.lax.stop_gradient(jnp.where(live, advantages, 0.0))
  log_ratio = surrogate.log_ratio(
    logprobs, old_logprobs, mask, old="old_logprobs"
  )
  return (advantages - tau * jnp.sum(log_ratio, axis=1)) ** 2
