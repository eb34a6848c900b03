"""Runs the event loop of a run under a watchdog."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
import contextlib
import logging
from typing import Any, Self, TypeVar

from arl_jax.run.watchdog import StalledError, Watchdog

T = TypeVar("T")

_CLOSE_SECONDS = 5.0
_LOGGER = logging.getLogger(__name__)


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
      return run_loop(work)
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


def run_loop(work: Coroutine[Any, Any, T]) -> T:
  """Runs a coroutine in a loop of its own, and leaves what does not end.

  Not `asyncio.run`: it waits for an environment that ignores cancellation.
  """
  loop = asyncio.new_event_loop()
  try:
    return loop.run_until_complete(work)
  finally:
    _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
  try:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
      task.cancel()
    if tasks:
      _, left = loop.run_until_complete(
        asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
      )
      if left:
        _LOGGER.warning(
          "%d tasks ignored their cancellation and are left, the first: %r",
          len(left),
          next(iter(left)),
        )
    loop.run_until_complete(loop.shutdown_asyncgens())
  finally:
    loop.close()
