"""Tools that a policy can call, run so that none can stop an episode."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
import copy
import dataclasses
import enum
import functools
import inspect
import math
import random
from typing import Any

from arl_jax.envs import tool_arguments
from arl_jax.envs.guarded_call import (
  BrokenError,
  LateError,
  call_guarded,
  describe_error,
  error_text,
)
from arl_jax.envs.off_loop import call_off_loop


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
  """What a tool answered, as the policy will read it.

  Attributes:
    status: how its last attempt ended.
    text: the observation.
    num_attempts: how often it was run; 0 if its arguments were refused before,
      or if the answer was kept from an earlier call.
    cost: what the call costs; 0 if the tool was not run.
    cached: whether the answer was kept from an earlier call.
  """

  status: RunStatus
  text: str
  num_attempts: int = 1
  cost: float = 0.0
  cached: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
  """One callable tool.

  Attributes:
    name: a word without spaces.
    description: one sentence for the policy.
    parameters: JSON Schema of the arguments, type `object`.
    function: called with the arguments by name; returns the observation. A
      coroutine function is awaited. Any other runs in a thread of its own.
      Bytes are read as UTF-8, anything else that is no text by `str`.
    timeout_seconds: the longest that one attempt may take.
    inline: run a plain function on the event loop, for work of microseconds.
      There is no timeout then.
    idempotent: whether running it twice is as good as once, even if the first
      run is still going on. Only such a tool is run again after it failed.
    max_retries: how often an idempotent tool is run again.
    backoff_seconds: wait before the first retry, doubled for each after it;
      chance takes off up to a half.
    cost: of each call that is run, however it ends and however often it is
      retried; in units of the reward component `tool_cost`.
    cache: whether an environment keeps its answers and gives them again for
      equal arguments; for idempotent tools whose answers do not change during
      an episode.
  """

  name: str
  description: str
  parameters: Mapping[str, Any]
  function: Callable[..., Any]
  timeout_seconds: float = 30.0
  inline: bool = False
  idempotent: bool = False
  max_retries: int = 2
  backoff_seconds: float = 0.1
  cost: float = 0.0
  cache: bool = False

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
    if self.max_retries < 0:
      raise ValueError(
        f"max_retries of {self.name} is {self.max_retries}; expected 0 or more"
      )
    if not 0 <= self.backoff_seconds < math.inf:
      raise ValueError(
        f"backoff_seconds of {self.name} is {self.backoff_seconds}; expected 0"
        " or more"
      )
    if not 0 <= self.cost < math.inf:
      raise ValueError(
        f"cost of {self.name} is {self.cost}; expected 0 or more. What it costs"
        " is up to the weight of the component tool_cost, which is negative"
      )
    if self.cache and not self.idempotent:
      raise ValueError(
        f"{self.name} has cache=True and idempotent=False; a call whose answer"
        " is kept is not run, so expected idempotent=True"
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


async def run_tool(
  tool: Tool,
  arguments: Mapping[str, Any],
  *,
  sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
  draw: Callable[[], float] = random.random,
) -> ToolAnswer:
  """Runs a tool and turns whatever happens into an observation.

  Only cancellation of the episode itself, and Ctrl-C, pass through.

  An idempotent tool that failed or was late is run again, `max_retries` times
  at most; a refusal is an answer, and final. All attempts together take
  `(max_retries + 1) * timeout_seconds` and waits of at most
  `(2 ** max_retries - 1) * backoff_seconds`. The time limit of the step that
  called the tool holds as well, and ends the tool early if it is shorter.

  Args:
    tool: what to run.
    arguments: as the policy wrote them; checked here.
    sleep: awaited with the seconds between two attempts.
    draw: returns a number from 0 to 1 for each wait, so that tools that failed
      together do not come back together.

  Returns:
    The answer of the last attempt.
  """
  problem = tool_arguments.argument_error(arguments, tool.parameters)
  if problem:
    return ToolAnswer(
      status=RunStatus.BAD_ARGUMENTS, text=f"error: {problem}", num_attempts=0
    )
  num_retries = tool.max_retries if tool.idempotent else 0
  # A tool may change what it is given.
  kept = copy.deepcopy(dict(arguments)) if num_retries else {}
  answer = await _attempt(tool, arguments)
  for retry in range(num_retries):
    if answer.status not in (RunStatus.FAILED, RunStatus.TIMEOUT):
      break
    seconds = tool.backoff_seconds * 2**retry * (1 - draw() / 2)
    if seconds > 0:
      await sleep(seconds)
    answer = dataclasses.replace(
      await _attempt(tool, copy.deepcopy(kept)), num_attempts=retry + 2
    )
  return dataclasses.replace(answer, cost=tool.cost)


async def _attempt(tool: Tool, arguments: Mapping[str, Any]) -> ToolAnswer:
  if tool.inline and not inspect.iscoroutinefunction(tool.function):
    try:
      text = _as_text(tool.function(**arguments))
    except KeyboardInterrupt:
      raise
    except BaseException as error:
      return _failed(tool, error)
    return ToolAnswer(status=RunStatus.OK, text=text)
  try:
    text = await call_guarded(
      functools.partial(_call, tool, arguments),
      timeout_seconds=tool.timeout_seconds,
    )
  except LateError:
    seconds = f"{tool.timeout_seconds:g}"
    text = f"error: {tool.name} took longer than {seconds} seconds"
    return ToolAnswer(status=RunStatus.TIMEOUT, text=text)
  except BrokenError as broken:
    return _failed(tool, broken.error)
  return ToolAnswer(status=RunStatus.OK, text=text)


def _failed(tool: Tool, error: BaseException) -> ToolAnswer:
  if isinstance(error, ToolError):
    text = f"error: {error_text(error)}"
    return ToolAnswer(status=RunStatus.REFUSED, text=text)
  text = f"error: {tool.name} failed with {describe_error(error)}"
  return ToolAnswer(status=RunStatus.FAILED, text=text)


async def _call(tool: Tool, arguments: Mapping[str, Any]) -> str:
  if inspect.iscoroutinefunction(tool.function):
    result = await tool.function(**arguments)
  else:
    result = await call_off_loop(
      _call_blocking, tool.function, arguments, name=f"tool-{tool.name}"
    )
    if inspect.isawaitable(result):
      result = await result
  return _as_text(result)


def _call_blocking(
  function: Callable[..., Any], arguments: Mapping[str, Any]
) -> Any:
  """Runs in the tool's thread, where a result may take long to print too."""
  result = function(**arguments)
  return result if inspect.isawaitable(result) else _as_text(result)


def _as_text(result: Any) -> str:
  if isinstance(result, bytes | bytearray | memoryview):
    return bytes(result).decode("utf-8", errors="replace")
  return str(result)
