"""Advantages from a critic, the loss that trains it."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, turns
from arl_jax.types import Array


def _inputs(
  rewards: ArrayLike,
  values: ArrayLike,
  mask: ArrayLike,
  names: tuple[str, str, str],
) -> tuple[Array, Array, Array]:
  """Checks rewards and values of one shape; 0 where masked."""
  layout = "[B, K]" if names[2] == "turn_mask" else "[B, T]"
  rewards = checks.floats(names[0], rewards, layout, (None, None))
  values = checks.floats(names[1], values, layout, rewards.shape)
  mask = checks.mask(names[2], mask, layout, rewards.shape)
  return jnp.where(mask, rewards, 0.0), jnp.where(mask, values, 0.0), mask


def _check_rates(**rates: ArrayLike) -> None:
  """Raises if a discount or a λ is outside [0, 1]."""
  for name, rate in rates.items():
    checks.within(name, rate, 0.0, 1.0)


def _backward(
  rewards: Array,
  values: Array,
  mask: Array,
  ends: Array,
  *,
  discount: ArrayLike,
  lam: ArrayLike,
) -> tuple[Array, Array]:
  """One scan from the last place to the first, over the live places alone.

  Args:
    rewards: `[B, T]` 0 where masked.
    values: `[B, T]` 0 where masked.
    mask: bool `[B, T]` where the carry moves.
    ends: bool `[B, T]` where nothing follows: the carry starts again from 0.
    discount: γ, a scalar or `[B]`.
    lam: λ, a scalar or `[B]`.

  Returns:
    Advantages and returns `[B, T]`, 0 where masked.
  """

  discount = jnp.asarray(discount, jnp.float32)
  decay = discount * jnp.asarray(lam, jnp.float32)

  def step(
    carry: tuple[Array, Array], inputs: tuple[Array, Array, Array, Array]
  ) -> tuple[tuple[Array, Array], Array]:
    next_value, next_advantage = carry
    reward, value, live, end = inputs
    ahead = jnp.where(end, 0.0, next_value)
    delta = reward + discount * ahead - value
    advantage = delta + decay * jnp.where(end, 0.0, next_advantage)
    carry = (
      jnp.where(live, value, next_value),
      jnp.where(live, advantage, next_advantage),
    )
    return carry, jnp.where(live, advantage, 0.0)

  zero = jnp.zeros(rewards.shape[:1], jnp.float32)
  _, advantages = jax.lax.scan(
    step, (zero, zero), (rewards.T, values.T, mask.T, ends.T), reverse=True
  )
  return advantages.T, advantages.T + values


def gae(
  rewards: ArrayLike,
  values: ArrayLike,
  action_mask: ArrayLike,
  *,
  discount: float = 1.0,
  lam: ArrayLike = 1.0,
) -> tuple[Array, Array]:
  """Generalised advantage estimation over the action tokens alone.

  δ_t = r_t + γ V_{t'} - V_t
  A_t = δ_t + γ λ A_{t'}, t' the next action token

  Observation tokens are stepped over: their values are never read.

  Reference: https://arxiv.org/abs/1506.02438

  Args:
    rewards: `[B, T]` reward of each token; never read where masked.
    values: `[B, T]` value before each token; never read where masked.
    action_mask: bool `[B, T]` 1 where the policy sampled the token.
    discount: γ per action token, in [0, 1].
    lam: λ in [0, 1], a scalar or `[B]`, see `length_adaptive_lambda`.

  Returns:
    Advantages and returns A + V, each `[B, T]` float32, 0 where masked.

  Raises:
    ValueError: on shapes that differ or a rate outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards = jnp.array([[0.0, 7.0, 1.0]])
    >>> values = jnp.array([[0.5, 9.0, 0.5]])
    >>> advantages, returns = arl.gae(rewards, values, jnp.array([[1, 0, 1]]))
    >>> print(advantages, returns)
    [[0.5 0.  0.5]] [[1. 0. 1.]]
  """
  _check_rates(discount=discount, lam=lam)
  rewards, values, mask = _inputs(
    rewards, values, action_mask, ("rewards", "values", "action_mask")
  )
  never = jnp.zeros_like(mask)
  return _backward(rewards, values, mask, never, discount=discount, lam=lam)


def turn_gae(
  turn_rewards: ArrayLike,
  turn_values: ArrayLike,
  turn_mask: ArrayLike,
  *,
  discount: float,
  lam: ArrayLike,
) -> tuple[Array, Array]:
  """Generalised advantage estimation with a turn as the step.

  δ_k = r_k + γ V_{k+1} - V_k
  A_k = δ_k + γ λ A_{k+1}

  With λ = 0 the returns are r_k + γ V_{k+1}, the targets of the utterance
  critic of ArCHer (https://arxiv.org/abs/2402.19446).

  Reference: https://arxiv.org/abs/2512.17008

  Args:
    turn_rewards: `[B, K]` reward of each turn; never read where masked.
    turn_values: `[B, K]` value of each turn; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    discount: γ per turn, in [0, 1].
    lam: λ in [0, 1], a scalar or `[B]`.

  Returns:
    Advantages and returns A + V, each `[B, K]` float32, 0 where masked.

  Raises:
    ValueError: on shapes that differ or a rate outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards, values = jnp.array([[0.0, 1.0]]), jnp.array([[0.25, 0.5]])
    >>> advantages, returns = arl.turn_gae(
    ...   rewards, values, jnp.ones((1, 2), bool), discount=1.0, lam=0.5
    ... )
    >>> print(advantages, returns)
    [[0.5 0.5]] [[0.75 1.  ]]
  """
  _check_rates(discount=discount, lam=lam)
  rewards, values, mask = _inputs(
    turn_rewards,
    turn_values,
    turn_mask,
    ("turn_rewards", "turn_values", "turn_mask"),
  )
  never = jnp.zeros_like(mask)
  return _backward(rewards, values, mask, never, discount=discount, lam=lam)


def bi_level_gae(
  rewards: ArrayLike,
  values: ArrayLike,
  action_mask: ArrayLike,
  turn_ids: ArrayLike,
  *,
  discount: float,
  lam: ArrayLike,
  turn_discount: float,
  turn_lam: float = 1.0,
) -> tuple[Array, Array]:
  """Estimates the return of each turn, then credit within the turn.

  Over the last tokens e of turns: A_e = δ_e + γ_K λ_K A_{e'}, R_e = A_e + V_e
  Within a turn: R_e replaces the reward at e, and estimation ends there.

  Turn ends come from `turn_ids`, not from rewards: a turn of reward 0 is a
  turn. A reward before the last token (a KL penalty) stays within its turn.

  Reference: https://arxiv.org/abs/2510.16907 (VAGEN)

  Args:
    rewards: `[B, T]` reward of each token; never read where masked.
    values: `[B, T]` value before each token; never read where masked.
    action_mask: bool `[B, T]` 1 where the policy sampled the token.
    turn_ids: int32 `[B, T]` the turn of an action token, -1 elsewhere.
    discount: γ per token within a turn, in [0, 1].
    lam: λ per token within a turn, in [0, 1].
    turn_discount: γ_K per turn, in [0, 1].
    turn_lam: λ_K per turn, in [0, 1].

  Returns:
    Advantages and returns A + V, each `[B, T]` float32, 0 where masked.

  Raises:
    ValueError: on shapes that differ or a rate outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards, values = jnp.array([[0.0, 0.0, 1.0]]), jnp.zeros((1, 3))
    >>> mask, turn_ids = jnp.ones((1, 3), bool), jnp.array([[0, 0, 1]])
    >>> advantages, _ = arl.bi_level_gae(
    ...   rewards,
    ...   values,
    ...   mask,
    ...   turn_ids,
    ...   discount=1.0,
    ...   lam=1.0,
    ...   turn_discount=0.5,
    ... )
    >>> print(advantages)
    [[0.5 0.5 1. ]]
  """
  _check_rates(
    discount=discount, lam=lam, turn_discount=turn_discount, turn_lam=turn_lam
  )
  rewards, values, mask = _inputs(
    rewards, values, action_mask, ("rewards", "values", "action_mask")
  )
  turn_ids = checks.ids("turn_ids", turn_ids, "[B, T]", mask.shape)
  checks.ids_in_range(
    "turn_ids",
    turn_ids,
    mask,
    num_name="the number of tokens",
    num=mask.shape[1],
    lowest=-1,
  )
  ends = turns.turn_end_mask(jnp.where(mask, turn_ids, -1))
  _, turn_returns = _backward(
    jnp.where(ends, rewards, 0.0),
    jnp.where(ends, values, 0.0),
    ends,
    jnp.zeros_like(ends),
    discount=turn_discount,
    lam=turn_lam,
  )
  rewards = jnp.where(ends, turn_returns, rewards)
  return _backward(rewards, values, mask, ends, discount=discount, lam=lam)


def length_adaptive_lambda(lengths: ArrayLike, *, alpha: float = 0.05) -> Array:
  """A λ that nears 1 as rows grow, so that far rewards still count.

  λ = max(1 - 1 / (alpha l), 0)

  Reference: https://arxiv.org/abs/2504.05118 (VAPO)

  Args:
    lengths: `[B]` action tokens of each row.
    alpha: how fast λ nears 1, above 0.

  Returns:
    `[B]` float32 in [0, 1); 0 for an empty row.

  Raises:
    ValueError: on a wrong shape or an alpha of 0 or less.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> print(arl.length_adaptive_lambda(jnp.array([0, 10, 40])))
    [0.  0.  0.5]
  """
  checks.positive("alpha", alpha)
  lengths = checks.floats("lengths", lengths, "[B]", (None,))
  scaled = alpha * lengths
  live = scaled > 0
  lam = 1.0 - 1.0 / jnp.where(live, scaled, 1.0)
  return jnp.where(live, jnp.maximum(lam, 0.0), 0.0)


def value_loss(
  values: ArrayLike,
  old_values: ArrayLike,
  returns: ArrayLike,
  mask: ArrayLike,
  *,
  clip: float | None = None,
) -> Array:
  """Squared error of the critic, no better than within the clip.

  ℓ = ½ max((V - R)², (clip(V, V_old - c, V_old + c) - R)²)

  Reference: https://arxiv.org/abs/1707.06347

  Args:
    values: `[B, T]` value of each token under the current critic.
    old_values: `[B, T]` the same before this batch's first update.
    returns: `[B, T]` targets; carry no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    clip: c, how far a value may move for free, no clip if None.

  Returns:
    `[B, T]` float32, unreduced; 0 where masked.

  Raises:
    ValueError: on shapes that differ or a clip below 0.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> values, old = jnp.array([[3.0]]), jnp.array([[0.0]])
    >>> target, mask = jnp.array([[4.0]]), jnp.ones((1, 1), bool)
    >>> print(arl.value_loss(values, old, target, mask))
    [[0.5]]
    >>> print(arl.value_loss(values, old, target, mask, clip=2.0))
    [[2.]]
  """
  values = checks.floats("values", values, "[B, T]", (None, None))
  shape = values.shape
  mask = checks.mask("mask", mask, "[B, T]", shape)
  old = checks.floats("old_values", old_values, "[B, T]", shape)
  returns = checks.floats("returns", returns, "[B, T]", shape)
  values, old, returns = (
    jnp.where(mask, x, 0.0) for x in (values, old, returns)
  )
  old, returns = jax.lax.stop_gradient((old, returns))
  error = (values - returns) ** 2
  if clip is None:
    return 0.5 * error
  checks.within("clip", clip, 0.0)
  clipped = old + jnp.clip(values - old, -clip, clip)
  return 0.5 * jnp.maximum(error, (clipped - returns) ** 2)
