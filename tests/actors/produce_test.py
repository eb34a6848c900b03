"""The loop from tasks to queued groups, synchronous or not."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

from arl_jax.actors.produce import produce_groups
from arl_jax.actors.queue import GroupQueue, oldest_version
from arl_jax.actors.staleness import StalenessGate
from arl_jax.actors.tasks import TaskSource
from arl_jax.episode import Task
from tests.actors import fakes
from tests.actors.fakes import make_actor

SOURCE = TaskSource(
  [Task(task_id=f"t{i}", prompt=f"go {i}") for i in range(6)], seed=0
)


def make_parts(*, batch_size=3, max_staleness=0, max_concurrent=16):
  gate = StalenessGate(
    batch_size=batch_size,
    max_concurrent=max_concurrent,
    max_staleness=max_staleness,
  )
  return gate, GroupQueue(gate, max_groups=4)


def settled(gate):
  ended = gate.accepted + gate.rejected + gate.failed
  return gate.submitted == gate.running + ended


async def train(
  actor: Any, gate, queue, *, num_steps, start=0, **settings: Any
):
  """A learner that publishes a version after each batch."""
  batches = []
  producer = asyncio.create_task(
    produce_groups(
      actor, SOURCE, gate, queue, group_size=2, start=start, **settings
    )
  )
  try:
    for _ in range(num_steps):
      batch = await asyncio.wait_for(
        queue.get_batch(gate.batch_size), timeout=20
      )
      for group in batch:
        age = gate.version - (oldest_version(group) or 0)
        assert 0 <= age <= gate.max_staleness
      batches.append(batch)
      actor.policy.version += 1
      gate.set_version(actor.policy.version)
      assert settled(gate)
  finally:
    producer.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
      await producer
    assert gate.running == 0
    assert settled(gate)
  return batches


def by_ordinal(batches):
  return {
    group.ordinal: [
      tuple(turn.action for turn in episode.turns) for episode in group.episodes
    ]
    for batch in batches
    for group in batch
  }


def test_synchronous_batches_are_the_tasks_in_order():
  gate, queue = make_parts()
  policy = fakes.FakePolicy(fakes.by_seed)
  batches = asyncio.run(train(make_actor(policy), gate, queue, num_steps=4))
  ordinals = [[group.ordinal for group in batch] for batch in batches]
  assert ordinals == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
  for step, batch in enumerate(batches):
    for group in batch:
      assert group.task == SOURCE.task_at(group.ordinal)
      for episode in group.episodes:
        (row,) = episode.rows
        # Every trained token is of the version that trains on it.
        assert set(row.policy_versions[row.action_mask]) == {step}


@pytest.mark.parametrize("max_staleness", [1, 3])
def test_both_modes_play_the_same_episodes(max_staleness):
  played = []
  for staleness in (0, max_staleness):
    gate, queue = make_parts(max_staleness=staleness)
    actor = make_actor(fakes.FakePolicy(fakes.by_seed))
    played.append(
      by_ordinal(asyncio.run(train(actor, gate, queue, num_steps=5)))
    )
  shared = played[0].keys() & played[1].keys()
  assert len(shared) >= 12
  assert all(played[0][ordinal] == played[1][ordinal] for ordinal in shared)


def test_a_run_that_resumes_plays_what_the_whole_run_plays():
  whole = {}
  for start, version, num_steps in ((0, 0, 4), (6, 2, 2)):
    gate, queue = make_parts()
    gate.resume(version)
    policy = fakes.FakePolicy(fakes.by_seed)
    policy.version = version
    batches = asyncio.run(
      train(make_actor(policy), gate, queue, num_steps=num_steps, start=start)
    )
    played = by_ordinal(batches)
    assert whole == {} or played == {k: whole[k] for k in range(6, 12)}
    whole = whole or played
  assert sorted(whole) == list(range(12))


def test_no_ordinal_is_lost_or_played_twice():
  gate, queue = make_parts(max_staleness=2, max_concurrent=5)
  actor = make_actor(fakes.FakePolicy(fakes.by_seed))
  batches = asyncio.run(train(actor, gate, queue, num_steps=30))
  ordinals = [group.ordinal for batch in batches for group in batch]
  assert len(ordinals) == len(set(ordinals)) == 90
  # Whatever is missing below the last was in flight, within the gate's bound.
  assert max(ordinals) < 90 + 3 * 3


def failing(probability):
  luck = random.Random(0)

  def on_step(environment, action):
    if luck.random() < probability:
      raise KeyError("seats")

  return lambda: fakes.FakeEnvironment(on_step)


def test_failing_episodes_give_their_places_back():
  gate, queue = make_parts(max_concurrent=4)
  policy = fakes.FakePolicy(fakes.by_seed)
  actor = make_actor(policy, failing(0.3))
  batches = asyncio.run(
    train(actor, gate, queue, num_steps=10, max_failures=1000)
  )
  assert len(by_ordinal(batches)) == 30
  assert gate.failed > 100
  assert not policy.alive


def test_rejected_groups_are_replaced():
  gate, queue = make_parts()
  actor = make_actor(fakes.FakePolicy(fakes.by_seed))
  batches = asyncio.run(
    train(
      actor,
      gate,
      queue,
      num_steps=3,
      accept=lambda group: group.ordinal % 3 != 1,
    )
  )
  assert sorted(by_ordinal(batches)) == [0, 2, 3, 5, 6, 8, 9, 11, 12]
  assert gate.rejected >= 4


def test_a_group_with_one_left_has_nobody_to_compare_with():
  worlds = []

  def on_step(environment, action):
    if environment is worlds[0]:
      raise KeyError("seats")

  def make_environment():
    worlds.append(fakes.FakeEnvironment(on_step))
    return worlds[-1]

  gate, queue = make_parts(batch_size=1, max_concurrent=1)
  actor = make_actor(fakes.FakePolicy(fakes.by_seed), make_environment)
  batches = asyncio.run(train(actor, gate, queue, num_steps=1))
  assert sorted(by_ordinal(batches)) == [1]
  assert gate.accepted == 1


def test_an_environment_that_always_fails_stops_the_run():
  gate, queue = make_parts()
  actor = make_actor(fakes.FakePolicy(fakes.by_seed), failing(1.0))
  with pytest.raises(RuntimeError, match="groups failed one after") as caught:
    asyncio.run(train(actor, gate, queue, num_steps=1, max_failures=5))
  assert "seats" in str(caught.value.__cause__)


def test_a_bug_reaches_who_waits_for_the_batch():
  def script(turn, sampling):
    if len(policy.calls) > 4:
      raise ZeroDivisionError("engine")
    return fakes.by_seed(turn, sampling)

  policy = fakes.FakePolicy(script)
  gate, queue = make_parts()
  with pytest.raises(RuntimeError, match="ZeroDivisionError") as caught:
    asyncio.run(train(make_actor(policy), gate, queue, num_steps=3))
  assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_cancelled_producer_leaves_nobody_waiting():
  async def main():
    gate, queue = make_parts()
    actor = make_actor(
      fakes.FakePolicy(fakes.by_seed),
      lambda: fakes.FakeEnvironment(fakes.forever),
    )
    producer = asyncio.create_task(
      produce_groups(actor, SOURCE, gate, queue, group_size=2)
    )
    consumer = asyncio.create_task(queue.get_batch(1))
    for _ in range(10):
      await asyncio.sleep(0)
    assert gate.running == 3
    producer.cancel()
    with pytest.raises(asyncio.CancelledError):
      await producer
    with pytest.raises(RuntimeError, match="producer of groups stopped"):
      await asyncio.wait_for(consumer, timeout=5)
    assert (gate.running, gate.failed) == (0, 3)

  asyncio.run(main())


@pytest.mark.parametrize("moment", range(0, 40, 3))
def test_a_cancellation_at_any_moment_gives_every_place_back(moment):
  async def main():
    gate, queue = make_parts(max_staleness=1, max_concurrent=3)
    policy = fakes.FakePolicy(fakes.by_seed)
    producer = asyncio.create_task(
      produce_groups(make_actor(policy), SOURCE, gate, queue, group_size=2)
    )
    for _ in range(moment):
      await asyncio.sleep(0)
    producer.cancel()
    await asyncio.wait([producer], timeout=5)
    assert producer.cancelled()
    assert gate.running == 0
    assert settled(gate)
    assert not policy.alive

  asyncio.run(main())
