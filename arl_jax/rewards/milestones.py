"""Rewards for getting somewhere, paid once.

A milestone is a condition on a turn. It is paid on the first turn on which it
holds, so that no cycle can collect it again.
"""

from collections.abc import Callable
import re

from arl_jax.episode import Episode, Turn
from arl_jax.rewards import efficiency
from arl_jax.rewards.compose import Reward, TurnReward

Condition = Callable[[Turn], bool]


def called(turn: Turn) -> bool:
  """True if the turn attempted a tool call."""
  return turn.num_tool_calls > 0


def call_worked(turn: Turn) -> bool:
  """True if one of the turn's calls worked."""
  return turn.num_tool_calls > turn.num_tool_errors


def wrote(pattern: str) -> Condition:
  """Whether the policy wrote text that matches a regular expression."""
  compiled = re.compile(pattern)
  return lambda turn: compiled.search(turn.action) is not None


def was_shown(pattern: str) -> Condition:
  """Whether a tool showed text that matches a regular expression.

  This reads observations. Use it only for tools that do not repeat what they
  are told: a policy that can print the pattern can pay itself.
  """
  compiled = re.compile(pattern)
  return lambda turn: any(
    compiled.search(message.content) for message in turn.observations
  )


def first_turn(condition: Condition, episode: Episode) -> int | None:
  """The first turn on which a condition holds, None if there is none."""
  return next(
    (k for k, turn in enumerate(episode.turns) if condition(turn)), None
  )


def milestone(condition: Condition) -> TurnReward:
  """Pays 1 on the first turn on which a condition holds.

  This changes what is best: an episode that passes the milestone and fails
  earns more than one that fails at once.
  """

  def value(episode: Episode) -> tuple[float, ...]:
    reached = first_turn(condition, episode)
    return tuple(float(k == reached) for k in range(len(episode.turns)))

  return value


def milestone_potential(
  condition: Condition, *, discount: float = 1.0
) -> TurnReward:
  """Pays a milestone so that what is best does not change.

  F_k = γ Φ_{k+1} - Φ_k, where Φ_k is 1 if the milestone was passed before turn
  k, and 0 at the end. What is paid early is taken back at the end, so every
  episode's discounted sum is 0: the outcome alone decides, but turns know
  sooner. An advantage of whole episodes does not see it; one of turns does.

  Reference: Ng, Harada and Russell, "Policy invariance under reward
  transformations" (ICML 1999); Grześ, "Reward shaping in episodic
  reinforcement learning" (AAMAS 2017) for the 0 at the end.

  Args:
    condition: what is to be reached.
    discount: γ per turn, that of the advantage.

  Raises:
    ValueError: if the discount is outside [0, 1].
  """
  if not 0 <= discount <= 1:
    raise ValueError(f"discount is {discount}; expected 0 to 1")

  def value(episode: Episode) -> tuple[float, ...]:
    reached = first_turn(condition, episode)
    num_turns = len(episode.turns)

    def potential(turn: int) -> float:
      passed = reached is not None and reached < turn
      return float(passed and turn < num_turns)

    return tuple(
      discount * potential(k + 1) - potential(k) for k in range(num_turns)
    )

  return value


def tool_progress(
  *,
  call: float = 0.1,
  effective: float = 0.15,
  outcome: float = 0.5,
  turn_cost: float = 0.02,
  num_free_turns: int = 5,
) -> Reward:
  """Stages of using a tool, less the turns beyond some.

  R = max(0, call · 1[any call] + effective · 1[over half of them worked]
  + outcome · 1[success] - turn_cost · max(T - num_free_turns, 0))

  Args:
    call: of any call.
    effective: of more calls that worked than failed.
    outcome: of success.
    turn_cost: of each turn beyond the free ones.
    num_free_turns: turns that cost nothing.
  """

  def value(episode: Episode) -> float:
    calls = efficiency.num_calls(episode)
    worked = calls - efficiency.num_errors(episode)
    gained = call * (calls > 0) + effective * (2 * worked > calls)
    gained += outcome * episode.success
    extra = max(0, len(episode.turns) - num_free_turns)
    return max(0.0, gained - turn_cost * extra)

  return value
