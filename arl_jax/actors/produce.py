"""Keeps groups coming: admitted by the gate, run, handed to the queue."""

import asyncio
from collections.abc import Callable
import math
from typing import NoReturn

from arl_jax.actors.failures import FailureBudget
from arl_jax.actors.ledger import TaskLedger
from arl_jax.actors.pool import Actor, first_cause, run_group
from arl_jax.actors.queue import GroupQueue
from arl_jax.actors.staleness import Outcome, StalenessGate
from arl_jax.actors.tasks import TaskSource
from arl_jax.episode import Episode, Group


class Replacements:
  """Replaces groups that have nothing to tell apart, up to a limit.

  With returns R of its finished members, a group is replaced while

    max R = min R  and  fewer than `max_per_version` were since the last step.

  Past the limit such a group is trained on as it is: where every task is too
  easy or too hard, a step must not wait for ever.
  Reference: dynamic sampling of https://arxiv.org/abs/2503.14476 (DAPO)

  Attributes:
    total: groups that were replaced so far.
  """

  def __init__(self, max_per_version: int):
    """Makes a counter; `max_per_version` of 0 replaces nothing."""
    if max_per_version < 0:
      raise ValueError(
        f"max_per_version is {max_per_version}; expected 0 or more"
      )
    self.total = 0
    self._max_per_version = max_per_version
    self._version: int | None = None
    self._num_at_version = 0

  def replace(self, group: Group, *, version: int) -> bool:
    """Says whether to replace a group, and counts it if so.

    Args:
      group: one whose members have ended.
      version: of the weights now.
    """
    if version != self._version:
      self._version, self._num_at_version = version, 0
    returns = [episode.total_reward for episode in _finished(group)]
    if len(returns) < 2 or max(returns) > min(returns):
      return False
    if self._num_at_version >= self._max_per_version:
      return False
    self._num_at_version += 1
    self.total += 1
    return True


async def produce_groups(
  actor: Actor,
  source: TaskSource,
  gate: StalenessGate,
  queue: GroupQueue,
  ledger: TaskLedger,
  *,
  group_size: int,
  group_timeout_seconds: float = math.inf,
  choose: Callable[[Group], Group] | None = None,
  replacements: Replacements | None = None,
  budget: FailureBudget,
  on_group: Callable[[Group, Outcome], None] | None = None,
) -> NoReturn:
  """Runs group after group until it is cancelled.

  Synchronous and asynchronous training are this same loop: a gate with
  `max_staleness=0` admits one batch, and the next after the next version.

  An ordinal that was taken from the ledger is closed here if its group failed
  or was replaced, and given back if it was cancelled. Of a group that went to
  the queue, the consumer closes it.

  Args:
    actor: what the episodes share.
    source: the tasks.
    gate: admits groups; it also says how many run at the same time.
    queue: takes them.
    ledger: says which task is next.
    group_size: episodes that are sampled per task.
    group_timeout_seconds: time for a whole group.
    choose: says which members of a complete group stay; None for all.
    replacements: which groups are replaced then; None for no group.
    budget: ends the run after too many failures.
    on_group: called with every group that has ended and what became of it.

  Raises:
    Exception: the first bug. Whoever waits for the queue gets it too.
    RuntimeError: if the budget is spent, or all actors ended.
  """

  async def work() -> None:
    while True:
      await gate.acquire()
      # No task is made in between: one that is cancelled before its first
      # step would never give its place back.
      ordinal, outcome = ledger.take(), None
      try:
        group = await run_group(
          actor,
          source.task_at(ordinal),
          ordinal=ordinal,
          group_size=group_size,
          timeout_seconds=group_timeout_seconds,
          attempt=ledger.attempt(ordinal),
        )
        budget.count(group.episodes)
        if choose is not None:
          group = choose(group)
        verdict = _judge(group, replacements, version=gate.version)
        if verdict is Outcome.ACCEPTED:
          await queue.put(group)
        else:
          ledger.close(ordinal)
        outcome = verdict
      finally:
        if outcome is None:
          ledger.give_back(ordinal)
        gate.release(outcome or Outcome.FAILED)
      if on_group is not None:
        on_group(group, verdict)

  try:
    async with asyncio.TaskGroup() as workers:
      for index in range(gate.max_concurrent):
        workers.create_task(work(), name=f"actor {index}")
    raise RuntimeError(
      f"all {gate.max_concurrent} actors ended without an error, as if each "
      "had been cancelled; no more groups will come"
    )
  except BaseException as errors:
    cause = first_cause(errors)
    queue.fail(cause)
    if cause is errors:
      raise
    raise cause from errors


def _judge(
  group: Group, replacements: Replacements | None, *, version: int
) -> Outcome:
  """Fails a group that has nobody left to compare with."""
  if len(_finished(group)) < min(2, len(group.episodes)):
    return Outcome.FAILED
  if replacements is not None and replacements.replace(group, version=version):
    return Outcome.REJECTED
  return Outcome.ACCEPTED


def _finished(group: Group) -> list[Episode]:
  return [e for e in group.episodes if e.status.finished]
