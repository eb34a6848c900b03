"""Questions for a search agent as lines of JSON."""

import json
import os
import pathlib
from typing import Any

from arl_jax.envs import search_tasks
from arl_jax.episode import Task

_FIELDS = ("id", "question", "answers", "evidence", "level")


def load_tasks(path: str | os.PathLike[str]) -> list[Task]:
  """Reads tasks, one JSON object a line; blank lines are skipped.

  An object has a `question` and `answers`, a list of right ones. It may have
  an `id`, a `level`, and `evidence`: pairs of a passage's id and those of its
  words that matter.

  Raises:
    ValueError: there is no such file, a line is not a task, two share an id,
      or there are none; names the file, the line and the fault.
  """
  if not pathlib.Path(path).is_file():
    raise ValueError(
      f"{path} is not a file; expected questions, one JSON object a line"
    )
  tasks: dict[str, Task] = {}
  with open(path, "rb") as lines:
    for number, line in enumerate(lines, start=1):
      if not line.strip():
        continue
      try:
        task = _read_task(line, default_id=f"line-{number}")
        if task.task_id in tasks:
          raise ValueError(f"id {task.task_id!r} comes twice; expected one")
      except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
      tasks[task.task_id] = task
  if not tasks:
    raise ValueError(f"{path} holds no questions; expected one a line")
  return list(tasks.values())


def _read_task(line: bytes, *, default_id: str) -> Task:
  try:
    data: Any = json.loads(line.decode("utf-8"))
  except ValueError as error:
    raise ValueError(f"not JSON ({error})") from None
  if not isinstance(data, dict):
    raise ValueError(f"found {type(data).__name__}; expected a JSON object")
  unknown = sorted(set(data) - set(_FIELDS))
  if unknown:
    raise ValueError(f"unknown fields {unknown}; expected {', '.join(_FIELDS)}")
  name, prompt = data.get("id", default_id), data.get("question")
  level = data.get("level", 0)
  if not isinstance(name, str) or not name:
    raise ValueError(f"id is {name!r}; expected a text")
  if not isinstance(prompt, str) or not prompt.strip():
    raise ValueError(f"question is {prompt!r}; expected a text")
  if type(level) is not int:
    raise ValueError(f"level is {level!r}; expected an int")
  task = Task(
    task_id=name,
    prompt=prompt,
    level=level,
    hidden={
      "answers": data.get("answers"),
      "evidence": data.get("evidence", []),
    },
  )
  search_tasks.accepted_of(task)
  search_tasks.evidence_of(task)
  return task
