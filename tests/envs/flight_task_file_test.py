"""Tests of task files."""

import json

import pytest

from arl_jax.envs.flight_task_file import load_tasks, save_tasks
from arl_jax.envs.flight_tasks import generate_tasks

TASKS = generate_tasks(4, seed=0, split="train")


def test_tasks_read_back(tmp_path):
  path = tmp_path / "tasks.jsonl"
  save_tasks(path, TASKS)
  assert load_tasks(path) == TASKS


def change(line, path, value):
  """The line with the field at `path` set, or dropped if value is None."""
  data = json.loads(line)
  *parents, last = path
  place = data
  for key in parents:
    place = place[key]
  if value is None:
    del place[last]
  else:
    place[last] = value
  return json.dumps(data).encode()


@pytest.mark.parametrize(
  ("path", "value", "problem"),
  [
    (["prompt"], None, "prompt is None; expected str"),
    (["level"], "2", "level is '2'; expected int"),
    (["colour"], "red", r"unknown fields \['colour'\]"),
    (["hidden", "world"], None, r"hidden\.world is missing"),
    (["hidden", "world", "flights"], {}, r"flights is {}; expected a list"),
    (
      ["hidden", "world", "flights", 0, "time"],
      "7:40",
      r"flights\[0\]\.time is '7:40'; expected hh:mm",
    ),
    (
      ["hidden", "world", "flights", 0, "date"],
      "12 May",
      r"flights\[0\]\.date is '12 May'; expected a date like May 12",
    ),
    (
      ["hidden", "world", "flights", 1, "fares", "economy"],
      [0, 3],
      r"fares\.economy is \[0, 3\]; expected \[price above 0",
    ),
    (["hidden", "world", "flights", 0, "fares", "first"], [1, 1], "one of"),
    (
      ["hidden", "world", "events"],
      [[0, "XX999", "economy", 100, 1]],
      r"events\[0\] is 'XX999 economy'; expected a fare of this world",
    ),
    (["hidden", "world", "events"], [[1]], r"events\[0\] is \[1\]"),
    (["hidden", "world", "passengers"], ["Zed Zed"], "who is not in"),
    (["hidden", "request", "kind"], "nicest", "kind is 'nicest'"),
    (["hidden", "request", "dates"], [], "one date or more"),
    (["task_id"], "flight-0", "is also on line 1"),
  ],
)
def test_a_bad_line_is_named(tmp_path, path, value, problem):
  file = tmp_path / "tasks.jsonl"
  save_tasks(file, TASKS)
  lines = file.read_bytes().splitlines()
  lines[1:2] = [b"", change(lines[1], path, value)]
  file.write_bytes(b"\n".join(lines))
  with pytest.raises(ValueError, match=rf"tasks\.jsonl, line 3: .*{problem}"):
    load_tasks(file)


@pytest.mark.parametrize(
  ("line", "problem"),
  [
    (b'{"task_id": ', "not JSON"),
    (b"[1]", "found list; expected a JSON object"),
    (b"\xff\xfe", "not JSON"),
  ],
)
def test_a_line_that_is_no_object_is_named(tmp_path, line, problem):
  file = tmp_path / "tasks.jsonl"
  file.write_bytes(line)
  with pytest.raises(ValueError, match=f"line 1: {problem}"):
    load_tasks(file)


def test_an_empty_file_is_refused(tmp_path):
  file = tmp_path / "tasks.jsonl"
  file.write_bytes(b"\n\n")
  with pytest.raises(ValueError, match="holds no tasks"):
    load_tasks(file)
