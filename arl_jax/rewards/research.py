"""Rewards of deep research, in stages of growing demands."""

from arl_jax.episode import Episode
from arl_jax.rewards import axes, efficiency
from arl_jax.rewards.compose import Reward, component, number
from arl_jax.rewards.outcome import success


def staged_research(
  stage: int,
  *,
  max_turns: int = 10,
  accuracy: Reward = success,
  citation: Reward | None = None,
  cross_validation: Reward | None = None,
) -> Reward:
  """The reward of a stage of training: first right, then tidy, then sourced.

  1. accuracy
  2. accuracy + 0.2 · share of calls that worked - 0.1 · T / max_turns
  3. 0.4 accuracy + 0.3 citation + 0.2 cross-validation
     + 0.1 (1 - T / max_turns)

  Args:
    stage: 1, 2 or 3.
    max_turns: of the costs of turns.
    accuracy: in [0, 1].
    citation: in [0, 1]; the component `support` if None.
    cross_validation: in [0, 1], whether several sources agree; stage 3 has no
      default for it.

  Raises:
    ValueError: on another stage, or without cross-validation in stage 3.
  """
  if stage not in (1, 2, 3):
    raise ValueError(f"stage is {stage!r}; expected 1, 2 or 3")
  if stage == 1:
    return accuracy
  if stage == 2:

    def tidy(episode: Episode) -> float:
      calls = 0.2 * axes.effective_calls(episode)
      turns = 0.1 * len(episode.turns) / max_turns
      return number(accuracy, episode) + calls - turns

    return tidy
  if cross_validation is None:
    raise ValueError(
      "stage 3 needs cross_validation, a function of an episode that says"
      " whether several sources agree"
    )
  parts = (
    (0.4, accuracy),
    (0.3, citation or component("support")),
    (0.2, cross_validation),
    (0.1, efficiency.saved_turns(max_turns=max_turns)),
  )

  def sourced(episode: Episode) -> float:
    return sum(weight * number(part, episode) for weight, part in parts)

  return sourced


def annealed(
  process: Reward,
  *,
  num_steps: int,
  start: float = 0.5,
  outcome: Reward = success,
) -> Reward:
  """Process at first, outcome in the end.

  R = α process + (1 - α) outcome, α = start · (1 - v / num_steps), at least 0,
  where v is the version of the weights that sampled the episode's first token.

  Reference: Atom-Searcher (arXiv:2508.12800).

  Args:
    process: in [0, 1].
    num_steps: steps after which the outcome is alone.
    start: α at the first step.
    outcome: in [0, 1].

  Raises:
    ValueError: if `num_steps` or `start` is out of range.
  """
  if num_steps < 1:
    raise ValueError(f"num_steps is {num_steps}; expected 1 or more")
  if not 0 <= start <= 1:
    raise ValueError(f"start is {start}; expected 0 to 1")

  def value(episode: Episode) -> float:
    done = min(1.0, first_version(episode) / num_steps)
    share = start * (1.0 - done)
    return share * number(process, episode) + (1.0 - share) * number(
      outcome, episode
    )

  return value


def first_version(episode: Episode) -> int:
  """Version of the weights that sampled the first token, 0 without any."""
  for row in episode.rows:
    if row.action_mask.any():
      return int(row.policy_versions[row.action_mask][0])
  return 0
