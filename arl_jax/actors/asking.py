"""Asks an environment, and tells its failures from all others."""

from collections.abc import AsyncIterator, Callable
import contextlib
import inspect
import logging
import traceback
from typing import Any, TypeVar

from arl_jax.actors import answers
from arl_jax.envs.environment import Environment
from arl_jax.envs.guarded_call import (
  BrokenError,
  LateError,
  call_guarded,
  describe_error,
)
from arl_jax.episode import Int32Array

T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)


class EnvironmentFailure(Exception):
  """The environment broke, so its episode cannot be judged."""


class EnvironmentLate(EnvironmentFailure):
  """The environment did not answer in time."""


async def ask(
  call: Callable[[], Any],
  name: str,
  *,
  timeout_seconds: float,
  read: Callable[[Any], T],
) -> T:
  """Waits for the environment.

  Args:
    call: a method of the environment, with its arguments.
    name: of the method.
    timeout_seconds: the longest that it may take.
    read: checks and cleans the answer.

  Raises:
    EnvironmentLate: it took longer.
    EnvironmentFailure: it raised, or `read` refused what it answered.
  """

  async def answer() -> T:
    found = call()
    if not inspect.isawaitable(found):
      raise answers.AnswerError(
        f"it returned a {type(found).__name__}, not an awaitable; use `async"
        " def`, or put the environment into an OffLoopEnvironment"
      )
    return read(await found)

  try:
    return await call_guarded(answer, timeout_seconds=timeout_seconds)
  except LateError as late:
    raise EnvironmentLate(f"{late} ({name})") from None
  except BrokenError as broken:
    raise EnvironmentFailure(_describe(broken.error, name)) from broken.error


def rendered(render: Callable[[], Int32Array], name: str) -> Int32Array:
  """Renders messages; that a template refuses them is their fault.

  Raises:
    EnvironmentFailure: the template refused what the method `name` answered.
  """
  try:
    return render()
  except ValueError as error:
    raise EnvironmentFailure(
      f"the chat template refuses what environment.{name} answered: {error}"
    ) from error


@contextlib.asynccontextmanager
async def closing(
  environment: Environment, *, timeout_seconds: float, session: str
) -> AsyncIterator[None]:
  """Closes an environment that can be closed, also in a cancelled task.

  That it fails to is logged.

  Args:
    environment: with or without a `close`.
    timeout_seconds: the longest that closing may take.
    session: names the episode in the log.
  """
  try:
    yield
  finally:
    close = getattr(environment, "close", None)
    if close is not None:
      try:
        await ask(
          close,
          "close",
          timeout_seconds=timeout_seconds,
          read=lambda _: None,
        )
      except EnvironmentFailure as failure:
        _LOGGER.warning("episode %s: %s", session, failure)


def _describe(error: BaseException, name: str) -> str:
  if isinstance(error, answers.AnswerError):
    return f"environment.{name} gave a wrong answer: {error}"
  trace = "".join(traceback.format_exception(error))
  return f"environment.{name} raised {describe_error(error)}\n{trace}"
