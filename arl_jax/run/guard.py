"""Runs the event loop of a run under a watchdog."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
import contextlib
from typing import Any, Self, TypeVar

from arl_jax.run.watchdog import StalledError, Watchdog

T = TypeVar("T")


class Guard:
  """Ends a run in which nothing moves, also while its loop is torn down."""

  def __init__(self, seconds: float):
    """Takes the time in which something has to move; 0 waits forever."""
    self._seconds = seconds
    self._watchdog = contextlib.ExitStack()
    self._stalled: StalledError | None = None

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *exc: object) -> None:
    self._watchdog.close()

  def run(self, work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a loop of its own.

    Raises:
      StalledError: if nothing moved; it says which component stood still.
    """
    try:
      return asyncio.run(work)
    except asyncio.CancelledError as error:
      raise self._stalled or error from None

  def watch(self, components: Mapping[str, Callable[[], str]]) -> None:
    """Begins to watch; called by the coroutine that `run` runs.

    Args:
      components: a line of text by name, which changes while it gets on.
    """
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None

    def end(error: StalledError) -> None:
      self._stalled = error
      loop.call_soon_threadsafe(main.cancel)

    self._watchdog.enter_context(
      Watchdog(self._seconds, components, on_stall=end)
    )
