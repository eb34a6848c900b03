"""Scores of single turns by rules: did this turn help.

A rule gives a turn a number in [0, 1], or None where it has nothing to say.
"""

from collections.abc import Callable, Mapping
import math

from arl_jax.episode import Episode
from arl_jax.rewards import efficiency
from arl_jax.rewards.compose import TurnReward

# `(episode, index of the turn)` to a number in [0, 1] or None.
Rule = Callable[[Episode, int], float | None]


def valid_call(episode: Episode, index: int) -> float | None:
  """Share of the turn's calls that worked.

  A turn without a call is worth 1 if it is the answer, else 0.
  """
  turn = episode.turns[index]
  if turn.num_tool_calls:
    return 1.0 - turn.num_tool_errors / turn.num_tool_calls
  is_last = index == len(episode.turns) - 1
  return float(is_last and efficiency.answered(episode))


def new_information(episode: Episode, index: int) -> float | None:
  """1 if the turn was answered with something not seen before, else 0.

  Observations are compared with each other as a whole, and not read.
  """
  found = episode.turns[index].observations
  if not found:
    return None
  before = [turn.observations for turn in episode.turns[:index]]
  return float(found not in before)


def no_repetition(episode: Episode, index: int) -> float | None:
  """0 if the same words had the same answer before in the episode, else 1."""
  done = [
    (" ".join(turn.action.split()), turn.observations)
    for turn in episode.turns[: index + 1]
  ]
  return float(done[index] not in done[:index])


def progress(episode: Episode, index: int) -> float | None:
  """1 if the turn led to a state that the episode had not been in, else 0.

  None for the first turn, whose state is named after the prompt and not after
  the environment's; for the last, whose next state nobody names; and where
  the environment names no states.
  """
  states = [turn.state_key for turn in episode.turns[: index + 2]]
  if index == 0 or len(states) < index + 2 or states[-1] is None:
    return None
  return float(states[-1] not in states[:-1])


RULES: Mapping[str, Rule] = {
  "valid_call": valid_call,
  "new_information": new_information,
  "no_repetition": no_repetition,
  "progress": progress,
}


def rule_scores(
  weights: Mapping[str, float] | None = None,
  *,
  rules: Mapping[str, Rule] = RULES,
) -> TurnReward:
  """Scores each turn by the weighted mean of the rules that apply to it.

  Args:
    weights: of the rules by name; None weighs all the same.
    rules: the functions.

  Returns:
    A reward of K numbers in [0, 1]; 0 for a turn that no rule applies to.

  Raises:
    ValueError: on an unknown rule, or a weight that is not above 0.
  """
  chosen = dict.fromkeys(rules, 1.0) if weights is None else dict(weights)
  for name, weight in chosen.items():
    if name not in rules:
      raise ValueError(
        f"weights names {name!r}; expected some of {sorted(rules)}"
      )
    if not (weight > 0 and math.isfinite(weight)):
      raise ValueError(
        f"weights has {weight} for {name!r}; expected a number above 0"
      )

  def score(episode: Episode, index: int) -> float:
    found = {name: rules[name](episode, index) for name in chosen}
    applied = {n: value for n, value in found.items() if value is not None}
    total = sum(chosen[name] for name in applied)
    gained = sum(chosen[name] * value for name, value in applied.items())
    return gained / total if total else 0.0

  def scores(episode: Episode) -> tuple[float, ...]:
    return tuple(score(episode, index) for index in range(len(episode.turns)))

  return scores


def turn_verdicts(
  *,
  good: float = 0.3,
  bad: float = -0.3,
  right: float = 1.0,
  wrong: float = -0.5,
) -> TurnReward:
  """Pays each turn for its calls, and the last for the outcome.

  Args:
    good: of a turn with calls that all worked.
    bad: of a turn with a failed call, and of one without any that is not the
      answer.
    right: of the last turn, if the episode succeeded.
    wrong: of the last turn otherwise.
  """

  def verdicts(episode: Episode) -> tuple[float, ...]:
    last = len(episode.turns) - 1
    return tuple(
      (right if episode.success else wrong)
      if index == last
      else (good if valid_call(episode, index) == 1.0 else bad)
      for index in range(last + 1)
    )

  return verdicts
