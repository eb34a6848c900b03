"""Ends a run in which nothing moves, and says where it stands."""

from collections.abc import Callable, Mapping
import contextlib
import dataclasses
import faulthandler
import logging
import os
import pathlib
import sys
import threading
import time
import traceback
from typing import Self

_LOGGER = logging.getLogger(__name__)
# Threads whose place is told, by the beginnings of their names.
_THREADS = ("MainThread", "device", "engine", "learner")
_NUM_FRAMES = 4
_MAX_POLL_SECONDS = 1.0
_POLLS = 4
_REPORT_SECONDS = 10.0


class StalledError(RuntimeError):
  """Nothing of a run moved; the message says what stood where."""


@dataclasses.dataclass
class _Seen:
  text: str
  since: float
  problem: str = ""


class Watchdog:
  """Watches a run from a thread of its own, so that it sees a blocked loop too.

  Each component tells in a line of text where it is; the run moves as long as
  any of the lines changes. When none did for `seconds`, `on_stall` is called
  once, in the watchdog's thread, with an error that lists the components, the
  one that stood longest first, and where the main and device threads are. If
  the block is not left within `grace_seconds` after that, the process ends:
  what is on disk is whole then, as after a kill.

  Time in which the whole process was stopped, as by Ctrl-Z, does not count. A
  thread that computes without letting other Python threads run hides from the
  watchdog as from all others.
  """

  def __init__(
    self,
    seconds: float,
    components: Mapping[str, Callable[[], str]],
    *,
    on_stall: Callable[[StalledError], object],
    grace_seconds: float = 30.0,
    exit: Callable[[int], object] = os._exit,
    clock: Callable[[], float] = time.monotonic,
  ) -> None:
    """Prepares to watch; the thread runs while the block does.

    Args:
      seconds: how long nothing may move; 0 watches nothing. More than the
        longest single piece of work: accelerators compile for minutes, so 1800
        is a good value.
      components: functions by name that return a line of text, which changes
        while the component gets on: counts of what is done, not of time. They
        are called from the watchdog's thread, and must not wait for anything.
        One that raises does not count as having moved.
      on_stall: makes the run fail; it must not block.
      grace_seconds: how long the run may take to end.
      exit: ends the process with a code.
      clock: a monotonic clock, in seconds.

    Raises:
      ValueError: if `seconds` or `grace_seconds` is negative, or `components`
        is empty.
    """
    for name, value in (("seconds", seconds), ("grace_seconds", grace_seconds)):
      if not value >= 0:
        raise ValueError(
          f"{name} is {value}; expected 0 or more"
          + (", 0 to watch nothing" if name == "seconds" else "")
        )
    if not components:
      raise ValueError("components is empty; name at least one to watch")
    self._seconds = seconds
    self._components = dict(components)
    self._on_stall = on_stall
    self._grace_seconds = grace_seconds
    self._exit = exit
    self._clock = clock
    self._left = threading.Event()
    self._thread: threading.Thread | None = None

  def __enter__(self) -> Self:
    if self._seconds:
      self._left.clear()
      self._thread = threading.Thread(
        target=self._watch, name="watchdog", daemon=True
      )
      self._thread.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._left.set()
    if self._thread is not None:
      self._thread.join(_REPORT_SECONDS)
      self._thread = None

  def _watch(self) -> None:
    error = self._wait_for_stall()
    if error is None:
      return
    try:
      self._on_stall(error)
    except Exception:
      _LOGGER.exception("a stalled run could not be told to end")
    if self._left.wait(self._grace_seconds):
      return
    # Whoever holds the log or fills its pipe may be what stands still.
    report = threading.Thread(target=_report, args=(error,), daemon=True)
    report.start()
    report.join(_REPORT_SECONDS)
    self._exit(1)

  def _wait_for_stall(self) -> StalledError | None:
    """Returns what to raise once nothing moved; None if the block ended."""
    pause = min(_MAX_POLL_SECONDS, self._seconds / _POLLS)
    now = moved = self._clock()
    seen = {name: _Seen("", now) for name in self._components}
    while not self._left.wait(pause):
      before, now = now, self._clock()
      # Between two looks, not even the watchdog ran: nor could anything else.
      stopped = now - before if now - before > self._seconds / 2 else 0.0
      moved += stopped
      for name, status in seen.items():
        status.since += stopped
        if self._look(name, status):
          status.since = moved = now
      if now - moved >= self._seconds:
        return StalledError(_describe(seen, now, now - moved))
    return None

  def _look(self, name: str, status: _Seen) -> bool:
    """Updates a component's text; True if it changed."""
    before = status.text
    try:
      status.text, status.problem = str(self._components[name]()), ""
    except Exception as error:
      status.problem = f" (now it cannot tell: {error!r})"
    return status.text != before


def _describe(seen: Mapping[str, _Seen], now: float, seconds: float) -> str:
  lines = [f"nothing moved for {seconds:.1f} seconds; the run stands at"]
  for name, status in sorted(seen.items(), key=lambda item: item[1].since):
    lines.append(
      f"  {name}: {status.text or 'nothing told'}{status.problem}, unchanged"
      f" for {now - status.since:.1f} seconds"
    )
  lines += _places()
  lines.append(
    "If it only was slow, allow more seconds; else the same command goes on"
    " from the last checkpoint"
  )
  return "\n".join(lines)


def _places() -> list[str]:
  """Says in a line each where the threads that matter are."""
  names = {thread.ident: thread.name for thread in threading.enumerate()}
  lines = []
  for ident, frame in sys._current_frames().items():
    name = names.get(ident, "")
    if not name.startswith(_THREADS):
      continue
    stack = traceback.StackSummary.extract(
      traceback.walk_stack(frame), limit=_NUM_FRAMES, lookup_lines=False
    )
    places = [
      f"{pathlib.Path(entry.filename).name}:{entry.lineno} {entry.name}"
      for entry in stack
    ]
    lines.append(f"  thread {name} is in {' < '.join(places)}")
  return sorted(lines)


def _report(error: StalledError) -> None:
  # The stacks first: writing them takes no lock.
  if sys.__stderr__ is not None:
    with contextlib.suppress(OSError, ValueError):
      faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
  _LOGGER.error("the stalled run did not end, so its process does: %s", error)
