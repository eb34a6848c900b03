"""Runs blocking code in daemon threads, so that the event loop never waits."""

import asyncio
from collections.abc import Callable, Mapping
import contextvars
import functools
import inspect
import threading
from typing import Any, Protocol

from arl_jax.envs.environment import StepResult
from arl_jax.episode import Message, Task

# Calls that may run at once, those that nobody waits for any more included. A
# thread cannot be stopped: without a bound, a tool that always hangs would
# leave one more with every call, until the machine has none left.
MAX_CALLS_ALIVE = 512
# Raised on the event loop, these would interrupt whoever waits.
_INTERRUPTIONS = (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)


class TooManyCallsError(RuntimeError):
  """`MAX_CALLS_ALIVE` calls are running; one more was not started."""


async def call_off_loop(
  function: Callable[..., Any], /, *args: Any, name: str = "call", **kwargs: Any
) -> Any:
  """Runs a blocking function in a daemon thread of its own.

  Whoever waits may stop waiting, by a timeout or by being cancelled. The
  thread goes on, and what it returns or raises then is dropped, also when the
  event loop is closed by then.

  Not `asyncio.to_thread`: its pool joins every worker when the loop closes, so
  one call that never returns would keep the whole run from ending (verl#1948).

  Args:
    function: called with `args` and `kwargs`. One that has a parameter called
      `name` needs `functools.partial`.
    *args: of the function.
    name: of the thread, and in errors.
    **kwargs: of the function.

  Returns:
    What the function returned.

  Raises:
    TooManyCallsError: at once, if `MAX_CALLS_ALIVE` calls are running.
    RuntimeError: the function raised a `KeyboardInterrupt`, `GeneratorExit` or
      `CancelledError`, which would interrupt whoever waits.
    BaseException: anything else that the function raised, as it is.
  """
  call = functools.partial(function, *args, **kwargs)
  return _unpack(name, *await _start(call, name))


def num_calls_alive() -> int:
  """Counts the calls that are running, also those that nobody waits for."""
  return _calls.num_alive


class BlockingEnvironment(Protocol):
  """An `Environment` whose methods are plain functions, which may block.

  Like that one, it may have a `close`.
  """

  def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Stages the task; returns the messages before the first action."""
    ...

  def step(self, action: str) -> StepResult:
    """Answers one action, given as text without its stop token."""
    ...

  def score(self) -> Mapping[str, float]:
    """Judges the episode at its end."""
    ...


class OffLoopEnvironment:
  """Makes an `Environment` of a blocking one; each call runs in a thread.

  Calls never overlap: one waits for the one before it, also where nobody
  waits for that one's answer any more. So after a step that came too late, the
  next one meets the state that it left behind, and one that hangs for ever
  makes all later ones late.

  Args:
    environment: fresh, for one episode alone.

  Example:
    make_environment = lambda: OffLoopEnvironment(MyBlockingEnvironment())
  """

  def __init__(self, environment: BlockingEnvironment):
    for name in ("reset", "step", "score", "close"):
      if inspect.iscoroutinefunction(getattr(environment, name, None)):
        raise ValueError(
          f"{type(environment).__name__}.{name} is a coroutine function;"
          " expected a plain one. Use the environment without"
          " OffLoopEnvironment"
        )
    self._environment = environment
    self._last: asyncio.Future[Any] | None = None
    self._closing: asyncio.Task[Any] | None = None

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Stages the task, in a thread."""
    return await self._call("reset", task, seed=seed)

  async def step(self, action: str) -> StepResult:
    """Answers one action, in a thread."""
    return await self._call("step", action)

  async def score(self) -> Mapping[str, float]:
    """Judges the episode, in a thread."""
    return await self._call("score")

  async def close(self) -> None:
    """Closes the environment if it can be, in a thread.

    Whoever waits may stop waiting for a call that hangs; it is closed after
    that one has ended.
    """
    if hasattr(self._environment, "close"):
      self._closing = asyncio.create_task(self._call("close"))
      await asyncio.shield(self._closing)

  async def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
    while self._last is not None and not self._last.done():
      await asyncio.wait([self._last])  # which cancels it for nobody
    function = getattr(self._environment, method)
    name = f"environment-{method}"
    self._last = _start(functools.partial(function, *args, **kwargs), name)
    return _unpack(name, *await asyncio.shield(self._last))


class _Calls:
  """Counts the calls that are running."""

  def __init__(self):
    self._lock = threading.Lock()
    self.num_alive = 0

  def enter(self, name: str) -> None:
    with self._lock:
      if self.num_alive >= MAX_CALLS_ALIVE:
        raise TooManyCallsError(
          f"{self.num_alive} blocking calls are running, the most that may, so"
          f" {name} was not started; calls that never return use them up: give"
          " what they wait for a timeout of its own"
        )
      self.num_alive += 1

  def leave(self) -> None:
    with self._lock:
      self.num_alive -= 1


_calls = _Calls()


def _start(call: Callable[[], Any], name: str) -> asyncio.Future[Any]:
  """Starts a call; the future will hold its result and its error."""
  loop = asyncio.get_running_loop()
  future: asyncio.Future[Any] = loop.create_future()
  context = contextvars.copy_context()

  def deliver(result: Any, error: BaseException | None) -> None:
    if not future.done():
      future.set_result((result, error))
    else:  # nobody is waiting any more
      _drop(result)

  def work() -> None:
    result, error = None, None
    try:
      result = context.run(call)
    except BaseException as caught:
      error = caught
    finally:
      _calls.leave()
    try:
      loop.call_soon_threadsafe(deliver, result, error)
    except RuntimeError:  # the loop is closed by now
      _drop(result)

  _calls.enter(name)
  try:
    threading.Thread(target=work, name=name, daemon=True).start()
  except BaseException:
    _calls.leave()
    raise
  return future


def _drop(result: Any) -> None:
  if inspect.iscoroutine(result):
    result.close()  # else Python warns that it was never awaited


def _unpack(name: str, result: Any, error: BaseException | None) -> Any:
  if isinstance(error, _INTERRUPTIONS):
    raise RuntimeError(f"{name} raised {type(error).__name__}") from error
  if error is not None:
    raise error
  return result
