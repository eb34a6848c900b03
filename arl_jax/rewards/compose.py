"""Joins rewards of an episode by weights, each under a name of its own.

A reward is a plain function of an `Episode`. It reads what the policy wrote
(`Turn.action`), how its calls went (`num_tool_calls`, `num_tool_errors`), and
what the environment judged (`reward_components`). It reads observations only
if that is what it is for: text of a tool is not the policy's.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import math
from typing import NamedTuple

from arl_jax.episode import Episode

# One number, paid on the last turn, or one number for each turn.
Reward = Callable[[Episode], float | Iterable[float]]
TurnReward = Callable[[Episode], tuple[float, ...]]
# Sums of rewards are float32 on the device.
_MAX_REWARD = 1e30


class Scored(NamedTuple):
  """What an episode is worth.

  Attributes:
    total: the weighted sum of the components.
    components: of each reward the sum over the turns, before weights.
  """

  total: float
  components: dict[str, float]


def component(name: str, *, default: float | None = None) -> Reward:
  """Reads a component that the environment gave.

  Args:
    name: of the component.
    default: what an episode without it is worth; None makes that an error.

  Returns:
    A function that raises ValueError where the component is missing.
  """

  def read(episode: Episode) -> float:
    found = episode.reward_components.get(name, default)
    if found is None:
      raise ValueError(
        f"the environment gave no component {name!r}; it gave"
        f" {sorted(episode.reward_components)}. Correct the name or give a"
        " default"
      )
    return found

  return read


def number(reward: Reward, episode: Episode) -> float:
  """What a reward pays over the whole episode."""
  found = reward(episode)
  return float(sum(found) if isinstance(found, Iterable) else found)


def turn_values(
  name: str, reward: Reward, episode: Episode
) -> tuple[float, ...]:
  """What a reward pays on each turn; one number for an episode without any.

  Args:
    name: of the reward, for errors.
    reward: what pays.
    episode: what it pays for.

  Raises:
    ValueError: if it pays what is no finite number, or not once for each turn.
  """
  found = reward(episode)
  num_turns = len(episode.turns)
  is_each = isinstance(found, Iterable)
  try:
    values = tuple(map(float, found)) if is_each else (float(found),)
  except (TypeError, ValueError):
    values = (math.nan,)
  if not all(abs(value) <= _MAX_REWARD for value in values):
    raise ValueError(
      f"reward {name!r} gave {found!r} for task {episode.task.task_id!r};"
      " expected a finite number, or one for each turn"
    )
  if is_each and len(values) != num_turns:
    raise ValueError(
      f"reward {name!r} gave {len(values)} numbers for an episode of"
      f" {num_turns} turns; expected one number, or one for each turn"
    )
  return values if is_each else (0.0,) * (num_turns - 1) + values


def compose(
  rewards: Mapping[str, tuple[float, Reward]],
) -> Callable[[Episode], Scored]:
  """Joins rewards into one function.

  Args:
    rewards: weight and function by name; a weight of 0 logs without paying.

  Returns:
    A function from an episode to its total and components; it raises
    ValueError where a reward pays what is no finite number.

  Raises:
    ValueError: if there are no rewards, or one is not a weight and a function.

  Example:
    >>> from arl_jax.rewards import outcome, shaping
    >>> value = compose({
    ...   "success": (1.0, outcome.success),
    ...   "turn_cost": (0.01, shaping.turn_cost),
    ... })
  """
  if not rewards:
    raise ValueError("rewards is empty; expected a weight and a function each")
  for name, entry in rewards.items():
    if (
      not isinstance(entry, tuple)
      or len(entry) != 2
      or not isinstance(entry[0], int | float)
      or not math.isfinite(entry[0])
      or not callable(entry[1])
    ):
      raise ValueError(
        f"rewards has {entry!r} for {name!r}; expected a finite weight and a"
        " function of an episode, such as (1.0, outcome.success)"
      )

  def score(episode: Episode) -> Scored:
    components = {
      name: float(sum(turn_values(name, reward, episode)))
      for name, (_, reward) in rewards.items()
    }
    total = sum(rewards[name][0] * value for name, value in components.items())
    return Scored(float(total), components)

  return score


def add_rewards(
  episode: Episode,
  rewards: Mapping[str, Reward],
  weights: Mapping[str, float],
) -> Episode:
  """Pays an episode rewards on top of what its environment gave.

  Each becomes a component under its name, as if the environment had given it,
  so that `total_reward` stays the weighted sum of `reward_components`. All of
  them see the episode as it was.

  Args:
    episode: that finished.
    rewards: functions by name.
    weights: of components by name; one without a weight is logged alone.

  Raises:
    ValueError: if the environment gave a component of the same name, or a
      reward pays what is no finite number.
  """
  paid = [0.0] * len(episode.turns)
  components = dict(episode.reward_components)
  for name, reward in rewards.items():
    if name in components:
      raise ValueError(
        f"reward {name!r} has the name of a component of the environment,"
        f" which gave {sorted(episode.reward_components)}; rename it"
      )
    values = turn_values(name, reward, episode)
    components[name] = float(sum(values))
    weight = weights.get(name, 0.0)
    # An episode without turns has nobody to pay.
    paid = [p + weight * v for p, v in zip(paid, values, strict=False)]
  turns = tuple(
    dataclasses.replace(turn, reward=turn.reward + value)
    for turn, value in zip(episode.turns, paid, strict=True)
  )
  return dataclasses.replace(episode, turns=turns, reward_components=components)
