"""Rewards of several agents, from what the team achieved."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import math

import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np
import numpy.typing as npt

from arl_jax.ops import checks
from arl_jax.types import Array


def team_average_rewards(
  turn_rewards: ArrayLike, turn_mask: ArrayLike, *, num_agents: int
) -> Array:
  """Gives every agent an equal share of what the team earned.

  r_a = Σ_k r_k / A

  Args:
    turn_rewards: `[B, K]` reward of each turn of the team.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    num_agents: A, a static int.

  Returns:
    `[B, A]` float32; 0 for a row without turns.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards, mask = jnp.array([[1.0, 2.0, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.team_average_rewards(rewards, mask, num_agents=2))
    [[1.5 1.5]]
  """
  num_agents = checks.count("num_agents", num_agents)
  rewards = checks.floats("turn_rewards", turn_rewards, "[B, K]", (None, None))
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", rewards.shape)
  share = jnp.sum(jnp.where(mask, rewards, 0.0), axis=1) / num_agents
  return jnp.broadcast_to(share[:, None], (share.size, num_agents))


def weighted_team_rewards(team_rewards: ArrayLike, weights: ArrayLike) -> Array:
  """Divides the reward of the team by the weight of each agent.

  r_a = R w_a / Σ w

  Args:
    team_rewards: `[B]` reward of each team.
    weights: `[B, A]` weight of each agent, none negative.

  Returns:
    `[B, A]` float32; 0 for a team whose weights are all 0.

  Raises:
    ValueError: on shapes that do not fit.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> print(
    ...   arl.weighted_team_rewards(jnp.array([2.0]), jnp.array([[3.0, 1.0]]))
    ... )
    [[1.5 0.5]]
  """
  team_rewards = checks.floats("team_rewards", team_rewards, "[B]", (None,))
  weights = checks.floats(
    "weights", weights, "[B, A]", (team_rewards.size, None)
  )
  total = jnp.sum(weights, axis=1, keepdims=True)
  live = total != 0
  shares = weights / jnp.where(live, total, 1.0)
  return jnp.where(live, team_rewards[:, None], 0.0) * shares


def _shapley_matrix(num_agents: int) -> npt.NDArray[np.float64]:
  """The linear map `[A, 2**A]` from coalition values to Shapley values."""
  orders = math.factorial(num_agents)
  matrix = np.zeros((num_agents, 2**num_agents), np.float64)
  for agent in range(num_agents):
    for coalition in range(2**num_agents):
      inside = bool(coalition >> agent & 1)
      others = coalition.bit_count() - inside
      weight = math.factorial(others) * math.factorial(num_agents - others - 1)
      matrix[agent, coalition] = (1 if inside else -1) * weight / orders
  return matrix


def shapley_values(coalition_values: ArrayLike, *, num_agents: int) -> Array:
  """Credit of each agent, averaged over all orders of joining.

  φ_a = Σ_{S ∌ a} |S|! (A - |S| - 1)! / A! · (v(S ∪ a) - v(S))

  Reference: Shapley, "A value for n-person games", 1953.

  Args:
    coalition_values: `[2**A]` value of each coalition; bit a of the index
      says that agent a is in.
    num_agents: A, a static int of at most 12.

  Returns:
    `[A]` float32; they add up to v(all) - v(nobody).

  Raises:
    ValueError: if the length is not 2**A.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> print(
    ...   arl.shapley_values(jnp.array([0.0, 1.0, 0.0, 2.0]), num_agents=2)
    ... )
    [1.5 0.5]
  """
  num_agents = checks.count("num_agents", num_agents)
  checks.within("num_agents", num_agents, 1, 12)
  values = checks.floats(
    "coalition_values", coalition_values, "[2**A]", (2**num_agents,)
  )
  matrix = jnp.asarray(_shapley_matrix(num_agents), jnp.float32)
  return jnp.sum(matrix * values, axis=1)


def critical_steps(
  main_steps: ArrayLike, sub_steps: ArrayLike, stage_mask: ArrayLike
) -> Array:
  """Length of the longest chain of steps when sub-agents run in parallel.

  C = Σ_s (main_s + max_a sub_{s,a})

  Reference: https://arxiv.org/abs/2602.02276 (agent swarm)

  Args:
    main_steps: `[B, S]` steps of the main agent in each stage.
    sub_steps: `[B, S, A]` steps of each sub-agent, 0 for one not started.
    stage_mask: bool `[B, S]` the stages that took place.

  Returns:
    `[B]` float32; 0 for a row without stages.

  Raises:
    ValueError: on shapes that do not fit.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> main, sub = jnp.array([[1, 1]]), jnp.array([[[0, 0], [5, 9]]])
    >>> print(arl.critical_steps(main, sub, jnp.ones((1, 2), bool)))
    [11.]
  """
  main = checks.floats("main_steps", main_steps, "[B, S]", (None, None))
  sub = checks.floats("sub_steps", sub_steps, "[B, S, A]", (*main.shape, None))
  mask = checks.mask("stage_mask", stage_mask, "[B, S]", main.shape)
  longest = jnp.max(jnp.where(mask[..., None], sub, 0.0), axis=2, initial=0.0)
  return jnp.sum(jnp.where(mask, main, 0.0) + longest, axis=1)


def parallel_agent_rewards(
  parallel: ArrayLike,
  finished: ArrayLike,
  outcome: ArrayLike,
  *,
  parallel_weight: float,
  finish_weight: float,
) -> Array:
  """Outcome plus bonuses for starting sub-agents and for their finishing.

  r = λ₁ r_parallel + λ₂ r_finish + r_outcome

  Both weights are annealed to 0, so that in the end the outcome counts alone.

  Reference: https://arxiv.org/abs/2602.02276 (agent swarm)

  Args:
    parallel: `[B]` how much of the work ran in parallel.
    finished: `[B]` share of the sub-agents that finished.
    outcome: `[B]` outcome of each row.
    parallel_weight: λ₁.
    finish_weight: λ₂.

  Returns:
    `[B]` float32.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> one = jnp.ones(1)
    >>> print(
    ...   arl.parallel_agent_rewards(
    ...     one, one, one, parallel_weight=0.5, finish_weight=0.25
    ...   )
    ... )
    [1.75]
  """
  outcome = checks.floats("outcome", outcome, "[B]", (None,))
  parallel = checks.floats("parallel", parallel, "[B]", outcome.shape)
  finished = checks.floats("finished", finished, "[B]", outcome.shape)
  return parallel_weight * parallel + finish_weight * finished + outcome
