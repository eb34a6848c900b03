"""Random runs: any event at any time, and what has to hold after each."""

import asyncio
import collections
import dataclasses
import json
import random
from typing import Any, cast

import numpy as np
import pytest

from arl_jax.actors.failures import FailureBudget
from arl_jax.actors.ledger import TaskLedger
from arl_jax.actors.pool import Actor
from arl_jax.actors.produce import Replacements, produce_groups
from arl_jax.actors.queue import GroupQueue
from arl_jax.actors.staleness import Outcome, StalenessGate
from arl_jax.actors.tasks import TaskSource
from arl_jax.episode import Episode, EpisodeStatus, Group, Row, Task, Turn

SOURCE = TaskSource(
  [Task(task_id=f"t{i}", prompt=f"go {i}") for i in range(7)], seed=0
)
SEEDS_PER_TEST = 120
Counts = collections.Counter[str]


@dataclasses.dataclass
class Checkpoint:
  """What is left of a process after its end."""

  version: int = 0
  ledger: str = "{}"
  trained: list[int] = dataclasses.field(default_factory=list)
  dropped: list[int] = dataclasses.field(default_factory=list)
  pending: list[Group] = dataclasses.field(default_factory=list)


class Run:
  """A run of one seed, over as many processes as it takes."""

  def __init__(self, seed: int, *, trouble: bool):
    self.rng = random.Random(seed)
    choose = self.rng.choice
    self.trouble = trouble
    self.batch_size = choose([1, 2, 3])
    self.max_staleness = choose([0, 0, 1, 2, 4])
    self.max_concurrent = choose([1, 2, 3, 8])
    self.max_groups = choose([1, 2, 6])
    self.group_size = choose([1, 2, 3])
    self.num_steps = choose([1, 4, 8])
    self.max_replaced = choose([0, 1, 5]) if trouble else 0
    self.counts: Counts = collections.Counter()
    self.saved = Checkpoint()

  def to_the_end(self) -> Checkpoint:
    while self.saved.version < self.num_steps:
      self.counts["processes"] += 1
      assert self.counts["processes"] < 200, "it gets no further"
      asyncio.run(_Process(self).live())
    return self.saved

  def happens(self, probability: float) -> bool:
    return self.trouble and self.rng.random() < probability


class _Crash(Exception):
  """The end of a process, whatever was going on."""


class _Process:
  """Gate, queue, ledger and actors between a start and a crash."""

  name = "train"  # of the actor that it is to `run_group`

  def __init__(self, run: Run):
    self.run_of, self.rng = run, run.rng
    saved = self.saved = run.saved
    self.version = saved.version
    self.trained, self.dropped = list(saved.trained), list(saved.dropped)
    self.training: tuple[Group, ...] = ()
    self.ledger = TaskLedger(**json.loads(saved.ledger))
    self.gate = StalenessGate(
      batch_size=run.batch_size,
      max_concurrent=run.max_concurrent,
      max_staleness=run.max_staleness,
      max_accepted=run.num_steps * run.batch_size,
    )
    self.queue = GroupQueue(
      self.gate, max_groups=run.max_groups, on_stale=self.on_stale
    )
    # The file of finished groups may be missing, or torn at any line.
    pending = saved.pending[: self.rng.randint(0, len(saved.pending))]
    for group in pending:
      self.ledger.adopt(group.ordinal)
    self.gate.resume(self.version, waiting=len(pending))
    self.queue.restore(pending)
    self.num_restored = len(pending)
    run.counts["restored"] += len(pending)

  async def live(self) -> None:
    watcher = asyncio.create_task(self.watch())
    producer = asyncio.create_task(
      produce_groups(
        cast(Actor, _Others(self)),
        SOURCE,
        self.gate,
        self.queue,
        self.ledger,
        group_size=self.run_of.group_size,
        replacements=Replacements(self.run_of.max_replaced),
        budget=FailureBudget(10**6),
        on_group=self.on_group,
      )
    )
    try:
      while self.version < self.run_of.num_steps:
        await self.step()
    except _Crash:
      self.run_of.counts["crashes"] += 1
    except RuntimeError as error:
      # Either all actors were cancelled, or one of them has a bug.
      self.check_end(error.__cause__)
    finally:
      producer.cancel()
      await asyncio.wait([producer])
      assert not watcher.done(), watcher.result()
      watcher.cancel()
      self.check()
      assert self.gate.running == 0
      if not producer.cancelled():
        producer.exception()

  def check_end(self, cause: BaseException | None) -> None:
    assert self.run_of.trouble
    assert isinstance(cause, RuntimeError | ZeroDivisionError)
    self.run_of.counts[type(cause).__name__] += 1

  async def step(self) -> None:
    """What the learner does: wait, train, close, save, publish."""
    run = self.run_of
    async with asyncio.timeout(30):
      self.training = await self.queue.get_batch(run.batch_size)
    assert len(self.training) == run.batch_size
    for group in self.training:
      for episode in group.episodes:
        for row in episode.rows:
          age = self.gate.version - row.policy_versions[row.action_mask]
          assert (age <= run.max_staleness).all()
          assert (age >= 0).all()
    await self.pause(25)
    if run.happens(0.1):
      raise _Crash
    for group in self.training:
      self.ledger.close(group.ordinal)
    self.trained += [group.ordinal for group in self.training]
    self.training = ()
    self.version += 1
    last = self.version == run.num_steps
    if last or not run.happens(0.5):
      self.save()
    await self.pause(3)
    self.gate.set_version(self.version)
    if run.happens(0.1) and not last:
      raise _Crash

  def save(self) -> None:
    self.run_of.saved = Checkpoint(
      version=self.version,
      ledger=json.dumps(self.ledger.snapshot()),
      trained=list(self.trained),
      dropped=list(self.dropped),
      pending=list(self.queue.waiting),
    )

  async def pause(self, most: int) -> None:
    for _ in range(self.rng.randint(0, most)):
      await asyncio.sleep(0)

  def on_stale(self, group: Group) -> None:
    self.run_of.counts["stale"] += 1
    self.ledger.give_back(group.ordinal)

  def on_group(self, group: Group, outcome: Outcome) -> None:
    self.run_of.counts[outcome] += 1
    if outcome is Outcome.ACCEPTED:
      assert group.ordinal in self.ledger
    else:
      assert group.ordinal not in self.ledger
      self.dropped.append(group.ordinal)

  async def watch(self) -> None:
    """Looks after every step of the event loop, and cancels some actors."""
    while True:
      self.check()
      if self.run_of.happens(0.002):
        actors = [
          task
          for task in asyncio.all_tasks()
          if task.get_name().startswith("actor ")
        ]
        actors.sort(key=lambda task: task.get_name())
        for task in actors[: self.rng.randint(0, len(actors))]:
          self.run_of.counts["cancelled"] += 1
          task.cancel()
      await asyncio.sleep(0)

  def check(self) -> None:
    gate, run = self.gate, self.run_of
    ended = gate.accepted + gate.rejected + gate.failed
    assert gate.submitted == gate.running + ended
    # Capacity is never exceeded.
    assert 0 <= gate.running <= run.max_concurrent
    fresh = (run.max_staleness + gate.version + 1) * run.batch_size
    whole = run.num_steps * run.batch_size
    assert gate.accepted + gate.running <= min(fresh, whole)
    assert len(self.queue) <= max(run.max_groups, self.num_restored)
    # No group is lost, and none is there twice.
    alive = [group.ordinal for group in self.queue.waiting + self.training]
    assert gate.accepted == len(self.trained) + len(alive)
    closed = self.trained + self.dropped
    known = self.ledger.snapshot()
    everything = sorted(closed + known["open_ordinals"])
    assert everything == list(range(known["next_ordinal"]))
    assert len(set(alive)) == len(alive)
    assert all(ordinal in self.ledger for ordinal in alive)


class _Others:
  """An actor whose episodes end in every way there is."""

  name = "train"

  def __init__(self, process: _Process):
    self._process = process
    self._rng = process.rng
    self._alive: set[tuple[int, int, int]] = set()

  async def run(
    self, task: Task, *, ordinal: int, member: int, attempt: int
  ) -> Episode:
    assert task == SOURCE.task_at(ordinal)
    session = (ordinal, member, attempt)
    assert session not in self._alive
    self._alive.add(session)
    happens, first = self._process.run_of.happens, self._process.gate.version
    slow = self._rng.random() < 0.1
    await self._process.pause(120 if slow else 8)
    if happens(0.01):
      raise ZeroDivisionError("engine")
    if happens(0.03):  # as an engine does that drops a request
      future = asyncio.get_running_loop().create_future()
      future.cancel()
      await future
    versions = [first, self._process.gate.version]
    return self._episode(task, member, versions, failed=happens(0.1))

  def _episode(
    self, task: Task, member: int, versions: list[int], *, failed: bool
  ) -> Episode:
    row = Row(
      tokens=np.zeros(3, np.int32),
      action_mask=np.asarray([False, True, True]),
      turn_ids=np.asarray([-1, 0, 0], np.int32),
      behavior_logprobs=np.zeros(3, np.float32),
      policy_versions=np.asarray([-1, *versions], np.int32),
    )
    reward = float(self._rng.random() < 0.5)
    return Episode(
      task=task,
      member=member,
      status=EpisodeStatus.FAILED if failed else EpisodeStatus.TERMINATED,
      rows=(row,),
      turns=(Turn(action="go", finish_reason="stop", reward=reward),),
      error="KeyError: 'seats'" if failed else "",
    )


def play(seed: int, **settings: Any) -> tuple[Run, Checkpoint]:
  run = Run(seed, **settings)
  try:
    return run, run.to_the_end()
  except BaseException as error:
    error.add_note(f"in the run of seed {seed}")
    raise


@pytest.mark.parametrize("block", range(4))
def test_no_mix_of_events_loses_or_repeats_a_task(block):
  counts: Counts = collections.Counter()
  for seed in range(block * SEEDS_PER_TEST, (block + 1) * SEEDS_PER_TEST):
    run, end = play(seed, trouble=True)
    counts += run.counts
    assert len(end.trained) == run.num_steps * run.batch_size
    closed = sorted(end.trained + end.dropped)
    assert closed == list(range(len(closed)))
    known = json.loads(end.ledger)
    assert known == {"next_ordinal": len(closed), "open_ordinals": []}
    assert end.pending == []
  # All of it did happen.
  expected = {"stale", "crashes", "cancelled", "restored", *Outcome}
  expected |= {"RuntimeError", "ZeroDivisionError"}
  assert all(counts[name] for name in expected), counts
  assert counts["processes"] > SEEDS_PER_TEST


@pytest.mark.parametrize("block", range(2))
def test_without_failures_a_run_trains_on_the_first_tasks(block):
  num_stale = 0
  for seed in range(block * SEEDS_PER_TEST, (block + 1) * SEEDS_PER_TEST):
    run, end = play(seed, trouble=False)
    num_stale += run.counts["stale"]
    whole = run.num_steps * run.batch_size
    assert sorted(end.trained) == list(range(whole))
    assert run.counts["processes"] == 1
  assert num_stale  # and yet none of them is missing
