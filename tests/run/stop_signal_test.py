"""The first signal is a request, the second an end."""

import asyncio
import io
import os
import signal
import sys
import threading
import time

import pytest

from arl_jax.run.stop_signal import RunStopped, StopSignal

PATIENCE = 30


def run(work):
  """Runs a coroutine that must end by itself."""
  return asyncio.run(asyncio.wait_for(work, PATIENCE))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request(number, capsys):
  before = signal.getsignal(number)
  with StopSignal() as stop:
    assert not stop.requested
    os.kill(os.getpid(), number)
    assert stop.requested
  message = capsys.readouterr().out
  assert "once more to stop at once" in message
  assert "once more to stop at once" in message
  assert signal.getsignal(number) == before


def test_the_second_signal_ends():
  with StopSignal() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
    assert stop.requested


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_wakes_a_loop_that_sleeps(number):
  async def work(stop):
    # The loop has nothing else to do: it sleeps in the selector.
    timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
    timer.start()
    await stop.wait()
    timer.join()

  with StopSignal() as stop:
    run(work(stop))
    assert stop.requested


def test_one_inside_another_shares_its_requests():
  with StopSignal() as outer:
    with StopSignal() as inner:
      inner.check()
      os.kill(os.getpid(), signal.SIGTERM)
      assert outer.requested
      with pytest.raises(RunStopped):
        inner.check()
      with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    with StopSignal() as late:
      assert late.requested
  with StopSignal() as outer, StopSignal() as inner:
    outer.request()
    assert inner.requested


def test_all_who_wait_are_woken_and_who_comes_later_does_not_wait():
  async def work(stop):
    waiting = [asyncio.create_task(stop.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.gather(*waiting)
    await stop.wait()
    await asyncio.gather(stop.wait(), stop.wait())

  with StopSignal() as stop:
    run(work(stop))
    # Nor in another loop.
    run(stop.wait())


def test_a_waiter_that_was_cancelled_does_not_disturb_the_others():
  async def work(stop):
    given_up, waiting = (asyncio.create_task(stop.wait()) for _ in range(2))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    # Cancelled between the signal and the loop's turn.
    given_up.cancel()
    await waiting
    with pytest.raises(asyncio.CancelledError):
      await given_up

  with StopSignal() as stop:
    run(work(stop))


def test_nobody_is_woken_without_a_request():
  async def work(stop):
    waiting = asyncio.create_task(stop.wait())
    for _ in range(10):
      await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()

  with StopSignal() as stop:
    run(work(stop))


def test_a_loop_that_was_closed_around_a_waiter_is_no_trouble():
  with StopSignal() as stop:
    loop = asyncio.new_event_loop()
    task = loop.create_task(stop.wait())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    stop.request()
    assert stop.requested
    # Or asyncio complains of a task that nobody ended.
    setattr(task, "_log_destroy_pending", False)  # noqa: B010


def test_outside_the_main_thread_only_a_request_stops():
  before = signal.getsignal(signal.SIGTERM)
  waits, woken = threading.Event(), threading.Event()
  stops = []

  async def work():
    with StopSignal() as stop:
      stops.append(stop)
      asyncio.get_running_loop().call_soon(waits.set)
      await stop.wait()
    woken.set()

  thread = threading.Thread(target=asyncio.run, args=(work(),))
  thread.start()
  assert waits.wait(PATIENCE)
  assert signal.getsignal(signal.SIGTERM) == before
  assert not woken.is_set()
  stops[0].request()
  assert woken.wait(PATIENCE)
  thread.join(PATIENCE)
  assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_to_a_main_thread_without_a_loop_wakes_a_loop_elsewhere():
  waits = threading.Event()

  async def work(stop):
    asyncio.get_running_loop().call_soon(waits.set)
    await stop.wait()

  with StopSignal() as stop:
    thread = threading.Thread(target=run, args=(work(stop),))
    thread.start()
    assert waits.wait(PATIENCE)
    os.kill(os.getpid(), signal.SIGINT)
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("error", [RuntimeError, BrokenPipeError, ValueError])
def test_a_stop_does_not_depend_on_a_terminal(error, monkeypatch):
  class Broken(io.StringIO):
    def write(self, text):
      raise error("reentrant call, or no terminal")

  with StopSignal() as stop:
    monkeypatch.setattr(sys, "stdout", Broken())
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.requested


def test_a_computing_main_thread_sees_the_request():
  with StopSignal() as stop:
    threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGTERM)).start()
    end = time.monotonic() + PATIENCE
    while not stop.requested and time.monotonic() < end:
      sum(range(100))
    assert stop.requested
