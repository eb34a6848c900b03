"""A run in which nothing moves ends and says where it stands."""

import asyncio
from concurrent import futures
import contextlib
import logging
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from arl_jax.run.watchdog import StalledError, Watchdog

PATIENCE = 60
# Real seconds between two looks are a quarter of it.
SECONDS = 0.04


class Run:
  """Components that tell what a test says, under the test's clock."""

  def __init__(self, names=("queue",)):
    self.texts: dict[str, Any] = dict.fromkeys(names, "0 done")
    self.now = 0.0
    self.errors = []
    self.codes = []
    self.stalled, self.exited = threading.Event(), threading.Event()
    self._looks = threading.Semaphore(0)

  def component(self, name):
    def tell():
      text = self.texts[name]
      if isinstance(text, Exception):
        raise text
      return text

    return tell

  def clock(self):
    self._looks.release()
    return self.now

  def on_stall(self, error):
    self.errors.append(error)
    self.stalled.set()

  def exit(self, code):
    self.codes.append(code)
    self.exited.set()

  def watchdog(self, seconds=SECONDS, **changes):
    options = {
      "on_stall": self.on_stall,
      "exit": self.exit,
      "clock": self.clock,
      "grace_seconds": PATIENCE,
    }
    components = {name: self.component(name) for name in self.texts}
    return Watchdog(seconds, components, **(options | changes))

  def look(self):
    """Waits until everything was looked at, all as it is now."""
    while self._looks.acquire(blocking=False):
      pass
    end = time.monotonic() + PATIENCE
    # The second look begins after the first ended; a stall ends them.
    for _ in range(2):
      while not self._looks.acquire(timeout=0.01):
        if self.stalled.is_set():
          return
        assert time.monotonic() < end

  def advance(self, seconds):
    """Lets time pass in steps that a running process takes."""
    self.look()
    for _ in range(round(seconds / SECONDS * 4)):
      self.now += SECONDS / 4
      self.look()

  def advance_until_stalled(self):
    for _ in range(8):
      self.advance(SECONDS / 4)
    assert self.stalled.is_set()


def test_a_run_that_moves_is_left_alone():
  run = Run(["queue", "engine"])
  with run.watchdog():
    for number in range(8):
      # Any component will do, and most of the time allowed passes.
      run.texts["queue" if number % 2 else "engine"] = f"{number + 1} done"
      run.advance(SECONDS * 0.75)
  assert not run.errors
  assert not run.codes


def test_a_run_that_stands_still_is_told_to_end_once():
  run = Run()
  with run.watchdog():
    run.advance(SECONDS * 0.75)
    assert not run.stalled.is_set()
    run.advance_until_stalled()
    run.now += 10 * SECONDS
  (error,) = run.errors
  assert isinstance(error, StalledError)
  assert isinstance(error, RuntimeError)
  assert not run.codes


def test_the_message_lists_who_stood_longest_first():
  run = Run(["engine", "queue", "learner"])
  run.texts["learner"] = "step 7, 3 of 4 micro-batches"
  with run.watchdog(seconds=0.5):
    for name, text in (("learner", "step 8"), ("engine", "3 rows decoding")):
      run.look()
      run.now += 0.125
      run.texts[name] = text
      run.look()
    for _ in range(4):
      run.now += 0.125
      run.look()
    assert run.stalled.wait(PATIENCE)
  (error,) = run.errors
  lines = str(error).splitlines()
  assert lines[:4] == [
    "nothing moved for 0.5 seconds; the run stands at",
    "  queue: 0 done, unchanged for 0.8 seconds",
    "  learner: step 8, unchanged for 0.6 seconds",
    "  engine: 3 rows decoding, unchanged for 0.5 seconds",
  ]
  assert "the same command goes on from the last checkpoint" in lines[-1]


def test_the_message_says_where_the_main_and_the_device_thread_are():
  run, release = Run(), threading.Event()

  def compute_without_end():
    release.wait(PATIENCE)

  with futures.ThreadPoolExecutor(1, "device") as device:
    device.submit(compute_without_end)
    with run.watchdog():
      run.advance_until_stalled()
    release.set()
  message = str(run.errors[0])
  assert "thread MainThread is in threading.py" in message
  assert "watchdog_test.py" in message
  # A test before this one may have left a device thread of its own.
  lines = [line for line in message.splitlines() if "thread device" in line]
  (line,) = [line for line in lines if "compute_without_end" in line]
  assert "thread watchdog" not in message
  assert len(line) < 300


def test_time_in_which_the_process_was_stopped_does_not_count():
  run = Run()
  with run.watchdog():
    for _ in range(5):
      run.look()
      run.now += 100 * SECONDS
    run.look()
    assert not run.stalled.is_set()
    run.advance_until_stalled()
  assert run.errors


def test_a_component_that_raises_ends_neither_the_watch_nor_the_stall():
  run = Run(["queue", "engine"])
  with run.watchdog():
    run.look()
    run.texts["engine"] = ValueError("no row yet")
    run.look()
    for number in range(4):
      run.texts["queue"] = f"{number + 1} done"
      run.advance(SECONDS * 0.75)
    assert not run.stalled.is_set()
    # Failing now and then is no movement.
    for number in range(8):
      run.texts["queue"] = KeyError("row") if number % 2 else "4 done"
      run.advance(SECONDS / 4)
    assert run.stalled.is_set()
  message = str(run.errors[0])
  expected = "engine: 0 done (now it cannot tell: ValueError('no row yet'))"
  assert expected in message
  assert "queue: 4 done" in message


def test_a_component_that_never_told_anything_is_listed():
  run = Run()
  run.texts["queue"] = ValueError("not built")
  with run.watchdog():
    run.advance_until_stalled()
  message = str(run.errors[0])
  assert "queue: nothing told (now it cannot tell: ValueError(" in message


def test_the_process_ends_if_the_run_does_not(caplog, capfd):
  run = Run()
  with caplog.at_level(logging.ERROR):
    with run.watchdog(grace_seconds=0.01):
      run.advance_until_stalled()
      assert run.exited.wait(PATIENCE)
  assert run.codes == [1]
  assert "did not end" in caplog.text
  assert "queue: 0 done" in caplog.text
  stacks = capfd.readouterr().err
  assert "most recent call first" in stacks
  assert "test_the_process_ends_if_the_run_does_not" in stacks


def test_a_run_that_cannot_be_told_ends_all_the_same(caplog):
  run = Run()

  def fail(error):
    run.on_stall(error)
    raise OSError("the loop is closed")

  with run.watchdog(on_stall=fail, grace_seconds=0.01):
    run.advance_until_stalled()
    assert run.exited.wait(PATIENCE)
  assert run.codes == [1]
  assert "the loop is closed" in caplog.text


def test_a_blocked_event_loop_is_seen_and_ended():
  run, release = Run(), threading.Event()

  async def block():
    # What a tool does that was not written for an event loop.
    release.wait(PATIENCE)
    await asyncio.sleep(PATIENCE)

  async def main():
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end(error):
      run.on_stall(error)
      loop.call_soon_threadsafe(task.cancel)
      release.set()

    with run.watchdog(1.0, on_stall=end, clock=time.monotonic):
      await block()

  with pytest.raises(asyncio.CancelledError):
    asyncio.run(main())
  assert "block" in str(run.errors[0])
  assert not run.codes


_BLOCKED = """
import asyncio, threading, time
from arl_jax.run.watchdog import Watchdog
async def stuck_in_a_tool():
  threading.Event().wait()
with Watchdog(
  1.0, {"queue": lambda: "3 of 8 groups"}, on_stall=print, grace_seconds=0.1
):
  asyncio.run(stuck_in_a_tool())
"""


def test_a_process_whose_loop_never_comes_back_ends_with_code_1():
  done = subprocess.run(
    [sys.executable, "-c", _BLOCKED],
    capture_output=True,
    text=True,
    timeout=PATIENCE,
    check=False,
  )
  assert done.returncode == 1
  assert "queue: 3 of 8 groups" in done.stderr
  assert "stuck_in_a_tool" in done.stderr


def test_zero_seconds_watch_nothing():
  before = threading.active_count()
  with Run().watchdog(seconds=0):
    assert threading.active_count() == before


@pytest.mark.parametrize("fails", [False, True])
def test_the_thread_ends_with_the_block(fails):
  names = []
  with contextlib.suppress(KeyError):
    with Run().watchdog():
      names = [thread.name for thread in threading.enumerate()]
      if fails:
        raise KeyError
  assert "watchdog" in names
  assert "watchdog" not in [thread.name for thread in threading.enumerate()]


def test_wrong_arguments_are_named():
  def watchdog(seconds, names=("a",), **options):
    components = {name: str for name in names}
    return Watchdog(seconds, components, on_stall=print, **options)

  with pytest.raises(ValueError, match="seconds is -1; expected 0 or more"):
    watchdog(-1)
  with pytest.raises(ValueError, match="grace_seconds is nan"):
    watchdog(1, grace_seconds=float("nan"))
  with pytest.raises(ValueError, match="components is empty"):
    watchdog(1, names=())
