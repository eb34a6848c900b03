"""Success less what it cost: turns, calls, searches, mistakes."""

from collections.abc import Callable

from arl_jax.episode import Episode, EpisodeStatus
from arl_jax.rewards import search
from arl_jax.rewards.compose import Reward, number
from arl_jax.rewards.outcome import success


def num_calls(episode: Episode) -> int:
  """Attempts at a tool call, well-formed or not."""
  return sum(turn.num_tool_calls for turn in episode.turns)


def num_errors(episode: Episode) -> int:
  """Attempts at a tool call that failed."""
  return sum(turn.num_tool_errors for turn in episode.turns)


def answered(episode: Episode) -> bool:
  """True if the policy ended the task itself, with an answer."""
  return episode.status == EpisodeStatus.TERMINATED


def saved_turns(*, max_turns: int = 10) -> Reward:
  """Share of the turns that were left over: 1 - T / max_turns, at least 0."""
  _check_positive("max_turns", max_turns)

  def value(episode: Episode) -> float:
    return max(0.0, 1.0 - len(episode.turns) / max_turns)

  return value


def efficient_outcome(
  *,
  turn_weight: float = 0.1,
  max_turns: int = 10,
  format_weight: float = 0.5,
  outcome: Reward = success,
) -> Reward:
  """Outcome less the turns that it took and a fine for any failed call.

  R = R_task - turn_weight · T / max_turns - format_weight · 1[failed call]

  Args:
    turn_weight: cost of `max_turns` turns.
    max_turns: the turns that the weight is for.
    format_weight: the fine, once however many calls failed.
    outcome: R_task.
  """
  _check_positive("max_turns", max_turns)

  def value(episode: Episode) -> float:
    turns = turn_weight * len(episode.turns) / max_turns
    fine = format_weight if num_errors(episode) else 0.0
    return number(outcome, episode) - turns - fine

  return value


def search_outcome(
  *,
  cost: float = 0.05,
  max_searches: int = 5,
  num_searches: Callable[[Episode], int] = num_calls,
  outcome: Reward = success,
) -> Reward:
  """Outcome less a cost for each search.

  R = 1[correct] - cost · min(n, max_searches)

  Args:
    cost: of one search.
    max_searches: searches beyond it are free.
    num_searches: n; all tool calls by default.
    outcome: 1 if the answer is right.
  """

  def value(episode: Episode) -> float:
    spent = search.search_cost(
      num_searches(episode), cost=cost, max_searches=max_searches
    )
    return number(outcome, episode) + spent

  return value


def search_or_submit(
  *,
  bonus: float = 0.05,
  max_searches: int = 3,
  penalty: float = -0.1,
  num_searches: Callable[[Episode], int] = num_calls,
) -> Reward:
  """1 for success, a little for having tried, a penalty for no answer.

  R = 1 if right; else penalty if nothing was submitted; else
  bonus · min(n, max_searches)

  Args:
    bonus: of one search in an episode that answered wrongly.
    max_searches: searches beyond it earn nothing.
    penalty: of an episode without an answer.
    num_searches: n; all tool calls by default.
  """

  def value(episode: Episode) -> float:
    if episode.success:
      return 1.0
    if not answered(episode):
      return penalty
    return bonus * min(num_searches(episode), max_searches)

  return value


def _check_positive(name: str, value: float) -> None:
  if not value > 0:
    raise ValueError(f"{name} is {value}; expected more than 0")
