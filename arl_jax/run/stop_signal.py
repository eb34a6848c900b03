"""Ends a run cleanly when the system or the user asks for it."""

import asyncio
import contextlib
import signal


class StopSignal:
  """Turns the first SIGINT or SIGTERM into a stop after the current step."""

  def __init__(self) -> None:
    self.requested = False

  def __enter__(self) -> "StopSignal":
    for number in (signal.SIGINT, signal.SIGTERM):
      # Outside the main thread nobody may handle signals.
      with contextlib.suppress(ValueError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(number, self._stop)
    return self

  def __exit__(self, *unused: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
      with contextlib.suppress(ValueError, RuntimeError):
        asyncio.get_running_loop().remove_signal_handler(number)

  def _stop(self) -> None:
    self.requested = True
    print("\nstopping after this step; once more to stop at once")
    self.__exit__()
