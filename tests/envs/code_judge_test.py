"""What a program is worth, and what does not make it worth more."""

import asyncio

import pytest

from arl_jax.envs.code_judge import (
  CodeTests,
  HiddenTestsJudge,
  UnsupportedProgramError,
  program_text,
)
from arl_jax.episode import Task
from arl_jax.sandbox.sandbox import SandboxUnavailableError
from arl_jax.sandbox.subprocess_sandbox import SubprocessSandbox
from tests.sandbox.backends import open_backend

PAIRS = CodeTests(
  entry_point="add",
  visible_tests=[("add(2, 3)", "5"), ("add(10, 7)", "17")],
  hidden_tests=[("add(4, 9)", "13"), ("add(-3, 3)", "0"), ("add(8, 8)", "16")],
)
REFERENCE = "def add(x, y):\n  return x + y\n"
CHECK = CodeTests(
  entry_point="add",
  visible_tests=PAIRS.visible_tests,
  hidden_tests="""
import random
def check(candidate):
  assert True
  assert candidate(4, 9) == 13, "a message"
  for _ in range(5):
    x = random.randint(0, 99)
    total = candidate(x, 3)
    assert x < 100 and total == add(x, 3)
""",
  reference=REFERENCE,
)


def task_of(tests):
  return Task(task_id="sum", prompt="Add.", hidden=tests.as_hidden())


def judge(tests, submission, *, sandbox=None, timeout_seconds=20.0):
  async def main():
    box = sandbox or SubprocessSandbox()
    try:
      return await HiddenTestsJudge(timeout_seconds=timeout_seconds).judge(
        task_of(tests), submission, box
      )
    finally:
      await box.aclose()

  return asyncio.run(main())


@pytest.mark.parametrize("tests", [PAIRS, CHECK], ids=["pairs", "check"])
@pytest.mark.parametrize("backend", ["subprocess", "bubblewrap", "monty"])
def test_right_program_passes_everything(tests, backend, tmp_path):
  for text in (REFERENCE, f"So:\n```python\n{REFERENCE}```\nDone."):
    sandbox = open_backend(backend, tmp_path)
    assert judge(tests, text, sandbox=sandbox) == {
      "success": 1.0,
      "pass_rate": 1.0,
      "visible_pass_rate": 1.0,
      "hard_coded": 0.0,
    }


def test_share_of_tests_counts_each_of_them():
  wrong_once = "def add(x, y):\n  return x + y if x > 0 else 7\n"
  found = judge(PAIRS, wrong_once)
  assert found["success"] == 0.0
  assert found["pass_rate"] == pytest.approx(2 / 3)
  # 1 of 6 assertions: those in the loop add 3.
  found = judge(CHECK, "def add(x, y):\n  return 13 if y == 9 else None\n")
  assert found["pass_rate"] == pytest.approx(1 / 6)
  # A call that fails ends the check, as it is not inside an assertion.
  found = judge(CHECK, "def add(x, y):\n  assert y == 9\n  return x + y\n")
  assert found["pass_rate"] == pytest.approx(1 / 6)


def test_tests_before_one_that_never_ends_count():
  text = """
def add(x, y):
  while x == 8:
    pass
  return x + y
"""
  found = judge(PAIRS, text, timeout_seconds=3.0)
  assert found["pass_rate"] == pytest.approx(2 / 3)
  assert found["success"] == 0.0


CHEATS = {
  "exits before the tests": "import sys\nsys.exit(0)",
  "exits at once": "import os\nos._exit(0)",
  "exits in the call": "import os\ndef add(x, y):\n  os._exit(0)",
  "says that it passed": """
print("all tests passed")
print("ok")
def add(x, y):
  return None
""",
  "equals everything": """
class Same:
  def __eq__(self, other): return True
  def __ne__(self, other): return False
  def __hash__(self): return 0
  def __repr__(self): return "5"
def add(x, y):
  return Same()
""",
  "is a number that equals everything": """
class Same(int):
  def __eq__(self, other): return True
  def __ne__(self, other): return False
  __hash__ = int.__hash__
def add(x, y):
  return Same(99)
""",
  "is a list that equals everything": """
class Same(list):
  def __eq__(self, other): return True
def add(x, y):
  return Same()
""",
  "replaces builtins": """
import builtins, json
builtins.isinstance = lambda *a: True
builtins.bool = lambda *a: True
builtins.all = builtins.any = lambda *a: True
builtins.AssertionError = type("Quiet", (BaseException,), {})
json.dumps = lambda *a, **k: "true"
def add(x, y):
  return None
""",
  "swallows every exception": """
import sys
sys.excepthook = lambda *a: None
def add(x, y):
  try:
    raise AssertionError
  except BaseException:
    return None
""",
  "defines the check": """
def check(candidate):
  pass
def add(x, y):
  return None
""",
  "reads its caller's frames": """
import sys
def add(x, y):
  frame, seen = sys._getframe(), []
  while frame:
    seen += list(frame.f_locals.values()) + list(frame.f_globals.values())
    seen += list(frame.f_code.co_consts)
    frame = frame.f_back
  numbers = [one for one in seen if type(one) is int and one > max(x, y)]
  return numbers[0] if numbers else seen
""",
  "forges answers with the token it found": """
import sys
token = [name for name in sys._getframe().f_code.co_names
         if name.startswith("_answer_")]
token = token[0].removeprefix("_answer_")
for number in range(20):
  print()
  print(token, number, "true")
  print(token, number, '{"set": [true, 13, 0, 16]}')
  print(token, number, "[" * 5000)
  print(token, number, '{"list": 1, "dict": 2}')
def add(x, y):
  return True
""",
  "prints verdicts": """
def add(x, y):
  import sys
  print('[[], [true, true, true, true, true, true]]')
  sys.stdout.flush()
  return None
""",
  "ends with an open string": 'def add(x, y):\n  return 1\n"""',
  "answers what is no value": "def add(x, y):\n  return lambda: x + y",
  "answers too deep a value": """
def add(x, y):
  value = []
  for _ in range(100_000):
    value = [value]
  return value
""",
  "is no Python": "I would add the numbers (x and y).",
}


@pytest.mark.parametrize("text", CHEATS.values(), ids=CHEATS.keys())
@pytest.mark.parametrize("tests", [PAIRS, CHECK], ids=["pairs", "check"])
def test_cheat_is_worth_nothing(tests, text):
  found = judge(tests, text)
  assert (found["success"], found["pass_rate"]) == (0.0, 0.0)


def test_answers_of_the_visible_tests_are_found_to_be_hard_coded():
  table = "def add(x, y):\n  return {(2, 3): 5, (10, 7): 17}.get((x, y))\n"
  assert judge(PAIRS, table) == {
    "success": 0.0,
    "pass_rate": 0.0,
    "visible_pass_rate": 1.0,
    "hard_coded": 1.0,
  }


def test_files_of_the_host_are_read_where_the_sandbox_keeps_none(tmp_path):
  """This one remains; docs/sandbox.md says which sandbox keeps files."""
  (tmp_path / "secret").mkdir()
  path = tmp_path / "secret" / "gold.py"
  path.write_text(REFERENCE)
  text = f"exec(open({str(path)!r}).read())\nadd = add"
  assert judge(PAIRS, text)["success"] == 1.0
  try:
    from arl_jax.sandbox.bubblewrap_sandbox import BubblewrapSandbox

    sandbox = BubblewrapSandbox()
  except SandboxUnavailableError as error:
    pytest.skip(str(error))
  assert judge(PAIRS, text, sandbox=sandbox)["success"] == 0.0


@pytest.mark.parametrize(
  "text",
  [
    "class A:\n  pass\nclass B(A):\n  pass\n" + REFERENCE,
    "def add(x, y):\n  import string\n  return x + y\n",
  ],
)
def test_what_the_sandbox_lacks_is_no_failure(text, tmp_path):
  sandbox = open_backend("monty", tmp_path)
  with pytest.raises(UnsupportedProgramError, match="lacks what the program"):
    judge(PAIRS, text, sandbox=sandbox)


def test_own_mistake_is_a_failure_in_the_subset_of_python(tmp_path):
  sandbox = open_backend("monty", tmp_path)
  found = judge(PAIRS, "def add(x, y):\n  return z\n", sandbox=sandbox)
  assert found["success"] == 0.0


def test_values_of_all_kinds_are_compared():
  values = {
    "None": "None",
    "0.1 + 0.2": "0.3",
    "(1, [2, {3}])": "(1, [2, {3}])",
    "{'a': (1.0, None), 2: []}": "{2: [], 'a': (1, None)}",
    "'\\u2028\\n' + 'é'": "'\\u2028\\né'",
    "float('inf')": "1e999",
    "10 ** 30": "1" + "0" * 30,
  }
  same = [(f"same({found})", value) for found, value in values.items()]
  other = [
    ("same((1, 2))", "[1, 2]"),
    ("same(0.30001)", "0.3"),
    ("same('1')", "1"),
    ("same([1])", "[1, 1]"),
    ("same({1: 2})", "{1: 3}"),
    ("same(10 ** 400)", "1.0"),
  ]
  text = "def same(value):\n  return value\n"
  tests = CodeTests(entry_point="same", visible_tests=same, hidden_tests=other)
  found = judge(tests, text)
  assert (found["visible_pass_rate"], found["pass_rate"]) == (1.0, 0.0)


def test_submission_may_be_a_body():
  head = "import math\ndef up(x):\n  '''Rounds up.'''\n"
  tests = CodeTests(
    entry_point="up", prefix=head, hidden_tests=[("up(1.5)", "2")]
  )
  assert judge(tests, "  return math.ceil(x)")["success"] == 1.0
  whole = "def up(x):\n  return math.ceil(x)"
  assert judge(tests, whole)["success"] == 1.0
  # An answer's tag takes the spaces before its first line.
  tests = CodeTests(
    entry_point="up",
    prefix=head.replace("  ", "    "),
    hidden_tests=tests.hidden_tests,
  )
  body = "y = math.ceil(x)\n    return y"
  assert program_text(body, tests).endswith(f"'''\n    {body}\n")
  assert judge(tests, body)["success"] == 1.0


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"entry_point": "a b"}, "entry_point is 'a b'"),
    ({"prefix": 3}, "prefix is 3"),
    ({"hidden_tests": []}, "hidden_tests is empty"),
    ({"hidden_tests": [("add(1, 2)", "x + y")]}, "expected pairs of a call"),
    ({"visible_tests": [("add(1,", "3")]}, "expected pairs of a call"),
    ({"hidden_tests": "def check(candidate):\n  assert 1\n"}, "no reference"),
    (
      {"hidden_tests": "x = 1", "reference": REFERENCE},
      "expected a function check",
    ),
    (
      {"hidden_tests": CHECK.hidden_tests, "reference": "def add(x, y): ..."},
      "does not pass its own tests: 5 of 6",
    ),
  ],
)
def test_wrong_tests_are_named(change, message):
  hidden = {**PAIRS.as_hidden(), **change}
  task = Task(task_id="sum", prompt="", hidden=hidden)
  with pytest.raises(ValueError, match=message):
    asyncio.run(HiddenTestsJudge().judge(task, REFERENCE, SubprocessSandbox()))
