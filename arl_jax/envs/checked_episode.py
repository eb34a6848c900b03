"""Plays one episode, and checks each answer of its environment."""

import asyncio
from collections.abc import Mapping
import inspect
import math
import traceback
from typing import Any, Self

from arl_jax.envs.environment import StepResult
from arl_jax.envs.guarded_call import (
  BrokenError,
  LateError,
  call_guarded,
  describe_error,
)
from arl_jax.episode import Message, Task

_ROLES = ("system", "user", "assistant", "tool")
# What was asked, such as "step 2", with the answer.
Events = list[tuple[str, Any]]


class CheckError(Exception):
  """What is wrong with an environment, and what to do about it."""


class Player:
  """Plays one episode.

  Use as `async with player`, which closes an environment that can be closed.

  Attributes:
    task: what is asked.
    events: all answers so far, in order.
    ended: whether the environment said that the task ended.
  """

  def __init__(
    self, environment: Any, task: Task, *, seed: int, timeout_seconds: float
  ):
    self.task = task
    self.events: Events = []
    self.ended = False
    self._environment = environment
    self._seed = seed
    self._timeout_seconds = timeout_seconds
    self._num_steps = 0

  async def __aenter__(self) -> Self:
    return self

  async def __aexit__(self, kind: object, error: object, _: object) -> None:
    if not hasattr(self._environment, "close"):
      return
    try:
      await self._ask("close")
    except CheckError:
      if error is None:  # else that one says more
        raise

  async def open(self) -> None:
    """Stages the task."""
    prompt = await self._ask("reset", self.task, seed=self._seed)
    self._record("reset", _messages(prompt, f"{self._where()}: reset"))

  async def act(self, action: str) -> bool:
    """Takes one step; returns whether the task ended."""
    self._num_steps += 1
    name = f"step {self._num_steps}"
    result = await self._ask("step", action)
    self._record(name, _step_result(result, f"{self._where()}: {name}"))
    self.ended = self.events[-1][1].terminated
    return self.ended

  async def score(self) -> None:
    """Scores the episode."""
    score = await self._ask("score")
    where = f"{self._where()}: score"
    components = _components(score, where)
    if components.get("success") not in (0, 1):
      raise CheckError(
        f"{where} answered {components}; expected a component `success` that"
        " is 0 or 1"
      )
    self._record("score", components)

  async def cancel(self, action: str) -> bool:
    """Cancels a step under way, as a time limit does.

    Returns:
      Whether it was under way; False if it answers without ever waiting.
    """
    step = asyncio.ensure_future(self._call("step", action))
    await asyncio.sleep(0)
    if step.done():
      step.exception()  # that of a step is another check's business
      return False
    step.cancel()
    await asyncio.wait([step], timeout=self._timeout_seconds)
    where = f"{self._where()}: step"
    advice = "let the CancelledError through"
    if not step.done():
      raise CheckError(
        f"{where} went on for {self._timeout_seconds:g} seconds after it was"
        f" cancelled; {advice}"
      )
    if not step.cancelled():
      error = step.exception()
      found = "answered" if error is None else f"raised {describe_error(error)}"
      raise CheckError(f"{where} {found} when it was cancelled; {advice}")
    return True

  def _where(self) -> str:
    return f"task {self.task.task_id!r}"

  def _record(self, name: str, answer: Any) -> None:
    self.events.append((name, answer))

  async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
    method = getattr(self._environment, name, None)
    kind = type(self._environment).__name__
    if method is None:
      raise CheckError(f"{kind} has no method {name}")
    found = method(*args, **kwargs)
    if not inspect.isawaitable(found):
      raise CheckError(
        f"{kind}.{name} returned a {type(found).__name__}, not an awaitable;"
        " use `async def`, or put the environment into an OffLoopEnvironment"
      )
    return await found

  async def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
    try:
      return await call_guarded(
        lambda: self._call(name, *args, **kwargs),
        timeout_seconds=self._timeout_seconds,
      )
    except LateError as late:
      raise CheckError(f"{self._where()}: {name} gave {late}") from None
    except BrokenError as broken:
      if isinstance(broken.error, CheckError):
        raise broken.error from None
      frames = traceback.extract_tb(broken.error.__traceback__)
      last = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
      raise CheckError(
        f"{self._where()}: {name} raised {describe_error(broken.error)} at"
        f" {last}"
      ) from broken.error


def _messages(found: Any, where: str) -> tuple[Message, ...]:
  if not isinstance(found, tuple | list):
    raise CheckError(
      f"{where} gave {_kind(found)}; expected a tuple of messages"
    )
  for message in found:
    if not isinstance(message, Message):
      raise CheckError(f"{where} gave {_kind(message)}; expected a Message")
    if message.role not in _ROLES:
      raise CheckError(
        f"{where} gave a message of role {message.role!r}; expected one of"
        f" {_ROLES}"
      )
    if not isinstance(message.content, str):
      raise CheckError(
        f"{where} gave a message whose content is {_kind(message.content)};"
        " expected a str"
      )
  return tuple(found)


def _step_result(found: Any, where: str) -> StepResult:
  if not isinstance(found, StepResult):
    raise CheckError(f"{where} gave {_kind(found)}; expected a StepResult")
  _messages(found.observations, where)
  _components(found.rewards, where)
  if not isinstance(found.terminated, bool):
    raise CheckError(
      f"{where} has terminated={found.terminated!r}; expected a bool"
    )
  if not isinstance(found.state_key, str | None):
    raise CheckError(
      f"{where} has a state_key that is {_kind(found.state_key)}; expected a"
      " str or None"
    )
  for name in ("num_tool_calls", "num_tool_errors"):
    count = getattr(found, name)
    if not isinstance(count, int) or count < 0:
      raise CheckError(f"{where} has {name}={count!r}; expected a count")
  return found


def _components(found: Any, where: str) -> dict[str, float]:
  if not isinstance(found, Mapping):
    raise CheckError(
      f"{where} gave {_kind(found)}; expected reward components by name"
    )
  for name, value in found.items():
    if not isinstance(name, str):
      raise CheckError(f"{where} named a component {name!r}; expected a str")
    if not isinstance(value, int | float) or not math.isfinite(value):
      raise CheckError(
        f"{where} has the component {name}={value!r}; expected a finite number"
      )
  return dict(found)


def _kind(value: Any) -> str:
  return "None" if value is None else f"a {type(value).__name__}"
