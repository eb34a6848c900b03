"""The gate's counters."""

import asyncio

import hypothesis
from hypothesis import strategies as st
import pytest

from arl_jax.actors.staleness import Outcome, StalenessGate


def make_gate(
  *, batch_size=2, max_concurrent=100, max_staleness=0, max_accepted=None
):
  return StalenessGate(
    batch_size=batch_size,
    max_concurrent=max_concurrent,
    max_staleness=max_staleness,
    max_accepted=max_accepted,
  )


async def take(gate, num_groups):
  for _ in range(num_groups):
    await asyncio.wait_for(gate.acquire(), timeout=5)


def test_synchronous_training_admits_one_batch_per_version():
  async def main():
    gate = make_gate(batch_size=2)
    await take(gate, 2)
    assert gate.capacity == 0
    gate.release(Outcome.ACCEPTED)
    gate.release(Outcome.ACCEPTED)
    assert gate.capacity == 0
    gate.set_version(1)
    assert gate.capacity == 2

  asyncio.run(main())


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.FAILED])
def test_what_is_not_accepted_is_replaced(outcome):
  async def main():
    gate = make_gate(batch_size=2)
    await take(gate, 2)
    gate.release(outcome)
    assert gate.capacity == 1

  asyncio.run(main())


def test_a_retracted_group_is_replaced():
  async def main():
    gate = make_gate(batch_size=1)
    await take(gate, 1)
    gate.release(Outcome.ACCEPTED)
    gate.retract()
    assert (gate.accepted, gate.rejected, gate.capacity) == (0, 1, 1)

  asyncio.run(main())


@pytest.mark.parametrize("max_staleness", [0, 1, 4])
def test_a_resumed_gate_owes_only_what_is_ahead(max_staleness):
  """Not 100 batches more, as in AReaL#1388 and AReaL#1345."""
  gate = make_gate(batch_size=3, max_staleness=max_staleness)
  gate.resume(100)
  assert gate.capacity == (max_staleness + 1) * 3
  assert gate.submitted == gate.accepted == 300


def test_groups_that_wait_since_before_a_resume_are_accepted():
  gate = make_gate(batch_size=3, max_staleness=2, max_accepted=24)
  gate.resume(5, waiting=4)
  assert gate.submitted == gate.accepted == 19
  assert gate.capacity == 5  # of the 3 batches ahead, 4 groups are there
  gate.set_version(6)
  assert gate.capacity == 5  # no more: the run has 24 groups


def test_the_gate_closes_when_the_run_has_its_groups():
  async def main():
    gate = make_gate(batch_size=2, max_staleness=4, max_accepted=5)
    await take(gate, 5)
    assert gate.capacity == 0
    for outcome in (Outcome.FAILED, Outcome.REJECTED):
      gate.release(outcome)
    assert gate.capacity == 2  # each is replaced
    await take(gate, 2)
    for _ in range(5):
      gate.release(Outcome.ACCEPTED)
    gate.set_version(3)
    assert gate.capacity == 0
    gate.retract()
    assert gate.capacity == 1

  asyncio.run(main())


@pytest.mark.parametrize("max_accepted", [None, 1000])
def test_a_limit_far_ahead_changes_nothing(max_accepted):
  gate = make_gate(max_staleness=1, max_accepted=max_accepted)
  gate.set_version(3)
  assert gate.capacity == 10


def test_resuming_late_is_an_error():
  async def main():
    gate = make_gate()
    await take(gate, 1)
    gate.resume(3)

  with pytest.raises(RuntimeError, match="call it first"):
    asyncio.run(main())


def test_running_groups_are_bounded():
  async def main():
    gate = make_gate(batch_size=10, max_concurrent=3)
    await take(gate, 3)
    assert gate.capacity == 0

  asyncio.run(main())


def test_waiters_are_served_in_order_and_none_is_forgotten():
  async def main():
    gate, served = make_gate(batch_size=1), []
    await gate.acquire()

    async def wait(name):
      await gate.acquire()
      served.append(name)

    waiters = [asyncio.create_task(wait(i)) for i in range(4)]
    await asyncio.sleep(0)
    waiters[1].cancel()
    for version in range(1, 4):
      gate.release(Outcome.ACCEPTED)
      gate.set_version(version)
      await asyncio.sleep(0)
      await asyncio.sleep(0)
    await asyncio.wait(waiters, timeout=5)
    assert served == [0, 2, 3]
    assert gate.submitted == 4  # the cancelled one took nothing
    assert gate.running == 1

  asyncio.run(main())


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"batch_size": 0}, "batch_size is 0"),
    ({"max_concurrent": 0}, "max_concurrent is 0"),
    ({"max_staleness": -1}, "max_staleness is -1"),
    ({"max_accepted": -1}, "max_accepted is -1"),
  ],
)
def test_bad_arguments(changes, message):
  with pytest.raises(ValueError, match=message):
    make_gate(**changes)


def test_misuse_is_an_error():
  gate = make_gate()
  with pytest.raises(RuntimeError, match="without an acquire"):
    gate.release(Outcome.FAILED)
  with pytest.raises(RuntimeError, match="without an accepted"):
    gate.retract()
  with pytest.raises(ValueError, match="waiting is -1"):
    gate.resume(0, waiting=-1)
  gate.set_version(2)
  with pytest.raises(ValueError, match="versions only grow"):
    gate.set_version(1)


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(
  batch_size=st.integers(1, 4),
  max_concurrent=st.integers(1, 6),
  max_staleness=st.integers(0, 3),
  max_accepted=st.none() | st.integers(0, 12),
  events=st.lists(
    st.sampled_from(
      ["acquire", "cancel", *Outcome, "retract", "publish", "publish"]
    ),
    max_size=60,
  ),
)
def test_no_mix_of_events_breaks_the_counters(
  batch_size, max_concurrent, max_staleness, max_accepted, events
):
  async def main():
    gate = make_gate(
      batch_size=batch_size,
      max_concurrent=max_concurrent,
      max_staleness=max_staleness,
      max_accepted=max_accepted,
    )
    waiting = []
    for event in events:
      if event == "acquire":
        waiting.append(asyncio.create_task(gate.acquire()))
      elif event == "cancel" and waiting:
        waiting.pop().cancel()
      elif event == "retract" and gate.accepted:
        gate.retract()
      elif event == "publish":
        gate.set_version(gate.version + 1)
      elif isinstance(event, Outcome) and gate.running:
        gate.release(event)
      for _ in range(3):
        await asyncio.sleep(0)
      waiting = [task for task in waiting if not task.done()]
      ended = gate.accepted + gate.rejected + gate.failed
      assert gate.submitted == gate.running + ended
      assert 0 <= gate.running <= max_concurrent
      fresh = (max_staleness + gate.version + 1) * batch_size
      assert gate.accepted + gate.running <= fresh
      assert max_accepted is None or gate.accepted <= max_accepted
      assert gate.capacity <= 0 or not waiting  # nobody waits beside room
    for task in waiting:
      task.cancel()

  asyncio.run(main())
