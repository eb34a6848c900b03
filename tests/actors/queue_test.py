"""The bounded queue of groups."""

import asyncio

import numpy as np
import pytest

from arl_jax.actors.queue import GroupQueue, oldest_version
from arl_jax.actors.staleness import Outcome, StalenessGate
from arl_jax.episode import Episode, EpisodeStatus, Group, Row
from tests.actors.fakes import TASK


def make_group(ordinal, versions=(0,)):
  """A group of two episodes; `versions` are of the sampled tokens of one."""

  def episode(versions):
    n = len(versions)
    row = Row(
      tokens=np.zeros(n + 1, np.int32),
      action_mask=np.arange(n + 1) > 0,
      turn_ids=np.zeros(n + 1, np.int32),
      behavior_logprobs=np.zeros(n + 1, np.float32),
      policy_versions=np.asarray([-1, *versions], np.int32),
    )
    return Episode(
      task=TASK,
      member=0,
      status=EpisodeStatus.TERMINATED,
      rows=(row,),
      turns=(),
    )

  episodes = (episode([max(versions)]), episode(versions))
  return Group(ordinal=ordinal, task=TASK, episodes=episodes)


def make_queue(*, max_groups=8, max_staleness=0, on_stale=None):
  gate = StalenessGate(
    batch_size=4, max_concurrent=64, max_staleness=max_staleness
  )
  return gate, GroupQueue(gate, max_groups=max_groups, on_stale=on_stale)


async def add(gate, queue, group):
  await gate.acquire()
  await queue.put(group)
  gate.release(Outcome.ACCEPTED)


def test_a_batch_is_sorted_by_ordinal():
  async def main():
    _, queue = make_queue()
    for ordinal in (3, 0, 2, 1, 4):
      await queue.put(make_group(ordinal))
    batch = await queue.get_batch(4)
    assert [group.ordinal for group in batch] == [0, 1, 2, 3]
    assert len(queue) == 1

  asyncio.run(main())


def test_a_full_queue_holds_the_producer_back():
  async def main():
    _, queue = make_queue(max_groups=2)
    put = []

    async def produce():
      for ordinal in range(6):
        await queue.put(make_group(ordinal))
        put.append(ordinal)

    producer = asyncio.create_task(produce())
    for _ in range(5):
      await asyncio.sleep(0)
    assert put == [0, 1]
    # A batch may be larger than the queue.
    batch = await asyncio.wait_for(queue.get_batch(5), timeout=5)
    assert [group.ordinal for group in batch] == [0, 1, 2, 3, 4]
    await producer

  asyncio.run(main())


def test_the_oldest_token_decides():
  assert oldest_version(make_group(0, [5, 3, 4])) == 3
  assert oldest_version(Group(ordinal=0, task=TASK, episodes=())) is None


@pytest.mark.parametrize("max_staleness", [0, 1, 2])
def test_no_token_older_than_allowed_is_handed_out(max_staleness):
  async def main():
    dropped = []
    gate, queue = make_queue(
      max_staleness=max_staleness, on_stale=dropped.append
    )
    gate.set_version(3)
    for version in range(4):
      await add(gate, queue, make_group(version, [version, 3]))
    batch = await queue.get_batch(max_staleness + 1)
    ages = [3 - (oldest_version(group) or 0) for group in batch]
    assert sorted(ages) == list(range(max_staleness + 1))
    assert queue.num_stale == len(dropped) == 3 - max_staleness
    # What was dropped is owed again.
    assert gate.rejected == len(dropped)
    assert gate.accepted == len(batch)

  asyncio.run(main())


def test_staleness_is_judged_when_a_batch_is_handed_out():
  async def main():
    gate, queue = make_queue()
    await add(gate, queue, make_group(0, [0]))
    consumer = asyncio.create_task(queue.get_batch(2))
    await asyncio.sleep(0)
    gate.set_version(1)  # while the consumer holds the first group
    await add(gate, queue, make_group(1, [1]))
    await add(gate, queue, make_group(2, [1]))
    batch = await asyncio.wait_for(consumer, timeout=5)
    assert [group.ordinal for group in batch] == [1, 2]
    assert queue.num_stale == 1

  asyncio.run(main())


@pytest.mark.parametrize("max_staleness", [0, 1, 3])
def test_a_group_may_be_trained_on_at_exactly_so_many_versions(max_staleness):
  """One fewer or one more is prime-rl#1902."""

  async def main():
    gate, queue = make_queue(max_staleness=max_staleness, max_groups=99)
    gate.set_version(7)
    served = 0
    for version in range(7, 7 + max_staleness + 3):
      if version > 7:
        gate.set_version(version)
      await add(gate, queue, make_group(version, [7, 7]))
      consumer = asyncio.create_task(queue.get_batch(1))
      await asyncio.sleep(0)
      served += consumer.done()
      consumer.cancel()
      await asyncio.wait([consumer])
    assert served == max_staleness + 1
    assert queue.num_stale == 2

  asyncio.run(main())


def test_all_that_waits_is_listed_in_the_order_of_putting():
  async def main():
    gate, queue = make_queue(max_groups=3)

    def waiting():
      return [group.ordinal for group in queue.waiting]

    assert queue.waiting == ()
    for ordinal in (5, 2, 4):
      await add(gate, queue, make_group(ordinal))
    held_back = asyncio.create_task(queue.put(make_group(0)))
    await asyncio.sleep(0)
    assert waiting() == [5, 2, 4]  # it is not in the queue yet
    consumer = asyncio.create_task(queue.get_batch(5))
    for _ in range(3):
      await asyncio.sleep(0)
    assert held_back.done()
    assert len(queue) == 0
    assert waiting() == [5, 2, 4, 0]  # what a call has collected waits too
    await queue.put(make_group(3))
    await queue.put(make_group(1))
    assert waiting() == [5, 2, 4, 0, 3, 1]
    batch = await asyncio.wait_for(consumer, timeout=5)
    assert [group.ordinal for group in batch] == [0, 2, 3, 4, 5]
    assert waiting() == [1]

  asyncio.run(main())


def test_a_group_that_grew_too_old_waits_no_more():
  async def main():
    gate, queue = make_queue()
    await add(gate, queue, make_group(0))
    gate.set_version(1)
    consumer = asyncio.create_task(queue.get_batch(1))
    await asyncio.sleep(0)
    assert queue.waiting == ()
    consumer.cancel()
    await asyncio.wait([consumer])

  asyncio.run(main())


def test_restored_groups_need_no_room_and_come_first():
  async def main():
    gate, queue = make_queue(max_groups=2, max_staleness=1)
    gate.resume(3, waiting=4)
    queue.restore(make_group(ordinal, [2, 3]) for ordinal in (9, 7, 8, 6))
    assert [group.ordinal for group in queue.waiting] == [9, 7, 8, 6]
    late = asyncio.create_task(queue.put(make_group(5, [3])))
    await asyncio.sleep(0)
    assert not late.done()
    batch = await queue.get_batch(3)
    assert [group.ordinal for group in batch] == [7, 8, 9]
    await asyncio.wait_for(late, timeout=5)
    assert [group.ordinal for group in queue.waiting] == [6, 5]

  asyncio.run(main())


def test_restored_groups_wake_who_waits_and_may_be_too_old():
  async def main():
    dropped = []
    gate, queue = make_queue(on_stale=dropped.append)
    gate.resume(3, waiting=2)
    consumer = asyncio.create_task(queue.get_batch(1))
    await asyncio.sleep(0)
    queue.restore([make_group(0, [2]), make_group(1, [3])])
    (group,) = await asyncio.wait_for(consumer, timeout=5)
    assert group.ordinal == 1
    assert [group.ordinal for group in dropped] == [0]
    assert (gate.accepted, gate.rejected) == (13, 1)

  asyncio.run(main())


def test_a_cancelled_consumer_loses_nothing():
  async def main():
    _, queue = make_queue()
    await queue.put(make_group(0))
    consumer = asyncio.create_task(queue.get_batch(2))
    await asyncio.sleep(0)
    consumer.cancel()
    await asyncio.wait([consumer])
    await queue.put(make_group(1))
    batch = await queue.get_batch(2)
    assert [group.ordinal for group in batch] == [0, 1]

  asyncio.run(main())


@pytest.mark.parametrize("waiting", [True, False])
def test_the_end_of_the_producer_reaches_the_consumer(waiting):
  async def main():
    _, queue = make_queue(max_groups=1)
    cause = KeyError("seats")
    if not waiting:
      queue.fail(cause)
    consumer = asyncio.create_task(queue.get_batch(1))
    await asyncio.sleep(0)
    queue.fail(cause)
    queue.fail(ValueError("a later one"))
    with pytest.raises(RuntimeError, match="producer.*seats") as caught:
      await asyncio.wait_for(consumer, timeout=5)
    assert caught.value.__cause__ is cause

  asyncio.run(main())


def test_a_producer_that_waits_hears_of_the_end_too():
  async def main():
    _, queue = make_queue(max_groups=1)
    await queue.put(make_group(0))
    producer = asyncio.create_task(queue.put(make_group(1)))
    await asyncio.sleep(0)
    queue.fail(KeyError("seats"))
    with pytest.raises(RuntimeError, match="stopped"):
      await asyncio.wait_for(producer, timeout=5)

  asyncio.run(main())


def test_bad_arguments():
  with pytest.raises(ValueError, match="max_groups is 0"):
    make_queue(max_groups=0)
