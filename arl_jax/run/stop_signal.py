"""Ends a run cleanly when the system or the user asks for it."""

import asyncio
from collections.abc import Coroutine
import contextlib
import signal
import types
from typing import Any, Self, TypeVar

T = TypeVar("T")

_MESSAGE = "\nstopping after what cannot wait; once more to stop at once"


class RunStopped(KeyboardInterrupt):
  """A stop was requested in work that cannot be kept for later.

  To whoever does not know it, Ctrl-C was pressed.
  """


class StopSignal:
  """Turns the first SIGINT or SIGTERM into a request, the second into an end.

  Owns the process's handlers while its block runs. Python runs them in the
  main thread at once, also while that thread computes; so whoever does not
  wait on the event loop can look at `requested` too. Outside the main thread
  nobody may handle signals: there only `request` stops.

  Inside the block of another it takes over the handlers, and each sees what was
  requested of the other.
  """

  def __init__(self) -> None:
    self._requested = False
    self._previous: dict[int, Any] = {}
    self._outer: StopSignal | None = None
    self._waiters: set[asyncio.Future[None]] = set()

  def __enter__(self) -> Self:
    for number in (signal.SIGINT, signal.SIGTERM):
      with contextlib.suppress(ValueError):
        self._previous[number] = signal.signal(number, self._stop)
    owners = (getattr(h, "__self__", None) for h in self._previous.values())
    self._outer = next((o for o in owners if isinstance(o, StopSignal)), None)
    return self

  def __exit__(self, *unused: object) -> None:
    for number, handler in self._previous.items():
      signal.signal(number, handler)
    self._previous.clear()

  @property
  def requested(self) -> bool:
    """Whether a stop was asked for, here or in a block around this one."""
    return self._requested or (
      self._outer is not None and self._outer.requested
    )

  def request(self) -> None:
    """Asks for a stop, as the first signal does; from any thread."""
    self._requested = True
    if self._outer is not None:
      self._outer.request()
    for waiter in list(self._waiters):
      # After a signal, Python goes back to sleep in the selector (PEP 475):
      # only this wakes the loop. One that is closed has nobody waiting.
      with contextlib.suppress(RuntimeError):
        waiter.get_loop().call_soon_threadsafe(_wake, waiter)

  def check(self) -> None:
    """Ends work that cannot be kept, once a stop was requested.

    Raises:
      RunStopped: it was.
    """
    if self.requested:
      raise RunStopped("a stop was requested")

  async def wait(self) -> None:
    """Returns once a stop was requested; any number may wait."""
    waiter = asyncio.get_running_loop().create_future()
    self._waiters.add(waiter)
    try:
      # Looked at only now: a request before this line did not see the waiter.
      if not self.requested:
        await waiter
    finally:
      self._waiters.discard(waiter)

  def _stop(self, number: int, frame: types.FrameType | None) -> None:
    del number, frame
    if self.requested:
      raise KeyboardInterrupt
    self.request()
    # The signal may have come amid another print, or after the terminal went.
    with contextlib.suppress(OSError, RuntimeError, ValueError):
      print(_MESSAGE, flush=True)


def _wake(waiter: asyncio.Future[None]) -> None:
  if not waiter.done():
    waiter.set_result(None)


async def until_stopped(
  stop: StopSignal, work: Coroutine[Any, Any, T]
) -> T | None:
  """Runs a coroutine, but no longer than until a stop is requested.

  Args:
    stop: what ends it early.
    work: cancelled then.

  Returns:
    The coroutine's result; None if it was cancelled.
  """
  running = asyncio.ensure_future(work)
  stopping = asyncio.ensure_future(stop.wait())
  try:
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
      return running.result()
    return None
  finally:
    for task in (running, stopping):
      task.cancel()
    await asyncio.wait((running, stopping))
