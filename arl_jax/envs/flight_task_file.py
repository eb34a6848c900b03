"""Flight booking tasks as lines of JSON."""

from collections.abc import Iterable
import dataclasses
import json
import os
import pathlib
from typing import Any

from arl_jax.envs import flight_json
from arl_jax.episode import Task

_FIELDS = {
  "task_id": str,
  "prompt": str,
  "seed": int,
  "level": int,
  "hidden": dict,
}


def save_tasks(path: str | os.PathLike[str], tasks: Iterable[Task]) -> None:
  """Writes one task a line."""
  lines = [
    json.dumps(dataclasses.asdict(task), ensure_ascii=False) for task in tasks
  ]
  text = "".join(f"{line}\n" for line in lines)
  pathlib.Path(path).write_text(text, encoding="utf-8")


def load_tasks(path: str | os.PathLike[str]) -> list[Task]:
  """Reads what `save_tasks` wrote; blank lines are skipped.

  Raises:
    ValueError: there is no such file, or a line is not a task; names the
      file, the line and the fault.
  """
  if not pathlib.Path(path).is_file():
    raise ValueError(f"{path} is not a file; expected tasks, one JSON a line")
  tasks: list[Task] = []
  first_lines: dict[str, int] = {}
  content = pathlib.Path(path).read_bytes()
  for number, line in enumerate(content.split(b"\n"), start=1):
    if not line.strip():
      continue
    try:
      task = _read_task(line)
      if task.task_id in first_lines:
        raise ValueError(
          f"task_id {task.task_id!r} is also on line"
          f" {first_lines[task.task_id]}; expected unique ids"
        )
    except (ValueError, RecursionError) as error:
      raise ValueError(f"{path}, line {number}: {error}") from None
    first_lines[task.task_id] = number
    tasks.append(task)
  if not tasks:
    raise ValueError(f"{path} holds no tasks; expected one JSON object a line")
  return tasks


def _read_task(line: bytes) -> Task:
  try:
    data: Any = json.loads(line.decode("utf-8"))
  except ValueError as error:
    raise ValueError(f"not JSON ({error})") from None
  if not isinstance(data, dict):
    raise ValueError(f"found {type(data).__name__}; expected a JSON object")
  unknown = set(data) - set(_FIELDS)
  if unknown:
    raise ValueError(
      f"unknown fields {sorted(unknown)}; expected {', '.join(_FIELDS)}"
    )
  for name, kind in _FIELDS.items():
    if name not in data and name in ("seed", "level"):
      continue
    if type(data.get(name)) is not kind:
      raise ValueError(
        f"{name} is {data.get(name)!r}; expected {kind.__name__}"
      )
  flight_json.read_hidden(data["hidden"])
  return Task(**data)
