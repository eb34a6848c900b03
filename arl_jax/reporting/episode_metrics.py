"""What episodes look like as numbers, by the names that the field uses."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from arl_jax.episode import Episode, Group

# Ages of tokens that are counted one by one; the last takes the older ones.
_MAX_AGE = 4
# Tokens of the n-grams whose repetition is measured.
_NGRAM = 4


def episode_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
  """Summarises episodes; one that failed counts as a failure with reward 0.

  Args:
    episodes: at least one.

  Returns:
    Shares in [0, 1], means over episodes, lengths in tokens.
  """
  rewards = np.array([0.0 if _failed(e) else e.total_reward for e in episodes])
  lengths = np.array([e.num_action_tokens for e in episodes])
  turns = [turn for e in episodes for turn in e.turns]
  num_calls = sum(turn.num_tool_calls for turn in turns)
  num_errors = sum(turn.num_tool_errors for turn in turns)
  metrics = {
    "reward/mean": rewards.mean(),
    "reward/std": rewards.std(),
    "success": np.mean([e.success for e in episodes]),
    "num_turns/mean": np.mean([len(e.turns) for e in episodes]),
    "num_turns/max": max(len(e.turns) for e in episodes),
    "response_length/mean": lengths.mean(),
    "response_length/max": lengths.max(),
    "row_length/max": max(
      (len(row) for e in episodes for row in e.rows), default=0
    ),
    "rows_per_episode/mean": np.mean([len(e.rows) for e in episodes]),
    "rows_per_episode/max": max(len(e.rows) for e in episodes),
    "episodes/repetition": np.mean([_repetition(e) for e in episodes]),
    "truncated_fraction": np.mean([e.status.truncated for e in episodes]),
    "failed_fraction": np.mean([_failed(e) for e in episodes]),
    "tools/calls": num_calls / len(episodes),
    "tools/failure_fraction": num_errors / max(num_calls, 1),
    "tools/episodes_with_error": np.mean(
      [any(turn.num_tool_errors for turn in e.turns) for e in episodes]
    ),
  }
  for name in sorted({n for e in episodes for n in e.reward_components}):
    metrics[f"reward_component/{name}"] = np.mean(
      [e.reward_components.get(name, 0.0) for e in episodes]
    )
  return {name: float(value) for name, value in metrics.items()}


def group_metrics(groups: Sequence[Group], *, version: int) -> dict[str, float]:
  """Summarises the groups of one learner step.

  Args:
    groups: at least one.
    version: of the weights that are about to be updated.

  Returns:
    The metrics of all episodes, with the share of groups whose returns are
    all equal, of those all solved or all not, and the staleness in versions:
    how old the action tokens of finished episodes are, and the share of each
    age.
  """
  episodes = [episode for group in groups for episode in group.episodes]
  metrics = episode_metrics(episodes)
  solved = [np.mean([e.success for e in g.episodes]) for g in groups]
  flat = [
    len({e.total_reward for e in g.episodes if not _failed(e)}) <= 1
    for g in groups
  ]
  ages = np.concatenate(
    [
      version - row.policy_versions[row.action_mask]
      for episode in episodes
      if not _failed(episode)
      for row in episode.rows
    ]
    or [np.zeros(0, np.int32)]
  )
  return metrics | {
    "frac_reward_zero_std": float(np.mean(flat)),
    "groups/solved_all": float(np.mean(np.equal(solved, 1.0))),
    "groups/solved_none": float(np.mean(np.equal(solved, 0.0))),
    "staleness/mean": float(ages.mean()) if ages.size else 0.0,
    "staleness/max": float(ages.max()) if ages.size else 0.0,
    **_age_shares(ages),
  }


def _age_shares(ages: npt.NDArray[np.int32]) -> dict[str, float]:
  """Share of tokens of each age, by a fixed set of names."""
  capped = np.clip(ages, 0, _MAX_AGE)
  counts = np.bincount(capped, minlength=_MAX_AGE + 1)
  names = [f"staleness/age_{age}" for age in range(_MAX_AGE)]
  names.append(f"staleness/age_{_MAX_AGE}_or_more")
  shares = counts / max(ages.size, 1)
  return {name: float(x) for name, x in zip(names, shares, strict=True)}


def _repetition(episode: Episode) -> float:
  """Share of n-grams that its most repetitive action said before."""
  shares = [0.0]
  for row in episode.rows:
    for turn in np.unique(row.turn_ids[row.action_mask]):
      ids = row.tokens[row.turn_ids == turn].tolist()
      grams = list(zip(*(ids[i:] for i in range(_NGRAM)), strict=False))
      if grams:
        shares.append(1.0 - len(set(grams)) / len(grams))
  return max(shares)


def _failed(episode: Episode) -> bool:
  return not episode.status.finished
