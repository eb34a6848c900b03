"""Rewards that weigh completion, process and efficiency."""

from arl_jax.episode import Episode
from arl_jax.rewards import efficiency, milestones, process
from arl_jax.rewards.compose import Reward, number
from arl_jax.rewards.outcome import success


def effective_calls(episode: Episode) -> float:
  """Share of tool call attempts that worked; 0 without any."""
  calls = efficiency.num_calls(episode)
  return 1.0 - efficiency.num_errors(episode) / calls if calls else 0.0


def coherence(episode: Episode) -> float:
  """Share of turns that do not repeat an earlier one; 0 without turns."""
  kept = [
    process.no_repetition(episode, k) or 0.0 for k in range(len(episode.turns))
  ]
  return sum(kept) / len(kept) if kept else 0.0


def recovery(episode: Episode) -> float:
  """Share of the failed turns that a working call followed; 1 without any."""
  worked = [milestones.call_worked(turn) for turn in episode.turns]
  recovered = [
    any(worked[k + 1 :])
    for k, turn in enumerate(episode.turns)
    if turn.num_tool_errors
  ]
  return sum(recovered) / len(recovered) if recovered else 1.0


def process_quality(
  *,
  effective_weight: float = 0.4,
  coherence_weight: float = 0.3,
  recovery_weight: float = 0.3,
) -> Reward:
  """How an episode went, whatever came of it.

  Args:
    effective_weight: of `effective_calls`.
    coherence_weight: of `coherence`.
    recovery_weight: of `recovery`.
  """

  def value(episode: Episode) -> float:
    return (
      effective_weight * effective_calls(episode)
      + coherence_weight * coherence(episode)
      + recovery_weight * recovery(episode)
    )

  return value


def three_axes(
  *,
  completion_weight: float = 0.5,
  process_weight: float = 0.3,
  efficiency_weight: float = 0.2,
  max_turns: int = 10,
  completion: Reward = success,
) -> Reward:
  """Completion, process and efficiency in one number.

  R = 0.5 completion + 0.3 process + 0.2 (1 - T / max_turns)

  Args:
    completion_weight: of the outcome.
    process_weight: of `process_quality`.
    efficiency_weight: of the turns that were left over.
    max_turns: turns at which nothing is left over.
    completion: the outcome, in [0, 1].
  """
  quality = process_quality()
  saved = efficiency.saved_turns(max_turns=max_turns)

  def value(episode: Episode) -> float:
    return (
      completion_weight * number(completion, episode)
      + process_weight * number(quality, episode)
      + efficiency_weight * number(saved, episode)
    )

  return value
