"""Tools that a policy can call, run so that none can stop an episode."""

import asyncio
from collections.abc import Callable, Mapping
import contextlib
import dataclasses
import enum
import inspect
import threading
from typing import Any

from arl_jax.envs import tool_arguments


class ToolError(Exception):
  """A tool's refusal; its text is the observation."""


class RunStatus(enum.StrEnum):
  """How the run of one tool ended."""

  OK = "ok"
  BAD_ARGUMENTS = "bad_arguments"
  REFUSED = "refused"  # the tool raised ToolError
  FAILED = "failed"  # the tool raised anything else
  TIMEOUT = "timeout"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ToolAnswer:
  """What a tool answered, as the policy will read it."""

  status: RunStatus
  text: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
  """One callable tool.

  Attributes:
    name: a word without spaces.
    description: one sentence for the policy.
    parameters: JSON Schema of the arguments, type `object`.
    function: called with the arguments by name; returns the observation. A
      coroutine function is awaited. Any other runs in a thread of its own.
    timeout_seconds: the longest it may take.
    inline: run a plain function on the event loop, for work of microseconds.
      There is no timeout then.
  """

  name: str
  description: str
  parameters: Mapping[str, Any]
  function: Callable[..., Any]
  timeout_seconds: float = 30.0
  inline: bool = False

  def __post_init__(self) -> None:
    if not self.name or any(character.isspace() for character in self.name):
      raise ValueError(f"tool name is {self.name!r}; expected one word")
    if self.parameters.get("type") != "object":
      raise ValueError(f"the parameters of {self.name} need type 'object'")
    if not self.timeout_seconds > 0:
      raise ValueError(
        f"timeout_seconds of {self.name} is {self.timeout_seconds};"
        " expected a positive number"
      )
    tool_arguments.check_schema(self.parameters, where=self.name)

  @property
  def schema(self) -> dict[str, Any]:
    """The tool in the form that OpenAI and chat templates use."""
    return {
      "type": "function",
      "function": {
        "name": self.name,
        "description": self.description,
        "parameters": dict(self.parameters),
      },
    }

  @property
  def parameter_names(self) -> tuple[str, ...]:
    """The parameters in the order of the schema."""
    return tuple(self.parameters.get("properties", {}))


async def run_tool(tool: Tool, arguments: Mapping[str, Any]) -> ToolAnswer:
  """Runs a tool and turns whatever happens into an observation.

  Only cancellation of the episode itself passes through.
  """
  problem = tool_arguments.argument_error(arguments, tool.parameters)
  if problem:
    return ToolAnswer(status=RunStatus.BAD_ARGUMENTS, text=f"error: {problem}")
  try:
    text = str(await _call(tool, arguments))
  except ToolError as error:
    return ToolAnswer(status=RunStatus.REFUSED, text=f"error: {error}")
  except _TooLateError:
    seconds = f"{tool.timeout_seconds:g}"
    text = f"error: {tool.name} took longer than {seconds} seconds"
    return ToolAnswer(status=RunStatus.TIMEOUT, text=text)
  except (Exception, SystemExit) as error:
    detail = f"{type(error).__name__}: {error}".rstrip(": ")
    text = f"error: {tool.name} failed with {detail}"
    return ToolAnswer(status=RunStatus.FAILED, text=text)
  return ToolAnswer(status=RunStatus.OK, text=text)


class _TooLateError(Exception):
  """The limit of the tool passed, told apart from its own TimeoutError."""


async def _call(tool: Tool, arguments: Mapping[str, Any]) -> Any:
  is_coroutine = inspect.iscoroutinefunction(tool.function)
  if tool.inline and not is_coroutine:
    return tool.function(**arguments)
  start = tool.function if is_coroutine else _in_thread(tool)
  limit = asyncio.timeout(tool.timeout_seconds)
  try:
    async with limit:
      result = await start(**arguments)
      return await result if inspect.isawaitable(result) else result
  except TimeoutError:
    if limit.expired():
      raise _TooLateError from None
    raise


def _in_thread(tool: Tool) -> Callable[..., Any]:
  """Makes a blocking function awaitable, in a daemon thread per call.

  Not `asyncio.to_thread`: its pool joins every worker when the loop closes, so
  one tool that never returns would keep the whole run from ending (verl#1948).
  """

  async def call(**arguments: Any) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def deliver(result: Any, error: BaseException | None) -> None:
      if not future.done():  # else the episode has stopped waiting
        future.set_result((result, error))

    def work() -> None:
      result, error = None, None
      try:
        result = tool.function(**arguments)
      except (Exception, SystemExit) as caught:
        error = caught
      with contextlib.suppress(RuntimeError):  # the loop may be closed by now
        loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=work, name=f"tool-{tool.name}", daemon=True).start()
    result, error = await future
    if error is not None:
      raise error
    return result

  return call
