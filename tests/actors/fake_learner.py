"""A learner that trains on nothing, with a gate, a ledger and a queue."""

import asyncio
import contextlib
from typing import Any

from arl_jax.actors.failures import FailureBudget
from arl_jax.actors.ledger import TaskLedger
from arl_jax.actors.produce import produce_groups
from arl_jax.actors.queue import GroupQueue, oldest_version
from arl_jax.actors.staleness import StalenessGate
from arl_jax.actors.tasks import TaskSource
from arl_jax.episode import Task

TASKS = [Task(task_id=f"t{i}", prompt=f"go {i}") for i in range(6)]
SOURCE = TaskSource(TASKS, seed=0)


class Parts:
  """Gate, ledger and queue as a run has them."""

  def __init__(
    self,
    *,
    batch_size=3,
    max_staleness=0,
    max_concurrent=16,
    max_groups=4,
    num_steps=None,
    ledger=None,
  ):
    self.gate = StalenessGate(
      batch_size=batch_size,
      max_concurrent=max_concurrent,
      max_staleness=max_staleness,
      max_accepted=num_steps and num_steps * batch_size,
    )
    self.ledger = TaskLedger() if ledger is None else ledger
    self.queue = GroupQueue(
      self.gate,
      max_groups=max_groups,
      on_stale=lambda group: self.ledger.give_back(group.ordinal),
    )

  def produce(self, actor: Any, source=SOURCE, **settings: Any):
    settings = {"group_size": 2, "budget": FailureBudget(5)} | settings
    return asyncio.create_task(
      produce_groups(
        actor, source, self.gate, self.queue, self.ledger, **settings
      )
    )

  def check(self):
    gate = self.gate
    ended = gate.accepted + gate.rejected + gate.failed
    assert gate.submitted == gate.running + ended


async def stop(producer):
  producer.cancel()
  with contextlib.suppress(asyncio.CancelledError, Exception):
    await producer


async def ticks(number):
  for _ in range(number):
    await asyncio.sleep(0)


async def train(actor: Any, parts: Parts, *, num_steps, **settings: Any):
  """A learner that publishes a version after each batch."""
  gate, batches = parts.gate, []
  producer = parts.produce(actor, **settings)
  try:
    for _ in range(num_steps):
      batch = await asyncio.wait_for(
        parts.queue.get_batch(gate.batch_size), timeout=20
      )
      for group in batch:
        age = gate.version - (oldest_version(group) or 0)
        assert 0 <= age <= gate.max_staleness
        parts.ledger.close(group.ordinal)
      batches.append(batch)
      actor.policy.version += 1
      gate.set_version(actor.policy.version)
      parts.check()
  finally:
    await stop(producer)
    assert gate.running == 0
    parts.check()
  return batches


def ordinals(batches):
  return [group.ordinal for batch in batches for group in batch]
