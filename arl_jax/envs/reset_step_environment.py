"""Any object with `reset` and `step` as an environment."""

from collections.abc import Callable, Mapping, Sequence
import inspect
import math
from typing import Any

from arl_jax.envs.environment import StepResult
from arl_jax.envs.off_loop import OffLoopEnvironment, call_off_loop
from arl_jax.episode import Message, Task


class ResetStepEnv:
  """One episode in a world that somebody else wrote.

  The world has two methods, each plain or a coroutine function, and may have a
  `close`. Plain ones run in threads, one after the other.

  - `reset(...)` returns an observation, or a pair of it and a dictionary.
  - `step(action)` gets the text of an action. It returns four things:
    observation, reward, done, info; or five: observation, reward, terminated,
    truncated, info. The last is dropped.

  An observation is a text, a message as a dictionary with `role` and `content`,
  a list of such messages, or None. A reward that is None counts as 0.

  The reward component of each turn is `reward`. At the end there are `success`
  and `truncated`. An episode that a limit of the actor ends did not succeed.

  Args:
    make_world: makes the world of a task, fresh for each episode.
    success_return: the least sum of rewards, once the world has ended, that
      is a success.
    reset_arguments: gives the arguments of `reset` by name, from the task and
      the seed of the episode. By default `seed` is that of the task, if
      `reset` takes one, so that the episodes of a task share their world.
  """

  def __init__(
    self,
    make_world: Callable[[Task], Any],
    *,
    success_return: float,
    reset_arguments: Callable[[Task, int], Mapping[str, Any]] | None = None,
  ):
    self._make_world = make_world
    self._success_return = success_return
    self._reset_arguments = reset_arguments
    self._world: _Runner | None = None

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Makes the world; returns its first observation, else the prompt.

    Raises:
      ValueError: the observation is of no known form.
    """
    self._return, self._ended, self._truncated = 0.0, False, False
    world = await call_off_loop(self._make_world, task, name="make-world")
    if self._reset_arguments is not None:
      arguments = self._reset_arguments(task, seed)
    elif "seed" in inspect.signature(world.reset).parameters:
      arguments = {"seed": task.seed}
    else:
      arguments = {}
    self._world = _Runner(world, arguments)
    observation = await self._world.reset(task, seed)
    if _is_pair_with_info(observation):
      observation = observation[0]
    messages = _read_messages(observation, "reset")
    return messages or (Message(role="user", content=task.prompt),)

  async def step(self, action: str) -> StepResult:
    """Answers one action.

    Raises:
      ValueError: the result is of no known form.
      RuntimeError: the world has ended, or was never reset.
    """
    if self._world is None or self._ended:
      raise RuntimeError("the world has ended, or not begun; call reset()")
    result = await self._world.step(action)
    if not isinstance(result, tuple) or len(result) not in (4, 5):
      raise ValueError(
        f"step returned {_shown(result)}; expected a tuple of observation,"
        " reward, done, info or of observation, reward, terminated, truncated,"
        " info"
      )
    observation, reward, done, *rest = result
    truncated = len(rest) == 2 and _read_flag(rest[0], "truncated")
    terminated = _read_flag(done, "done")
    reward = _read_reward(reward)
    self._return += reward
    self._ended = terminated or truncated
    self._truncated = truncated and not terminated
    messages = _read_messages(observation, "step")
    if not messages and not self._ended:
      raise ValueError("step returned no observation, but the world goes on")
    return StepResult(
      observations=() if self._ended else messages,
      terminated=self._ended,
      rewards={"turns": 1.0, "reward": reward},
    )

  async def score(self) -> Mapping[str, float]:
    """Compares the sum of rewards with what is a success."""
    if self._world is None:
      raise RuntimeError("score() needs reset() first")
    is_enough = self._return >= self._success_return
    return {
      "success": float(self._ended and is_enough),
      "truncated": float(self._truncated),
    }

  async def close(self) -> None:
    """Closes the world, if it can be closed."""
    if self._world is not None:
      await self._world.close()


class _Runner:
  """Runs the methods of a world where they belong: on the loop or off it."""

  def __init__(self, world: Any, arguments: Mapping[str, Any]):
    self._world = world
    self._arguments = arguments
    self._off_loop: Any = None
    methods = (world.reset, world.step, getattr(world, "close", None))
    if not any(map(inspect.iscoroutinefunction, methods)):
      self._off_loop = OffLoopEnvironment(_Blocking(world, arguments))

  async def reset(self, task: Task, seed: int) -> Any:
    if self._off_loop is not None:
      return await _settled(await self._off_loop.reset(task, seed=seed))
    return await _settled(self._world.reset(**self._arguments))

  async def step(self, action: str) -> Any:
    if self._off_loop is not None:
      return await _settled(await self._off_loop.step(action))
    return await _settled(self._world.step(action))

  async def close(self) -> None:
    if self._off_loop is not None:
      await self._off_loop.close()
    elif hasattr(self._world, "close"):
      await _settled(self._world.close())


class _Blocking:
  """A world in the form that `OffLoopEnvironment` runs; the answers are raw."""

  def __init__(self, world: Any, arguments: Mapping[str, Any]):
    self._world = world
    self._arguments = arguments

  def reset(self, task: Task, *, seed: int) -> Any:
    del task, seed
    return self._world.reset(**self._arguments)

  def step(self, action: str) -> Any:
    return self._world.step(action)

  def score(self) -> Mapping[str, float]:
    return {}

  def close(self) -> None:
    if hasattr(self._world, "close"):
      self._world.close()


async def _settled(result: Any) -> Any:
  return await result if inspect.isawaitable(result) else result


def _is_pair_with_info(found: Any) -> bool:
  return (
    isinstance(found, tuple)
    and len(found) == 2
    and isinstance(found[1], Mapping)
    and "role" not in found[1]
  )


def _read_messages(found: Any, where: str) -> tuple[Message, ...]:
  if found is None or found == "":
    return ()
  if isinstance(found, Message):
    return (found,)
  if isinstance(found, str):
    return (Message(role="user", content=found),)
  if isinstance(found, Mapping):
    role, content = found.get("role"), found.get("content")
    if isinstance(role, str) and isinstance(content, str):
      return (Message(role=role, content=content),)
  elif isinstance(found, Sequence) and not isinstance(found, bytes):
    return sum((_read_messages(each, where) for each in found), ())
  raise ValueError(
    f"{where} returned the observation {_shown(found)}; expected a text, or"
    " messages with the texts role and content"
  )


def _read_reward(found: Any) -> float:
  try:
    reward = 0.0 if found is None else float(found)
  except (TypeError, ValueError):
    reward = math.nan
  if isinstance(found, str) or not math.isfinite(reward):
    raise ValueError(
      f"step returned the reward {_shown(found)}; expected a finite number"
    )
  return reward


def _read_flag(found: Any, name: str) -> bool:
  if found not in (True, False):
    raise ValueError(f"step returned {name}={_shown(found)}; expected a bool")
  return bool(found)


def _shown(value: Any) -> str:
  text = repr(value)
  return text if len(text) <= 80 else f"{text[:80]}..."
