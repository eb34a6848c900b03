"""Hindsight: a failed episode becomes a success at what it did achieve."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses

from arl_jax.episode import Task
from arl_jax.rewards.compose import Reward
from arl_jax.synthesis.replay import MakeEnvironment, Played, play, recorded
from arl_jax.synthesis.scoring import (
  NO_REWARDS,
  SUCCESS_ALONE,
  played_reward,
)
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode

SOURCE = "hindsight"
TAG = "relabelled"
# A failed episode to the tasks that it may have solved, the likest first.
RelabelFn = Callable[[SyntheticEpisode], Iterable[Task]]


async def hindsight_relabel(
  episode: SyntheticEpisode,
  relabel: RelabelFn,
  *,
  make_environment: MakeEnvironment,
  accept: Callable[[Played], bool] = lambda played: played.success,
  reward_weights: Mapping[str, float] = SUCCESS_ALONE,
  reward_fns: Mapping[str, Reward] = NO_REWARDS,
) -> SyntheticEpisode | None:
  """Gives a failed episode the task that it solved.

  Its actions are played again under each candidate, and the environment judges
  them; what they read is what they read there.

  Args:
    episode: failed.
    relabel: names the candidates.
    make_environment: makes a fresh environment.
    accept: of the replay; by default that it is a success.
    reward_weights: weight of each reward component.
    reward_fns: further components, see `scoring.played_reward`.

  Returns:
    The episode of the first candidate that is accepted, None if none is.
  """
  for task in relabel(episode):
    played = await play(make_environment, task, recorded(episode.actions))
    # An episode that ends sooner would lose actions.
    whole = len(played.turns) == len(episode.turns)
    if whole and played.success and accept(played):
      return SyntheticEpisode(
        task=task,
        source=SOURCE,
        turns=tuple(
          dataclasses.replace(turn, trained=old.trained)
          for turn, old in zip(played.turns, episode.turns, strict=True)
        ),
        success=True,
        reward=played_reward(played, reward_weights, reward_fns),
        tags=(*episode.tags, TAG),
      )
  return None


async def relabel_failures(
  episodes: Sequence[SyntheticEpisode],
  relabel: RelabelFn,
  *,
  make_environment: MakeEnvironment,
  accept: Callable[[Played], bool] = lambda played: played.success,
  reward_weights: Mapping[str, float] = SUCCESS_ALONE,
  reward_fns: Mapping[str, Reward] = NO_REWARDS,
) -> tuple[list[SyntheticEpisode], dict[str, int]]:
  """Relabels the failed episodes among some.

  Returns:
    The relabelled ones, and the counts `given`, `succeeded` (left out, as they
    need no other task), `kept`, and `achieved_nothing`.
  """
  counts = {"given": 0, "succeeded": 0, "kept": 0, "achieved_nothing": 0}
  kept: list[SyntheticEpisode] = []
  for episode in episodes:
    counts["given"] += 1
    if episode.success:
      counts["succeeded"] += 1
      continue
    found = await hindsight_relabel(
      episode,
      relabel,
      make_environment=make_environment,
      accept=accept,
      reward_weights=reward_weights,
      reward_fns=reward_fns,
    )
    counts["achieved_nothing" if found is None else "kept"] += 1
    if found is not None:
      kept.append(found)
  return kept, counts
