"""Awaits foreign code, and tells its failures from those of its caller."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


class LateError(Exception):
  """The call took longer than it may."""


class BrokenError(Exception):
  """The call raised `error`, whatever that is.

  Attributes:
    error: what the call raised: a `SystemExit`, and a `CancelledError` that
      nobody had asked for, among others.
  """

  def __init__(self, error: BaseException):
    super().__init__(describe_error(error))
    self.error = error


def error_text(error: BaseException) -> str:
  """Returns the text of an error, and something else if that fails too."""
  try:
    return str(error)
  except Exception:
    return "<no readable text>"


def describe_error(error: BaseException) -> str:
  """Returns the kind of an error and its text."""
  return f"{type(error).__name__}: {error_text(error)}".rstrip(": ")


async def call_guarded(
  call: Callable[[], Awaitable[Any]], *, timeout_seconds: float
) -> Any:
  """Awaits what `call` returns; needs to run in an asyncio task.

  Cancellation passes through, even where the call swallows it or raises
  something else on its way out. So do `KeyboardInterrupt` and `GeneratorExit`.

  Args:
    call: foreign code, started inside the guard.
    timeout_seconds: the longest that it may take, after which it is cancelled.

  Returns:
    What it answered.

  Raises:
    LateError: it took longer. Its own `TimeoutError` is no such thing.
    BrokenError: it raised anything else.
  """
  task = asyncio.current_task()
  if task is None:
    raise RuntimeError("call_guarded needs to be awaited in an asyncio task")
  num_cancelled = task.cancelling()
  limit = asyncio.timeout(timeout_seconds)
  result, error = None, None
  async with limit:
    try:
      result = await call()
    except (KeyboardInterrupt, GeneratorExit):
      raise
    except BaseException as caught:
      error = caught
  # The limit has taken its own cancellation back by now.
  if task.cancelling() > num_cancelled:
    raise asyncio.CancelledError from error
  if limit.expired():
    raise LateError(f"no answer within {timeout_seconds:g} seconds") from error
  if error is not None:
    raise BrokenError(error) from error
  return result
