"""Failures, cancellations and waits do not hold up the loop, nor hide."""

import asyncio
import random

import pytest

from arl_jax.actors.failures import FailureBudget
from arl_jax.actors.pool import run_tasks
from arl_jax.actors.tasks import TaskSource
from arl_jax.episode import EpisodeStatus
from tests.actors import fakes
from tests.actors.fake_learner import (
  TASKS,
  Parts,
  ordinals,
  stop,
  ticks,
  train,
)
from tests.actors.fakes import make_actor


def failing(probability):
  luck = random.Random(0)

  def on_step(environment, action):
    if luck.random() < probability:
      raise KeyError("seats")

  return lambda: fakes.FakeEnvironment(on_step)


def test_failing_episodes_give_their_places_back():
  parts, budget = Parts(max_concurrent=4), FailureBudget(1000)
  policy = fakes.FakePolicy(fakes.by_seed)
  actor = make_actor(policy, failing(0.3))
  batches = asyncio.run(train(actor, parts, num_steps=10, budget=budget))
  assert len(set(ordinals(batches))) == 30
  assert parts.gate.failed > 100
  assert budget.num_failed >= parts.gate.failed
  assert list(budget.num_by_cause) == [
    "environment.step raised KeyError: 'seats'"
  ]
  assert not policy.alive


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_a_thousand_failures_leave_no_place_taken(max_staleness):
  """Places were lost one by one in NeMo-RL#3219 and cosmos-rl#708."""
  broken = []

  def on_step(environment, action):
    if len(broken) < 1000:
      broken.append(environment)
      raise KeyError("seats")

  async def main():
    parts = Parts(max_concurrent=4, max_staleness=max_staleness)
    policy, budget = fakes.FakePolicy(fakes.by_seed), FailureBudget(1000)
    actor = make_actor(policy, lambda: fakes.FakeEnvironment(on_step))
    producer = parts.produce(actor, budget=budget)
    await asyncio.wait_for(parts.queue.get_batch(3), timeout=30)
    await stop(producer)
    assert budget.num_failed == 1000
    assert (parts.gate.running, policy.alive) == (0, {})
    parts.check()
    if not max_staleness:
      assert parts.gate.capacity == 0
      parts.gate.set_version(1)
      assert parts.gate.capacity == 3

  asyncio.run(main())


def test_one_of_64_that_breaks_leaves_63_and_its_cause():
  """All were lost and the cause hidden in SkyRL#1613 and slime#2078."""
  worlds = []

  def make_environment():
    worlds.append(None)
    if len(worlds) == 42:
      raise OSError("no sandbox left")
    return fakes.FakeEnvironment()

  parts, budget = Parts(batch_size=1, num_steps=1), FailureBudget(1)
  actor = make_actor(fakes.FakePolicy(fakes.by_seed), make_environment)
  ((group,),) = asyncio.run(
    train(actor, parts, num_steps=1, group_size=64, budget=budget)
  )
  assert sum(e.success for e in group.episodes) == 63
  assert "no sandbox left" in group.episodes[41].error
  assert budget.num_failed == 1
  assert (parts.gate.accepted, parts.gate.failed) == (1, 0)


def test_a_stuck_member_costs_the_step_its_limit_and_no_more():
  made = []

  def on_step(environment, action):
    return fakes.forever() if environment is made[5] else None

  def make_environment():
    made.append(fakes.FakeEnvironment(on_step))
    return made[-1]

  parts = Parts(batch_size=1, max_concurrent=1)
  policy = fakes.FakePolicy(fakes.by_seed)
  batches = asyncio.run(
    train(
      make_actor(policy, make_environment),
      parts,
      num_steps=2,
      group_size=8,
      group_timeout_seconds=1.0,
    )
  )
  assert ordinals(batches) == [0, 1]
  statuses = [e.status for e in batches[0][0].episodes]
  assert statuses.count(EpisodeStatus.TERMINATED) == 7
  assert statuses[5] is EpisodeStatus.GROUP_TIMEOUT
  assert not policy.alive


def test_an_environment_that_always_fails_stops_the_run():
  parts = Parts()
  actor = make_actor(fakes.FakePolicy(fakes.by_seed), failing(1.0))
  with pytest.raises(RuntimeError, match="6 episodes in a row") as caught:
    asyncio.run(train(actor, parts, num_steps=1, budget=FailureBudget(5)))
  cause = str(caught.value.__cause__)
  assert cause.count("seats") >= 2  # the first and the last
  assert len(parts.queue) == 0


def test_a_bug_reaches_who_waits_for_the_batch():
  def script(turn, sampling):
    if len(policy.calls) > 4:
      raise ZeroDivisionError("engine")
    return fakes.by_seed(turn, sampling)

  policy = fakes.FakePolicy(script)
  parts = Parts()
  with pytest.raises(RuntimeError, match="ZeroDivisionError") as caught:
    asyncio.run(train(make_actor(policy), parts, num_steps=3))
  assert isinstance(caught.value.__cause__, ZeroDivisionError)
  # The tasks that it cut short are open: they would run again.
  assert parts.ledger.snapshot()["open_ordinals"] == [0, 1, 2]


def test_an_observer_with_a_bug_ends_the_run_with_nothing_lost():
  def on_group(group, outcome):
    raise ZeroDivisionError("report")

  parts = Parts()
  actor = make_actor(fakes.FakePolicy(fakes.by_seed))
  with pytest.raises(RuntimeError, match="ZeroDivisionError"):
    asyncio.run(train(actor, parts, num_steps=2, on_group=on_group))
  assert parts.gate.accepted == 3 + len(parts.queue.waiting)
  assert all(group.ordinal in parts.ledger for group in parts.queue.waiting)


def test_a_cancelled_producer_leaves_nobody_waiting():
  async def main():
    parts = Parts()
    actor = make_actor(
      fakes.FakePolicy(fakes.by_seed),
      lambda: fakes.FakeEnvironment(fakes.forever),
    )
    producer = parts.produce(actor)
    consumer = asyncio.create_task(parts.queue.get_batch(1))
    await ticks(10)
    assert parts.gate.running == 3
    producer.cancel()
    with pytest.raises(asyncio.CancelledError):
      await producer
    with pytest.raises(RuntimeError, match="producer of groups stopped"):
      await asyncio.wait_for(consumer, timeout=5)
    assert (parts.gate.running, parts.gate.failed) == (0, 3)
    assert parts.ledger.snapshot()["open_ordinals"] == [0, 1, 2]

  asyncio.run(main())


def actors_alive():
  tasks = [t for t in asyncio.all_tasks() if t.get_name().startswith("actor ")]
  return sorted(tasks, key=lambda task: task.get_name())


@pytest.mark.parametrize("moment", [0, 1, 5, 20])
def test_the_end_of_all_actors_reaches_who_waits_for_the_batch(moment):
  """The trainer looked for hours into an empty buffer in NeMo-RL#3488."""

  async def main():
    parts = Parts(batch_size=4, max_concurrent=4)
    actor = make_actor(
      fakes.FakePolicy(fakes.by_seed),
      lambda: fakes.FakeEnvironment(fakes.forever),
    )
    producer = parts.produce(actor)
    consumer = asyncio.create_task(parts.queue.get_batch(4))
    await ticks(1 + moment)
    assert len(actors_alive()) == 4
    for task in actors_alive():
      task.cancel()
      await ticks(moment)
    with pytest.raises(RuntimeError, match="all 4 actors ended") as caught:
      await asyncio.wait_for(consumer, timeout=5)
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(RuntimeError, match="all 4 actors ended"):
      await producer
    assert parts.gate.running == 0
    # A learner that comes later hears of it as well.
    with pytest.raises(RuntimeError, match="all 4 actors ended"):
      await parts.queue.get_batch(1)

  asyncio.run(main())


def test_one_actor_that_is_left_does_the_work_of_all():
  async def main():
    parts = Parts(batch_size=4, max_concurrent=4)
    policy = fakes.FakePolicy(fakes.by_seed)
    producer = parts.produce(make_actor(policy))
    await ticks(6)
    for task in actors_alive()[:3]:
      task.cancel()
    batch = await asyncio.wait_for(parts.queue.get_batch(4), timeout=20)
    assert ordinals([batch]) == [0, 1, 2, 3]
    assert (parts.gate.accepted, parts.gate.failed) == (4, 3)
    await stop(producer)

  asyncio.run(main())


@pytest.mark.parametrize("moment", range(0, 40, 3))
def test_a_cancellation_at_any_moment_gives_every_place_back(moment):
  async def main():
    parts = Parts(max_staleness=1, max_concurrent=3)
    policy = fakes.FakePolicy(fakes.by_seed)
    producer = parts.produce(make_actor(policy))
    await ticks(moment)
    producer.cancel()
    await asyncio.wait([producer], timeout=5)
    assert producer.cancelled()
    assert parts.gate.running == 0
    parts.check()
    assert not policy.alive
    # Every task that was begun is open, whether it is done or not.
    known = parts.ledger.snapshot()
    assert known["open_ordinals"] == list(range(known["next_ordinal"]))

  asyncio.run(main())


@pytest.mark.parametrize("stuck", [True, False])
def test_an_evaluation_takes_nothing_from_the_gate(stuck):
  """One limiter for both was a deadlock in prime-rl#2263."""

  async def main():
    parts = Parts(batch_size=2, max_concurrent=2)
    policy = fakes.FakePolicy(fakes.by_seed)
    on_step = fakes.forever if stuck else lambda *_: None
    producer = parts.produce(
      make_actor(policy, lambda: fakes.FakeEnvironment(on_step))
    )
    await ticks(60)
    assert parts.gate.capacity == 0
    assert parts.gate.running == (2 if stuck else 0)
    before = (parts.gate.submitted, parts.gate.running)
    episodes = await asyncio.wait_for(
      run_tasks(make_actor(policy, name="eval"), TASKS, max_concurrent=3),
      timeout=20,
    )
    assert all(episode.success for episode in episodes)
    assert (parts.gate.submitted, parts.gate.running) == before
    await stop(producer)

  asyncio.run(main())


@pytest.mark.parametrize(
  ("max_concurrent", "max_groups", "expected"),
  [
    (3, 2, 5),  # in the queue, and in the hands of the actors
    (16, 4, 12),  # (eta + 1) * B: the gate admits no more
    (16, 100, 12),
  ],
)
def test_a_learner_that_is_stuck_holds_the_actors_back(
  max_concurrent, max_groups, expected
):
  async def main():
    parts = Parts(
      max_concurrent=max_concurrent, max_groups=max_groups, max_staleness=3
    )
    begun = []

    class Counting(TaskSource):
      def task_at(self, ordinal):
        begun.append(ordinal)
        return super().task_at(ordinal)

    producer = parts.produce(
      make_actor(fakes.FakePolicy(fakes.by_seed)), Counting(TASKS, seed=0)
    )
    for _ in range(500):
      await asyncio.sleep(0)
      assert len(parts.queue) <= max_groups
    assert sorted(begun) == list(range(expected))
    # It comes back, and all goes on.
    await asyncio.wait_for(parts.queue.get_batch(3), timeout=20)
    await ticks(500)
    assert len(begun) == min(expected + 3, 12)
    await stop(producer)

  asyncio.run(main())
