"""Rewards that a configuration can name, with their usual constants."""

from collections.abc import Collection, Iterable, Mapping

from arl_jax.rewards import axes, efficiency, milestones, process, shaping
from arl_jax.rewards.compose import Reward

REWARDS: Mapping[str, Reward] = {
  "call_milestone": milestones.milestone(milestones.call_worked),
  "coherence": axes.coherence,
  "effective_calls": axes.effective_calls,
  "efficient_outcome": efficiency.efficient_outcome(),
  "format_penalty": shaping.format_penalty,
  "process_quality": axes.process_quality(),
  "recovery": axes.recovery,
  "rule_scores": process.rule_scores(),
  "saved_turns": efficiency.saved_turns(),
  "search_or_submit": efficiency.search_or_submit(),
  "search_outcome": efficiency.search_outcome(),
  "three_axes": axes.three_axes(),
  "tool_progress": milestones.tool_progress(),
  "turn_cost": shaping.turn_cost,
  "turn_verdicts": process.turn_verdicts(),
}


def select_rewards(
  names: Iterable[str], *, given: Collection[str]
) -> dict[str, Reward]:
  """Returns the rewards that an environment does not give itself.

  Args:
    names: of components that have a weight.
    given: names of the components of the environment.

  Returns:
    Functions of `REWARDS` by name; empty if the environment gives all.

  Raises:
    ValueError: on a name that neither has.
  """
  missing = [name for name in names if name not in given]
  unknown = sorted(name for name in missing if name not in REWARDS)
  if unknown:
    raise ValueError(
      f"reward_weights names {unknown}; the environment gives"
      f" {', '.join(sorted(given))}, and of any episode there are"
      f" {', '.join(REWARDS)}"
    )
  return {name: REWARDS[name] for name in missing}
