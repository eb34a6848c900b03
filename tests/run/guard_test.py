"""A run's loop ends, whatever is left in it."""

import asyncio
import threading

import pytest

from arl_jax.run import guard
from arl_jax.run.watchdog import StalledError


async def deaf(begun: asyncio.Event) -> None:
  while True:
    try:
      begun.set()
      await asyncio.Event().wait()
    except asyncio.CancelledError:
      pass


@pytest.fixture(autouse=True)
def make_impatient(monkeypatch):
  monkeypatch.setattr(guard, "_CLOSE_SECONDS", 0.05)


def test_what_ignores_its_cancellation_is_left(caplog):
  async def work() -> str:
    begun = asyncio.Event()
    task = asyncio.create_task(deaf(begun), name="deaf")
    await begun.wait()
    left.append(task)
    return "done"

  left: list[asyncio.Task[None]] = []
  assert guard.run_loop(work()) == "done"
  assert "1 tasks ignored their cancellation" in caplog.text
  assert "deaf" in caplog.text
  assert not left[0].done()


def test_what_obeys_has_ended_and_cleaned_up():
  cleaned = []

  async def tidy() -> None:
    try:
      await asyncio.Event().wait()
    finally:
      await asyncio.sleep(0)
      cleaned.append(True)

  async def work() -> None:
    asyncio.create_task(tidy())
    await asyncio.sleep(0)

  guard.run_loop(work())
  assert cleaned == [True]


def test_an_error_passes():
  async def work() -> None:
    raise KeyError("bug")

  with guard.Guard(0) as watched, pytest.raises(KeyError, match="bug"):
    watched.run(work())


def test_a_loop_that_waits_for_nothing_is_ended_with_the_cause():
  async def work() -> None:
    watched.watch({"learner": lambda: "waits for groups"})
    await asyncio.Event().wait()

  with guard.Guard(0.2) as watched:
    with pytest.raises(StalledError, match="learner: waits for groups"):
      watched.run(work())


def test_a_loop_that_moves_is_left_alone():
  count = iter(range(10**9))

  async def work() -> str:
    watched.watch({"learner": lambda: str(next(count))})
    await asyncio.sleep(1.0)
    return "done"

  with guard.Guard(0.3) as watched:
    assert watched.run(work()) == "done"
  assert "watchdog" not in {thread.name for thread in threading.enumerate()}
