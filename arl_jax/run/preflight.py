"""Finds what a run would fail on, before it leaves anything behind."""

from collections.abc import Sequence
import logging
import traceback

import numpy as np

from arl_jax.actors import answers
from arl_jax.actors.asking import EnvironmentFailure, ask, closing, rendered
from arl_jax.config import ConfigError
from arl_jax.episode import Task
from arl_jax.run.guard import run_loop
from arl_jax.run.parts import RunParts
from arl_jax.run.suites import blame_environment, note_function

_LOGGER = logging.getLogger(__name__)
# Tasks of each kind whose prompts are looked at.
_NUM_PROMPTS = 8


def find_tasks(parts: RunParts) -> list[Task]:
  """Returns the tasks to train on, after a look at some of all prompts.

  Raises:
    ConfigError: there are no tasks to train on or to evaluate on, none that
      was looked at can be begun, or none has a prompt that leaves room for an
      action.
  """
  settings = parts.settings
  with blame_environment(settings.environment):
    by_kind = {"to train on": parts.suite.train_tasks(settings.seed)}
    if settings.debug.samples:
      by_kind["to evaluate on"] = parts.heldout_tasks()
  for kind, tasks in by_kind.items():
    if not tasks:
      raise ConfigError(
        f"config.environment, whose name is {settings.environment.name!r}, has"
        f" no tasks {kind}; expected one or more"
      )
    if settings.debug.samples:
      _check_prompts(parts, tasks, kind)
  return by_kind["to train on"]


def _check_prompts(parts: RunParts, tasks: Sequence[Task], kind: str) -> None:
  """Looks at the prompts of tasks from the whole list."""
  number = min(_NUM_PROMPTS, len(tasks))
  places = np.linspace(0, len(tasks) - 1, number).astype(int).tolist()
  lengths, failures = run_loop(
    _measure_prompts(parts, [tasks[place] for place in places])
  )
  if not lengths:
    raise ConfigError(
      f"config.environment, whose name is {parts.settings.environment.name!r},"
      f" could begin none of {number} tasks {kind}: {failures[0]}"
    ) from failures[0]
  if failures:
    _LOGGER.warning(
      "%d of %d tasks %s cannot be begun; the first: %s",
      len(failures),
      number,
      kind,
      failures[0],
    )
  limit = parts.settings.rollout.max_length
  long = [length for length in lengths if length >= limit]
  if not long:
    return
  turn = parts.settings.rollout.max_tokens_per_turn
  found = (
    f"config.rollout.max_length is {limit}, but {len(long)} of {len(lengths)}"
    f" prompts of tasks {kind} leave no room in it for an action: they have"
    f" {_span(lengths)} tokens; expected {max(lengths) + turn} or more, for the"
    f" longest and config.rollout.max_tokens_per_turn, {turn}"
  )
  if len(long) == len(lengths):
    raise ConfigError(found)
  _LOGGER.warning("%s. Episodes of such tasks will fail", found)


def _span(lengths: Sequence[int]) -> str:
  low, high = min(lengths), max(lengths)
  return str(low) if low == high else f"{low} to {high}"


async def _measure_prompts(
  parts: RunParts, tasks: Sequence[Task]
) -> tuple[list[int], list[EnvironmentFailure]]:
  """Returns the lengths of prompts in tokens, and what went wrong."""
  lengths: list[int] = []
  failures: list[EnvironmentFailure] = []
  for task in tasks:
    try:
      lengths.append(await _measure_prompt(parts, task))
    except EnvironmentFailure as failure:
      brief = EnvironmentFailure(f"task {task.task_id!r}: {_brief(failure)}")
      brief.__cause__ = failure
      failures.append(brief)
  return lengths, failures


def _brief(failure: EnvironmentFailure) -> str:
  """Returns one line, with the place instead of the traceback."""
  line, _, trace = str(failure).partition("\n")
  frames = traceback.extract_tb(
    getattr(failure.__cause__, "__traceback__", None)
  )
  if not (trace and frames):
    return line.rstrip()
  place = f"{frames[-1].filename}:{frames[-1].lineno}"
  return f"{line}, at {place} (ARL_JAX_TRACEBACK=1 shows the way there)"


async def _measure_prompt(parts: RunParts, task: Task) -> int:
  rollout = parts.settings.rollout
  with note_function("make_environment", parts.settings.environment):
    environment = parts.suite.make_environment()
  async with closing(
    environment,
    timeout_seconds=rollout.step_timeout_seconds,
    session=f"preflight/{task.task_id}",
  ):
    messages = await ask(
      lambda: environment.reset(task, seed=0),
      "reset",
      timeout_seconds=rollout.step_timeout_seconds,
      read=lambda found: answers.clean_messages(
        found, max_chars=rollout.max_observation_chars
      ),
    )
  return len(rendered(lambda: parts.chat.prompt_ids(messages), "reset"))
