"""Runs many episodes at once: a group of one task, or a list of tasks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import logging
import math
import time
import traceback

from arl_jax.actors import seeds
from arl_jax.actors.policy import Policy, SamplingParams
from arl_jax.actors.rollout import Limits, run_episode
from arl_jax.envs.environment import Environment
from arl_jax.envs.guarded_call import describe_error
from arl_jax.episode import Episode, EpisodeStatus, Group, Task
from arl_jax.rewards.compose import Reward, add_rewards
from arl_jax.text.chat import ChatFormat

# Time for a cancelled episode to end; cleaning up is all that it has to do.
CANCEL_GRACE_SECONDS = 5.0

_LOGGER = logging.getLogger(__name__)
# Cancelled episodes that have not ended yet: the event loop's own references
# are weak, and what nobody refers to may vanish before it has cleaned up.
_ENDING: set[asyncio.Task[Episode]] = set()


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
    reward_fns: further components, as functions of an episode that finished.
      They run on the event loop, so none may wait; what one raises fails its
      episode alone.
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
  reward_fns: Mapping[str, Reward] = dataclasses.field(default_factory=dict)
  seed: int = 0
  name: str = "train"

  async def run(
    self, task: Task, *, ordinal: int, member: int, attempt: int = 0
  ) -> Episode:
    """Runs one member of the group at `ordinal`.

    Args:
      task: what is asked.
      ordinal: position of the task in the stream of tasks.
      member: index within the group.
      attempt: times that this group was begun before. It names the session
        and changes no draw: of an earlier one, something may still be alive.
    """
    try:
      environment = self.make_environment()
    except (Exception, SystemExit) as error:
      return _unscored_episode(
        task,
        member,
        EpisodeStatus.FAILED,
        error=_describe(error, "make_environment"),
      )
    again = f"/attempt-{attempt}" if attempt else ""
    episode = await run_episode(
      self.policy,
      environment,
      task,
      member=member,
      chat=self.chat,
      limits=self.limits,
      sampling=self.sampling,
      reward_weights=self.reward_weights,
      seed=seeds.episode_seed(self.seed, ordinal, member),
      session=f"{self.name}/{ordinal}/{member}{again}",
    )
    if not episode.status.finished:
      return episode
    try:
      return add_rewards(episode, self.reward_fns, self.reward_weights)
    except Exception as error:
      return dataclasses.replace(
        episode,
        status=EpisodeStatus.FAILED,
        reward_components={},
        error=_describe(error, "a reward"),
      )


async def run_group(
  actor: Actor,
  task: Task,
  *,
  ordinal: int,
  group_size: int,
  timeout_seconds: float = math.inf,
  attempt: int = 0,
) -> Group:
  """Runs the episodes of one task concurrently.

  Every member has an environment and a seed of its own. The group is complete
  when all have ended, and each of them ends: by a limit, if by nothing else.
  A member that still runs at the group's limit is cancelled, and counts as one
  that did not finish; so does a member that somebody else cancelled.

  Args:
    actor: what the episodes share.
    task: what is asked.
    ordinal: position of the task in the stream of tasks.
    group_size: G, the number of members.
    timeout_seconds: time for the whole group.
    attempt: times that this group was begun before.

  Returns:
    The group with G episodes in the order of their members.

  Raises:
    ValueError: if `group_size` or `timeout_seconds` is out of range.
    Exception: the first bug of a member, after the others were cancelled.
  """
  if group_size < 1:
    raise ValueError(f"group_size is {group_size}; expected 1 or more")
  if not timeout_seconds > 0:
    raise ValueError(
      f"timeout_seconds is {timeout_seconds}; expected more than 0"
    )
  episodes = await _run_members(
    actor,
    task,
    ordinal=ordinal,
    members=range(group_size),
    timeout_seconds=timeout_seconds,
    attempt=attempt,
  )
  return Group(ordinal=ordinal, task=task, episodes=episodes)


async def run_tasks(
  actor: Actor,
  tasks: Sequence[Task],
  *,
  max_concurrent: int,
  samples_per_task: int = 1,
  timeout_seconds: float = math.inf,
  on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
  """Runs a list of tasks, for evaluation or to collect data.

  It has a bound of its own and takes nothing from the gate of training.

  Args:
    actor: what the episodes share.
    tasks: what is asked.
    max_concurrent: episodes that run at the same time.
    samples_per_task: episodes of each task.
    timeout_seconds: time for one episode, also for one that ignores its own
      limit.
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
        actor,
        tasks[ordinal],
        ordinal=ordinal,
        members=(member,),
        timeout_seconds=timeout_seconds,
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
  actor: Actor,
  task: Task,
  *,
  ordinal: int,
  members: Sequence[int],
  timeout_seconds: float = math.inf,
  attempt: int = 0,
) -> tuple[Episode, ...]:
  """Runs some members of a group, each in a task of its own.

  No TaskGroup: it would wait for ever for a member that ignores the end.
  """
  started = time.perf_counter()
  running = [
    asyncio.create_task(
      actor.run(task, ordinal=ordinal, member=member, attempt=attempt),
      name=f"{actor.name}/{ordinal}/{member}",
    )
    for member in members
  ]
  bugs: list[BaseException] = []  # in the order in which they came up

  def note(done: asyncio.Task[Episode]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
      bugs.append(error)

  for episode in running:
    episode.add_done_callback(note)
  late: list[asyncio.Task[Episode]] = []
  try:
    await asyncio.wait(
      running,
      timeout=None if math.isinf(timeout_seconds) else timeout_seconds,
      return_when=asyncio.FIRST_EXCEPTION,
    )
  finally:
    late += [episode for episode in running if not episode.done()]
    await _cancel(late)
  if bugs:
    raise bugs[0]
  # The group was not cancelled, or we would not be here. A member that was is
  # lost alone, and the group goes on without it.
  seconds = time.perf_counter() - started
  episodes: list[Episode] = []
  for member, episode in zip(members, running, strict=True):
    if episode.done() and not episode.cancelled():
      episodes.append(episode.result())
      continue
    status = EpisodeStatus.FAILED
    error = "the episode was cancelled, though its group was not"
    if episode in late:
      status = EpisodeStatus.GROUP_TIMEOUT
      error = (
        "still running when the group's timeout_seconds of "
        f"{timeout_seconds:g} had passed"
      )
    episodes.append(
      _unscored_episode(task, member, status, error=error, seconds=seconds)
    )
  return tuple(episodes)


async def _cancel(episodes: Sequence[asyncio.Task[Episode]]) -> None:
  """Cancels episodes, and gives them a while to end."""
  for episode in episodes:
    _ENDING.add(episode)
    episode.add_done_callback(_ENDING.discard)
    episode.cancel()
  if not episodes:
    return
  _, deaf = await asyncio.wait(episodes, timeout=CANCEL_GRACE_SECONDS)
  for episode in deaf:
    _LOGGER.warning(
      "episode %s ignores that it was cancelled, and is left behind: it had "
      "%g seconds to end",
      episode.get_name(),
      CANCEL_GRACE_SECONDS,
    )


def _unscored_episode(
  task: Task,
  member: int,
  status: EpisodeStatus,
  *,
  error: str,
  seconds: float = 0.0,
) -> Episode:
  return Episode(
    task=task,
    member=member,
    status=status,
    rows=(),
    turns=(),
    error=error,
    seconds=seconds,
  )


def _describe(error: BaseException, what: str) -> str:
  trace = "".join(traceback.format_exception(error))
  return f"{what} raised {describe_error(error)}\n{trace}"
