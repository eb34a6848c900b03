"""Rejection sampling: play each task often, keep what a verifier accepts."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
import dataclasses
import itertools

from arl_jax.episode import Episode, Task
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode, from_episode

# `(task, ordinal, member)` to an episode.
PlayFn = Callable[[Task, int, int], Awaitable[Episode]]
SOURCE = "rejection"
COUNTS: tuple[str, ...] = (
  "played",
  "unfinished",
  "rejected",  # by the verifier
  "same_actions",  # accepted, but like another of its task
  "surplus",  # accepted, but the task had enough
  "kept",
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RejectionResult:
  """What was kept, and what became of the rest.

  Attributes:
    episodes: the kept ones, task by task.
    counts: of `COUNTS`.
    success_rates: by task id, the share of finished episodes that were
      accepted; a measure of how hard the task is for this policy.
  """

  episodes: tuple[SyntheticEpisode, ...]
  counts: dict[str, int]
  success_rates: dict[str, float]


def solved(episode: Episode) -> bool:
  """The plainest verifier: the environment's own judgment."""
  return episode.success


async def rejection_sample(
  play: PlayFn,
  tasks: Sequence[Task],
  *,
  num_samples: int,
  accept: Callable[[Episode], bool] = solved,
  max_per_task: int = 1,
  max_concurrent: int = 64,
  stop: Callable[[], Awaitable[object]] | None = None,
) -> RejectionResult:
  """Plays tasks with a policy and keeps episodes that a verifier accepts.

  Args:
    play: plays a task; `ordinal` is its position, `member` counts its samples.
      An actor's `run` does.
    tasks: what to play; their ids differ.
    num_samples: episodes of each task.
    accept: the verifier; it sees finished episodes only.
    max_per_task: most episodes kept of one task, the first that are accepted
      by the order of their members.
    max_concurrent: episodes that run at the same time.
    stop: returns when it is time to end early. Episodes that have not ended by
      then are cancelled and not counted; what was played is kept.

  Raises:
    ValueError: a number is below 1, or two tasks share an id.
  """
  for name, value in (
    ("num_samples", num_samples),
    ("max_per_task", max_per_task),
    ("max_concurrent", max_concurrent),
  ):
    if value < 1:
      raise ValueError(f"{name} is {value}; expected 1 or more")
  if len({task.task_id for task in tasks}) < len(tasks):
    raise ValueError("two tasks share a task_id; expected unique ids")
  gate = asyncio.Semaphore(max_concurrent)

  async def sample(ordinal: int, member: int) -> Episode:
    async with gate:
      return await play(tasks[ordinal], ordinal, member)

  async def end(samples: Iterable[asyncio.Task[Episode]]) -> None:
    if stop is not None:
      await stop()
      for one in samples:
        one.cancel()

  async with asyncio.TaskGroup() as group:
    running = [
      [group.create_task(sample(o, m)) for m in range(num_samples)]
      for o in range(len(tasks))
    ]
    flat = list(itertools.chain.from_iterable(running))
    ending = asyncio.create_task(end(flat))
    try:
      await asyncio.gather(*flat, return_exceptions=True)
    finally:
      ending.cancel()
  counts = {name: 0 for name in COUNTS}
  kept: list[SyntheticEpisode] = []
  rates: dict[str, float] = {}
  for task, members in zip(tasks, running, strict=True):
    episodes = [one.result() for one in members if not one.cancelled()]
    finished = [e for e in episodes if e.status.finished and e.turns]
    accepted = [e for e in finished if accept(e)]
    chosen = _first_different(accepted, max_per_task)
    same = len(accepted) - len(_first_different(accepted, len(accepted)))
    counts["played"] += len(episodes)
    counts["unfinished"] += len(episodes) - len(finished)
    counts["rejected"] += len(finished) - len(accepted)
    counts["same_actions"] += same
    counts["surplus"] += len(accepted) - same - len(chosen)
    counts["kept"] += len(chosen)
    kept += [from_episode(episode, source=SOURCE) for episode in chosen]
    if finished:
      rates[task.task_id] = len(accepted) / len(finished)
  return RejectionResult(
    episodes=tuple(kept), counts=counts, success_rates=rates
  )


def _first_different(episodes: Sequence[Episode], number: int) -> list[Episode]:
  """The first episodes whose actions differ from those before."""
  found: dict[tuple[str, ...], Episode] = {}
  for episode in episodes:
    found.setdefault(tuple(turn.action for turn in episode.turns), episode)
  return list(found.values())[:number]
