"""Keeps groups coming: admitted by the gate, run, handed to the queue."""

import asyncio
from collections.abc import Callable
import itertools
from typing import NoReturn

from arl_jax.actors.pool import Actor, first_cause, run_group
from arl_jax.actors.queue import GroupQueue
from arl_jax.actors.staleness import Outcome, StalenessGate
from arl_jax.actors.tasks import TaskSource
from arl_jax.episode import EpisodeStatus, Group


async def produce_groups(
  actor: Actor,
  source: TaskSource,
  gate: StalenessGate,
  queue: GroupQueue,
  *,
  group_size: int,
  start: int = 0,
  accept: Callable[[Group], bool] | None = None,
  max_failures: int = 16,
) -> NoReturn:
  """Runs group after group from ordinal `start` on, until it is cancelled.

  Synchronous and asynchronous training are this same loop: a gate with
  `max_staleness=0` admits one batch, and the next after the next version.

  Args:
    actor: what the episodes share.
    source: the tasks.
    gate: admits groups.
    queue: takes them.
    group_size: G, episodes per task.
    start: the first ordinal.
    accept: False for a complete group that is not to be trained on; another
      task takes its place.
    max_failures: groups that may fail one after the other. More are no bad
      luck, and the learner would wait forever.

  Raises:
    Exception: the first bug. Whoever waits for the queue gets it too.
  """
  ordinals = itertools.count(start)
  failures = _Failures(most=max_failures)

  async def work() -> None:
    while True:
      await gate.acquire()
      # No task is made in between: one that is cancelled before its first
      # step would never give its place back.
      outcome = Outcome.FAILED
      try:
        ordinal = next(ordinals)
        group = await run_group(
          actor, source.task_at(ordinal), ordinal=ordinal, group_size=group_size
        )
        verdict = _judge(group, accept)
        failures.count(group, verdict)
        if verdict is Outcome.ACCEPTED:
          await queue.put(group)
        outcome = verdict
      finally:
        gate.release(outcome)

  try:
    async with asyncio.TaskGroup() as workers:
      for _ in range(gate.max_concurrent):
        workers.create_task(work())
  except BaseException as errors:
    cause = first_cause(errors)
    queue.fail(cause)
    if cause is errors:
      raise
    raise cause from errors
  raise AssertionError("the workers never return")


def _judge(group: Group, accept: Callable[[Group], bool] | None) -> Outcome:
  """Fails a group that has nobody left to compare with."""
  usable = sum(
    episode.status is not EpisodeStatus.FAILED for episode in group.episodes
  )
  if usable < min(2, len(group.episodes)):
    return Outcome.FAILED
  if accept is not None and not accept(group):
    return Outcome.REJECTED
  return Outcome.ACCEPTED


class _Failures:
  """Counts groups that failed one after the other."""

  def __init__(self, *, most: int):
    self._most = most
    self._in_a_row = 0

  def count(self, group: Group, verdict: Outcome) -> None:
    self._in_a_row = self._in_a_row + 1 if verdict is Outcome.FAILED else 0
    if self._in_a_row > self._most:
      errors = [e.error for e in group.episodes if e.error]
      raise RuntimeError(
        f"{self._in_a_row} groups failed one after the other; the last error "
        f"is: {errors[-1]}"
      )
