"""Ends a run cleanly when the system or the user asks for it."""

import contextlib
import signal
import types
from typing import Any, Self


class StopSignal:
  """Turns the first SIGINT or SIGTERM into a request, the second into an end.

  Owns the process's handlers while its block runs. Python runs them in the
  main thread at once, also while that thread computes; so whoever does not
  wait on the event loop can look at `requested` too.
  """

  def __init__(self) -> None:
    self.requested = False
    self._previous: dict[int, Any] = {}

  def __enter__(self) -> Self:
    for number in (signal.SIGINT, signal.SIGTERM):
      # Outside the main thread nobody may handle signals.
      with contextlib.suppress(ValueError):
        self._previous[number] = signal.signal(number, self._stop)
    return self

  def __exit__(self, *unused: object) -> None:
    for number, handler in self._previous.items():
      signal.signal(number, handler)
    self._previous.clear()

  def _stop(self, number: int, frame: types.FrameType | None) -> None:
    del number, frame
    if self.requested:
      raise KeyboardInterrupt
    self.requested = True
    print("\nstopping after this step; once more to stop at once", flush=True)
