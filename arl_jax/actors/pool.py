"""Runs many episodes at once: a group of one task, or a list of tasks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
import dataclasses

from arl_jax.actors import seeds
from arl_jax.actors.policy import Policy, SamplingParams
from arl_jax.actors.rollout import Limits, run_episode
from arl_jax.envs.environment import Environment
from arl_jax.episode import Episode, EpisodeStatus, Group, Task
from arl_jax.text.chat import ChatFormat


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
  """All that the episodes of a run share; `run_episode` says what each is.

  Attributes:
    policy: samples the actions.
    make_environment: makes a fresh environment; called once per episode.
    chat: turns messages into ids.
    limits: what ends an episode early.
    sampling: how tokens are drawn.
    reward_weights: weight of each reward component by name.
    seed: of the run; every episode derives its own from it.
    name: begins the name of every session, so that two actors can share an
      engine.
  """

  policy: Policy
  make_environment: Callable[[], Environment]
  chat: ChatFormat
  limits: Limits
  sampling: SamplingParams
  reward_weights: Mapping[str, float]
  seed: int = 0
  name: str = "train"

  async def run(self, task: Task, *, ordinal: int, member: int) -> Episode:
    """Runs one member of the group at `ordinal`."""
    return await run_episode(
      self.policy,
      self.make_environment(),
      task,
      member=member,
      chat=self.chat,
      limits=self.limits,
      sampling=self.sampling,
      reward_weights=self.reward_weights,
      seed=seeds.episode_seed(self.seed, ordinal, member),
      session=f"{self.name}/{ordinal}/{member}",
    )


async def run_group(
  actor: Actor, task: Task, *, ordinal: int, group_size: int
) -> Group:
  """Runs the episodes of one task concurrently.

  Every member has an environment and a seed of its own. The group is complete
  when all have ended, and each of them ends: by a limit, if by nothing else.

  Args:
    actor: what the episodes share.
    task: what is asked.
    ordinal: position of the task in the stream of tasks.
    group_size: G, the number of members.

  Returns:
    The group with G episodes in the order of their members.

  Raises:
    Exception: the first bug of a member, after the others were cancelled.
  """
  episodes = await _run_members(
    actor, task, ordinal=ordinal, members=range(group_size)
  )
  return Group(ordinal=ordinal, task=task, episodes=episodes)


async def run_tasks(
  actor: Actor,
  tasks: Sequence[Task],
  *,
  max_concurrent: int,
  samples_per_task: int = 1,
  on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
  """Runs a list of tasks, for evaluation or to collect data.

  It has a bound of its own and takes nothing from the gate of training.

  Args:
    actor: what the episodes share.
    tasks: what is asked.
    max_concurrent: episodes that run at the same time.
    samples_per_task: episodes of each task.
    on_episode: called with each episode as it ends, in that order.

  Returns:
    All episodes, those that failed included, task by task:
    `samples_per_task` of the first, then of the second.
  """
  if max_concurrent < 1:
    raise ValueError(f"max_concurrent is {max_concurrent}; expected 1 or more")
  jobs = [
    (ordinal, member)
    for ordinal in range(len(tasks))
    for member in range(samples_per_task)
  ]
  episodes: dict[int, Episode] = {}
  pending = iter(enumerate(jobs))

  async def work() -> None:
    for index, (ordinal, member) in pending:
      (episodes[index],) = await _run_members(
        actor, tasks[ordinal], ordinal=ordinal, members=(member,)
      )
      if on_episode is not None:
        on_episode(episodes[index])

  try:
    async with asyncio.TaskGroup() as workers:
      for _ in range(min(max_concurrent, len(jobs))):
        workers.create_task(work())
  except BaseExceptionGroup as errors:
    raise first_cause(errors) from errors
  return [episodes[index] for index in range(len(jobs))]


def first_cause(errors: BaseException) -> BaseException:
  """Returns the first error inside nested groups of errors."""
  while isinstance(errors, BaseExceptionGroup):
    errors = errors.exceptions[0]
  return errors


async def _run_members(
  actor: Actor, task: Task, *, ordinal: int, members: Sequence[int]
) -> tuple[Episode, ...]:
  """Runs some members of a group, each in a task of its own."""
  try:
    async with asyncio.TaskGroup() as tasks:
      running = [
        tasks.create_task(actor.run(task, ordinal=ordinal, member=member))
        for member in members
      ]
  except BaseExceptionGroup as errors:
    raise first_cause(errors) from errors
  # The group was not cancelled, or we would not be here. A member that was is
  # lost alone, and the group goes on without it.
  return tuple(
    _lost_episode(task, member) if done.cancelled() else done.result()
    for member, done in zip(members, running, strict=True)
  )


def _lost_episode(task: Task, member: int) -> Episode:
  return Episode(
    task=task,
    member=member,
    status=EpisodeStatus.FAILED,
    rows=(),
    turns=(),
    error="the episode was cancelled, though its group was not",
  )
