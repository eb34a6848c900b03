"""Runs the tool calls of one turn, at once or from answers that were kept."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
import json
from typing import Any, TypeVar

from arl_jax.envs.tools import RunStatus, Tool, ToolAnswer, run_tool

T = TypeVar("T")


class ToolCache:
  """Keeps the answers of tools that say `cache=True`, for one episode.

  A tool is run again after anything but an answer: a failure, a refusal or a
  time-out is not kept. Of equal calls that come at once, one runs and the
  others wait for it.
  """

  def __init__(self):
    self._answers: dict[tuple[str, str], ToolAnswer] = {}
    self._locks: dict[tuple[str, str], asyncio.Lock] = {}

  async def run(self, tool: Tool, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Runs a tool, or gives the answer that it gave to equal arguments.

    Args:
      tool: what to run; one without `cache` is run every time.
      arguments: as the policy wrote them. 1, 1.0, true and "1" differ; the
        order of names does not matter.
    """
    if not tool.cache:
      return await run_tool(tool, arguments)
    try:
      key = (tool.name, json.dumps(arguments, sort_keys=True))
    except (TypeError, ValueError, RecursionError):  # no JSON
      return await run_tool(tool, arguments)
    async with self._locks.setdefault(key, asyncio.Lock()):
      kept = self._answers.get(key)
      if kept is not None:
        return kept
      answer = await run_tool(tool, arguments)
      if answer.status == RunStatus.OK:
        self._answers[key] = ToolAnswer(
          status=answer.status, text=answer.text, num_attempts=0, cached=True
        )
      return answer


async def run_at_once(
  calls: Sequence[Callable[[], Awaitable[T]]], *, max_concurrent: int
) -> tuple[T, ...]:
  """Runs calls concurrently; needs an event loop.

  A call's own time limit starts when its turn comes, not while it waits for
  others to end. Cancelling this cancels all calls.

  Args:
    calls: coroutine functions that turn their failures into answers; an error
      that one raises cancels the others.
    max_concurrent: how many may run at the same time.

  Returns:
    The results in the order of the calls, whichever ended first.

  Raises:
    ValueError: `max_concurrent` is below 1.
  """
  if max_concurrent < 1:
    raise ValueError(f"max_concurrent is {max_concurrent}; expected 1 or more")
  free = asyncio.Semaphore(max_concurrent)

  async def run(call: Callable[[], Awaitable[T]]) -> T:
    async with free:
      return await call()

  async with asyncio.TaskGroup() as group:
    tasks = [group.create_task(run(call)) for call in calls]
  return tuple(task.result() for task in tasks)
