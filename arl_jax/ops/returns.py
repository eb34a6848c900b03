"""Discounted sums of rewards over turns, over tokens."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks
from arl_jax.types import Array


def _turn_inputs(
  turn_rewards: ArrayLike, turn_mask: ArrayLike, discount: float
) -> tuple[Array, Array]:
  """Checks rewards per turn; 0 where masked."""
  checks.within("discount", discount, 0.0, 1.0)
  rewards = checks.floats("turn_rewards", turn_rewards, "[B, K]", (None, None))
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", rewards.shape)
  return jnp.where(mask, rewards, 0.0), mask


def carried_returns(rewards: Array, mask: Array, discount: float) -> Array:
  """Discounted sums from each live place on, carried over the masked ones."""

  def step(
    following: Array, inputs: tuple[Array, Array]
  ) -> tuple[Array, Array]:
    reward, live = inputs
    current = jnp.where(live, reward + discount * following, following)
    return current, jnp.where(live, current, 0.0)

  rewards = jnp.where(mask, rewards, 0.0)
  start = jnp.zeros(rewards.shape[:1], jnp.float32)
  _, sums = jax.lax.scan(step, start, (rewards.T, mask.T), reverse=True)
  return sums.T


def episode_returns(
  turn_rewards: ArrayLike, turn_mask: ArrayLike, *, discount: float = 1.0
) -> Array:
  """Return of each row, seen from its first turn.

  R = Σ_k γᵏ r_k, k from 0

  Args:
    turn_rewards: `[B, K]` reward of each turn; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    discount: γ per turn, in [0, 1].

  Returns:
    `[B]` float32; 0 for a row without turns.

  Raises:
    ValueError: on shapes that differ or a discount outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards, mask = jnp.array([[0.0, 4.0, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.episode_returns(rewards, mask, discount=0.5))
    [2.]
  """
  rewards, mask = _turn_inputs(turn_rewards, turn_mask, discount)
  powers = jnp.float32(discount) ** jnp.arange(rewards.shape[1])
  return jnp.sum(rewards * jnp.where(mask, powers, 0.0), axis=1)


def turn_returns(
  turn_rewards: ArrayLike, turn_mask: ArrayLike, *, discount: float = 1.0
) -> Array:
  """Return of each turn: what came from it on.

  G_k = r_k + γ G_{k+1}

  Args:
    turn_rewards: `[B, K]` reward of each turn; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    discount: γ per turn, in [0, 1].

  Returns:
    `[B, K]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ or a discount outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards, mask = jnp.array([[0.0, 4.0, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.turn_returns(rewards, mask, discount=0.5))
    [[2. 4. 0.]]
  """
  rewards, mask = _turn_inputs(turn_rewards, turn_mask, discount)
  return carried_returns(rewards, mask, discount)


def outcome_to_turns(
  outcomes: ArrayLike, turn_mask: ArrayLike, *, discount: float = 1.0
) -> Array:
  """Spreads one outcome over the turns that led to it.

  r_k = r γ^(last - k)

  Reference: Kimi-Researcher (Moonshot AI, 2025), where a discount below 1
  favours the shorter of two successful episodes.

  Args:
    outcomes: `[B]` outcome of each row; never read for a row without turns.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    discount: γ per turn, in [0, 1].

  Returns:
    `[B, K]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ or a discount outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> mask = jnp.array([[1, 1, 0]])
    >>> print(arl.outcome_to_turns(jnp.array([4.0]), mask, discount=0.5))
    [[2. 4. 0.]]
  """
  checks.within("discount", discount, 0.0, 1.0)
  outcomes = checks.floats("outcomes", outcomes, "[B]", (None,))
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", (outcomes.size, None))
  last = jnp.sum(mask, axis=1, keepdims=True) - 1
  remaining = jnp.where(mask, last - jnp.arange(mask.shape[1]), 0)
  spread = jnp.where(mask, outcomes[:, None], 0.0)
  return spread * jnp.float32(discount) ** remaining


def token_returns(
  token_rewards: ArrayLike, action_mask: ArrayLike, *, discount: float = 1.0
) -> Array:
  """Return of each action token, carried across observations.

  G_t = r_t + γ G_{t'}, t' the next action token

  Args:
    token_rewards: `[B, T]` reward of each token; never read where masked.
    action_mask: bool `[B, T]` 1 where the policy sampled the token.
    discount: γ per action token, in [0, 1]; observations cost no discount.

  Returns:
    `[B, T]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ or a discount outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards, mask = jnp.array([[0.0, 7.0, 1.0]]), jnp.array([[1, 0, 1]])
    >>> print(arl.token_returns(rewards, mask, discount=0.5))
    [[0.5 0.  1. ]]
  """
  checks.within("discount", discount, 0.0, 1.0)
  rewards = checks.floats(
    "token_rewards", token_rewards, "[B, T]", (None, None)
  )
  mask = checks.mask("action_mask", action_mask, "[B, T]", rewards.shape)
  return carried_returns(rewards, mask, discount)
