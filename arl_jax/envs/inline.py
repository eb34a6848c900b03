"""Runs a coroutine that never waits, without an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_inline(coroutine: Coroutine[Any, Any, T]) -> T:
  """Runs a coroutine to its end in one go.

  Scripted episodes in an environment of inline tools never wait on anything,
  so they need neither a loop nor the caller to be outside of one.

  Raises:
    RuntimeError: the coroutine waited on something.
  """
  try:
    coroutine.send(None)
  except StopIteration as end:
    return end.value
  coroutine.close()
  raise RuntimeError("run_inline got a coroutine that waits; await it instead")
