"""Judges a program's answers by test code, without running the program.

Test code defines `check(candidate)`, which asserts. It runs twice, each time in
an interpreter without the program: once on a right program, to note what it
calls; then on the answers that the program gave to these calls elsewhere.
"""

import ast
from collections.abc import Mapping
import dataclasses
import json
from typing import Any

_START = """
def _call_text(arguments):
  inner = ", ".join([repr(one) for one in arguments])
  return "{entry_point}(" + inner + ")"

_calls = dict()
_verdicts = []
"""
_RECORD = """
def _candidate(*arguments):
  _calls[_call_text(arguments)] = None
  return {entry_point}(*arguments)
"""
_REPLAY = """
nan, inf = float("nan"), float("inf")
_answers = {answers}

def _candidate(*arguments):
  return _answers[_call_text(arguments)]
"""
# Some tests draw at random; the same both times.
_END = """
import json
import random

random.seed(0)
try:
  check(_candidate)
except Exception:
  _verdicts.append(False)
  raise
finally:
  print("\\n{token} " + json.dumps([list(_calls), _verdicts]))
"""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CheckRun:
  """What a run of test code came to.

  Attributes:
    calls: texts of the calls that it made while recording, each once.
    verdicts: whether each assertion held; False comes last if the code failed
      elsewhere.
  """

  calls: tuple[str, ...] = ()
  verdicts: tuple[bool, ...] = ()


def recording_program(
  check: str, reference: str, entry_point: str, *, token: str
) -> str:
  """Returns a program that notes what a check calls.

  Args:
    check: text that defines `check(candidate)`.
    reference: a right program.
    entry_point: name of its function.
    token: letters and digits; marks the line that `read_check_run` finds.

  Raises:
    ValueError: the text has no such function, or it asserts nothing.
  """
  return "\n".join(
    (
      reference,
      _START.format(entry_point=entry_point),
      _RECORD.format(entry_point=entry_point),
      _count_assertions(check),
      _END.format(token=token),
    )
  )


def replaying_program(
  check: str,
  reference: str,
  entry_point: str,
  *,
  answers: Mapping[str, Any],
  token: str,
) -> str:
  """Returns a program that runs a check on answers.

  Args:
    check: as for `recording_program`.
    reference: the same; the check may use its other functions.
    entry_point: the same.
    answers: plain values by the text of the call; a call that is not there
      fails.
    token: marks the line that `read_check_run` finds.
  """
  return "\n".join(
    (
      reference,
      _START.format(entry_point=entry_point),
      _REPLAY.format(answers=repr(dict(answers))),
      _count_assertions(check),
      _END.format(token=token),
    )
  )


def read_check_run(stdout: str, *, token: str) -> CheckRun:
  """Returns what such a program printed; nothing if it was ended before."""
  for line in stdout.splitlines():
    if line.startswith(f"{token} "):
      calls, verdicts = json.loads(line.removeprefix(f"{token} "))
      return CheckRun(calls=tuple(calls), verdicts=tuple(verdicts))
  return CheckRun()


class _Counter(ast.NodeTransformer):
  """Turns assertions into entries of a list, so that each of them counts."""

  def __init__(self):
    self.num_found = 0

  def visit_Assert(self, node: ast.Assert) -> ast.stmt:
    if isinstance(node.test, ast.Constant):
      return ast.Pass()  # it says nothing of the program
    self.num_found += 1
    return ast.parse(
      "try:\n"
      f"  _verdicts.append(bool({ast.unparse(node.test)}))\n"
      "except Exception:\n"
      "  _verdicts.append(False)\n"
    ).body[0]


def _count_assertions(check: str) -> str:
  try:
    tree = ast.parse(check)
  except SyntaxError as error:
    raise ValueError(f"hidden_tests is not Python: {error}") from error
  counter = _Counter()
  for node in tree.body:
    if isinstance(node, ast.FunctionDef) and node.name == "check":
      counter.visit(node)
  if not counter.num_found:
    raise ValueError(
      "hidden_tests is code; expected a function check(candidate) that asserts"
    )
  return ast.unparse(ast.fix_missing_locations(tree))
