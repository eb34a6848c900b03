"""Checks an environment of one's own: python -m arl_jax.envs.check my:MyEnv.

The argument names a module, or a file that ends in .py, and in it a class or a
function that makes a fresh environment without arguments. Two hooks go with
it, as methods of the environment or as functions of the module:

- `example_tasks()` returns a few tasks to play.
- `gold_actions(task)` returns the actions that solve one, a string for each
  turn.

It prints a line for each check. The exit code is 0 if all hold, 1 if one does
not, and 2 if there is nothing that can be checked.
"""

import argparse
import asyncio
from collections.abc import Callable, Sequence
import importlib
import importlib.util
import math
import pathlib
import sys
import textwrap
import threading
import time
import traceback
from typing import Any

from arl_jax.envs import environment_checks
from arl_jax.envs.checked_episode import CheckError
from arl_jax.envs.environment_checks import CheckResult, CheckStatus, Subject
from arl_jax.envs.guarded_call import describe_error
from arl_jax.episode import Message, Task

# The event loop's clock is looked at this often.
_PULSE_SECONDS = 0.05
_LINE_WIDTH = 80


def check_environment(
  make_environment: Callable[[], Any],
  tasks: Sequence[Task],
  *,
  gold_actions: Callable[[Task], Sequence[str]] | None = None,
  seed: int = 0,
  timeout_seconds: float = 30.0,
  max_block_seconds: float = 5.0,
  prompt_length: tuple[Callable[[Sequence[Message]], int], str] | None = None,
  max_prompt_length: int | None = None,
) -> tuple[CheckResult, ...]:
  """Plays an environment in many ways; says what training can rely on.

  Args:
    make_environment: returns a fresh environment for one episode.
    tasks: to play, one at least.
    gold_actions: returns the actions that solve a task.
    seed: of episodes and of random actions.
    timeout_seconds: the longest that one answer may take, and that a step may
      go on after it was cancelled.
    max_block_seconds: the longest that the event loop may stand still.
    prompt_length: a function that measures messages, with its unit; characters
      if there is none.
    max_prompt_length: the most that a prompt may have.

  Returns:
    A result for each check, in the order in which they ran. If answers are of
    wrong types, the other checks are skipped. If the event loop stands still
    for too long, there are no more than those that had ended.
  """
  if not tasks:
    raise ValueError("tasks is empty; expected one task at least")
  subject = Subject(
    make_environment=make_environment,
    tasks=tuple(tasks),
    gold_actions=gold_actions,
    seed=seed,
    timeout_seconds=timeout_seconds,
    prompt_length=prompt_length or (_count_characters, "characters"),
    max_prompt_length=max_prompt_length,
  )
  return _Loop(subject).run(
    max_block_seconds=max_block_seconds,
    give_up_seconds=max(timeout_seconds, max_block_seconds),
  )


def format_report(results: Sequence[CheckResult]) -> str:
  """Returns a table of what was checked, as it is printed."""
  width = max(len(result.name) for result in results)
  lines = []
  for result in results:
    start = f"{result.name:<{width}}  {result.status:<7}  "
    lines += textwrap.wrap(
      result.detail,
      width=_LINE_WIDTH,
      initial_indent=start,
      subsequent_indent=" " * len(start),
    )
  return "\n".join(lines)


class _WakingClock:
  """Counts the seconds in which this process could run.

  On a machine that is busy with others, or stopped, the loop stands still
  through no fault of the environment. Nobody advances the clock then either,
  and a long step of it counts only as far as this process used it to compute.

  Attributes:
    seconds: counted so far.
  """

  def __init__(self):
    self.seconds = 0.0
    self._wall, self._computed = time.monotonic(), time.process_time()

  def advance(self) -> None:
    wall, computed = time.monotonic(), time.process_time()
    passed, used = wall - self._wall, computed - self._computed
    self.seconds += min(passed, max(2 * _PULSE_SECONDS, used))
    self._wall, self._computed = wall, computed


class _Loop:
  """Runs the checks on an event loop in a thread of its own.

  An environment may hold the loop, or a step refuse to end. Neither may keep
  the report from being printed, so the thread is left behind then.
  """

  def __init__(self, subject: Subject):
    self._subject = subject
    self._results: list[CheckResult] = []
    self._done = threading.Event()
    self._clock = _WakingClock()
    self._pulse = math.inf  # not yet
    self._longest_gap = 0.0
    self._thread = threading.Thread(
      target=lambda: asyncio.run(self._run()), name="checks", daemon=True
    )

  def run(
    self, *, max_block_seconds: float, give_up_seconds: float
  ) -> tuple[CheckResult, ...]:
    """Returns the results; those that there are when the loop stands still."""
    self._thread.start()
    while not self._done.wait(_PULSE_SECONDS):
      self._clock.advance()
      if self._clock.seconds - self._pulse > give_up_seconds:
        detail = (
          f"the event loop stood still for more than {give_up_seconds:g}"
          f" seconds, at {self._position()}; await what takes long, or use"
          " OffLoopEnvironment"
        )
        return (*self._results, _failed("event loop", detail))
    if self._longest_gap > max_block_seconds:
      detail = (
        f"the event loop stood still for {self._longest_gap:.1f} seconds; await"
        " what takes long, or use OffLoopEnvironment"
      )
      return (*self._results, _failed("event loop", detail))
    detail = f"it never stood still for {max_block_seconds:g} seconds"
    status = CheckStatus.OK
    last = CheckResult(name="event loop", status=status, detail=detail)
    return (*self._results, last)

  async def _run(self) -> None:
    self._pulse = self._clock.seconds
    try:
      beating = asyncio.ensure_future(self._beat())
      for name, check in environment_checks.CHECKS.items():
        needed = {"types", environment_checks.NEEDS.get(name)}
        missing = [
          result.name
          for result in self._results
          if result.name in needed and result.status != CheckStatus.OK
        ]
        if missing:
          result = CheckResult(
            name=name,
            status=CheckStatus.SKIPPED,
            detail=f"says something only if {missing[0]} is ok",
          )
        else:
          result = await _run_check(name, check, self._subject)
        self._results.append(result)
      beating.cancel()
    finally:
      self._done.set()

  async def _beat(self) -> None:
    while True:
      now = self._clock.seconds
      self._longest_gap = max(self._longest_gap, now - self._pulse)
      self._pulse = now
      await asyncio.sleep(_PULSE_SECONDS)

  def _position(self) -> str:
    """Returns where the thread is now, in code that is not Python's own."""
    frame = sys._current_frames().get(self._thread.ident or 0)
    frames = traceback.extract_stack(frame) if frame else []
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"


async def _run_check(name: str, check: Any, subject: Subject) -> CheckResult:
  try:
    detail = await check(subject)
  except CheckError as error:
    return _failed(name, str(error))
  except BaseException as error:  # of a hook, or of the constructor
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}"
    return _failed(name, f"{describe_error(error)} at {where}")
  return CheckResult(name=name, status=CheckStatus.OK, detail=detail)


def _failed(name: str, detail: str) -> CheckResult:
  return CheckResult(name=name, status=CheckStatus.FAILED, detail=detail)


def _count_characters(messages: Sequence[Message]) -> int:
  return sum(len(message.content) for message in messages)


def _load(target: str) -> tuple[Any, Any]:
  """Returns the module and the factory that `module:name` names."""
  module_name, colon, name = target.partition(":")
  if not (module_name and colon and name):
    raise ValueError(f"{target!r} is not like my_module:MyEnv")
  try:
    if module_name.endswith(".py"):
      module = _load_file(pathlib.Path(module_name))
    else:
      module = importlib.import_module(module_name)
  except Exception as error:
    raise ValueError(
      f"{module_name} cannot be imported: {describe_error(error)}"
    ) from error
  found = module
  for part in name.split("."):
    found = getattr(found, part, None)
  if not callable(found):
    raise ValueError(f"{module_name} has no class or function {name}")
  return module, found


def _load_file(path: pathlib.Path) -> Any:
  spec = importlib.util.spec_from_file_location(path.stem, path)
  if spec is None or spec.loader is None:
    raise ImportError(f"{path} is no Python file")
  module = importlib.util.module_from_spec(spec)
  sys.modules[path.stem] = module  # dataclasses look their module up
  spec.loader.exec_module(module)
  return module


def _hook(module: Any, make_environment: Any, name: str) -> Any:
  """Returns a method of the environment or a function of the module."""
  try:
    environment = make_environment()
  except Exception as error:
    raise ValueError(
      f"the environment cannot be made: {describe_error(error)}; expected a"
      " class or function that takes no arguments"
    ) from error
  return getattr(environment, name, None) or getattr(module, name, None)


def _token_length(folder: str) -> Callable[[Sequence[Message]], int]:
  from arl_jax.text.chat import ChatFormat
  from arl_jax.text.tokenizer import load_tokenizer

  chat = ChatFormat(load_tokenizer(folder))
  return lambda messages: len(chat.prompt_ids(tuple(messages)))


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog="python -m arl_jax.envs.check",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("environment", help="my_module:MyEnv or my_env.py:MyEnv")
  parser.add_argument("--tokenizer", help="folder; prompts are then in tokens")
  parser.add_argument("--max-prompt", type=int, help="longest prompt allowed")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument(
    "--timeout", type=float, default=30.0, help="seconds for one answer"
  )
  options = parser.parse_args(arguments)
  try:
    module, make_environment = _load(options.environment)
    example_tasks = _hook(module, make_environment, "example_tasks")
    if example_tasks is None:
      raise ValueError(
        f"{options.environment} has no example_tasks(); give one, as a method"
        " or beside the environment, that returns a few tasks"
      )
    length = None
    if options.tokenizer is not None:
      length = (_token_length(options.tokenizer), "tokens")
    results = check_environment(
      make_environment,
      tuple(example_tasks()),
      gold_actions=_hook(module, make_environment, "gold_actions"),
      seed=options.seed,
      timeout_seconds=options.timeout,
      prompt_length=length,
      max_prompt_length=options.max_prompt,
    )
  except ValueError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  print(format_report(results))
  return int(any(r.status != CheckStatus.OK for r in results))


if __name__ == "__main__":
  sys.exit(main())
