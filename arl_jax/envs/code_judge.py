"""Judges a program by tests that it does not see.

What is right never enters the interpreter that runs the program. There it is
called, and what it answers comes out as data (`code_calls`). Then

- where tests are pairs of a call and its value, this process compares;
- where tests are code, `check(candidate)`, that code runs in an interpreter
  without the program, and `candidate` looks its answers up (`code_replay`).

So a program that exits before the tests, prints that it has passed, answers
with an object that equals everything, or replaces `assert` or `print`, fails.

What can still be had without solving the task:

- A `SubprocessSandbox` keeps no files from the program: it can read gold
  programs from an installed package, or what this process holds in memory.
  `BubblewrapSandbox` and `MontySandbox` have neither.
- Tests that are few, or that repeat the visible ones, are passed by programs
  that are wrong. `hard_coded` finds some of these.
- Where the sandbox may lack something, a program can end as unsupported on
  purpose: it is not counted then, instead of counted as wrong.
- A program may keep what it was called with, and answer calls in their order.
  It needs the right answers for that.
"""

import ast
from collections.abc import Mapping, Sequence
import dataclasses
import re
import secrets
from typing import Any

from arl_jax.envs import code_calls, code_replay
from arl_jax.envs.code_replay import CheckRun
from arl_jax.envs.hard_coding import is_hard_coded
from arl_jax.episode import Task
from arl_jax.sandbox.sandbox import Sandbox, SandboxResult, Status
from arl_jax.text.action_formats import BlockStatus, parse_code_blocks


class UnsupportedProgramError(RuntimeError):
  """The sandbox lacks what a program needs, so nothing is known of it.

  An episode that ends so has failed, and is not trained on.
  """


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CodeTests:
  """How a function is tested, as a task's `hidden` holds it.

  Attributes:
    entry_point: name of the function.
    prefix: program text that comes before what is submitted; it may end with
      the head of the function.
    visible_tests: calls and their values, both as text of Python; those that
      the prompt shows.
    hidden_tests: the same, not shown; or text that defines `check(candidate)`,
      which asserts. `candidate` takes positional arguments, and the same ones
      whatever it answers; it is asked once about equal ones.
    reference: a right program, prefix included; for a `check` alone.
  """

  entry_point: str
  prefix: str = ""
  visible_tests: Sequence[tuple[str, str]] = ()
  hidden_tests: Sequence[tuple[str, str]] | str
  reference: str = ""

  def as_hidden(self) -> dict[str, Any]:
    """Returns a task's `hidden`."""
    return {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
    }


def read_tests(task: Task) -> CodeTests:
  """Returns the tests of a task.

  Raises:
    ValueError: they are not what `CodeTests` describes.
  """
  names = {field.name for field in dataclasses.fields(CodeTests)}
  given = {key: task.hidden[key] for key in names & task.hidden.keys()}
  entry_point = given.get("entry_point")
  if not isinstance(entry_point, str) or not entry_point.isidentifier():
    raise ValueError(
      f"task {task.task_id}: entry_point is {entry_point!r}; expected the name"
      " of a function"
    )
  for name in ("prefix", "reference"):
    if not isinstance(given.get(name, ""), str):
      raise ValueError(
        f"task {task.task_id}: {name} is {given[name]!r}; expected text"
      )
  for name in ("visible_tests", "hidden_tests"):
    tests = given.get(name, ())
    if name == "hidden_tests" and isinstance(tests, str):
      if not given.get("reference"):
        raise ValueError(
          f"task {task.task_id}: hidden_tests is code, but there is no"
          " reference; give the text of a right program"
        )
      continue
    given[name] = tuple(_read_pair(task, name, one) for one in tests)
  if not given["hidden_tests"]:
    raise ValueError(f"task {task.task_id}: hidden_tests is empty")
  return CodeTests(**given)


class HiddenTestsJudge:
  """A `Judge` of programs, by the hidden tests of their task.

  Its components:

  - `success`: 1 if all hidden tests pass;
  - `pass_rate`: the share of hidden tests that pass;
  - `visible_pass_rate`: the same of the visible tests, 0 if there are none;
  - `hard_coded`: 1 if the program seems to hold the answers of the visible
    tests; see `hard_coding`.

  The submission is a program that defines the function, or the function's body
  where the task's prefix ends with its head. Of text with fenced blocks of
  Python, it is the last one.

  Args:
    timeout_seconds: of a run of a program with all its tests.
    memory_mb: the same.
  """

  def __init__(self, *, timeout_seconds: float = 10.0, memory_mb: int = 512):
    self._limits: dict[str, Any] = {
      "timeout_seconds": timeout_seconds,
      "memory_mb": memory_mb,
    }
    self._recorded: dict[tuple[str, str, str], CheckRun] = {}

  async def judge(
    self, task: Task, submission: str, sandbox: Sandbox
  ) -> Mapping[str, float]:
    """Runs a submission with its tests.

    Raises:
      ValueError: the task's tests are not what they should be.
      UnsupportedProgramError: the sandbox lacks what the program needs.
    """
    tests = read_tests(task)
    program = program_text(submission, tests)
    hidden = tests.hidden_tests
    calls = [call for call, _ in tests.visible_tests]
    first = len(calls)
    if isinstance(hidden, str):
      calls += (await self._record(tests, hidden, sandbox)).calls
    else:
      calls += [call for call, _ in hidden]
    token = secrets.token_hex(8)
    result = await sandbox.run(
      code_calls.calling_program(program, calls, token=token), **self._limits
    )
    answers = code_calls.read_answers(result.stdout, token=token)
    visible = _share_same(answers, tests.visible_tests)
    if isinstance(hidden, str):
      known = {
        call: answers[number]
        for number, call in enumerate(calls)
        if number >= first and number in answers
      }
      passed = await self._replay(tests, hidden, known, sandbox)
    else:
      passed = _share_same(answers, hidden, first=first)
    if passed < 1:
      _refuse_unsupported(result, f"the program of {task.task_id} needs")
    return {
      "success": float(passed == 1),
      "pass_rate": passed,
      "visible_pass_rate": visible,
      "hard_coded": float(
        is_hard_coded(
          program,
          tests.visible_tests,
          passes_visible=visible == 1,
          passes_hidden=passed == 1,
        )
      ),
    }

  async def _record(
    self, tests: CodeTests, check: str, sandbox: Sandbox
  ) -> CheckRun:
    """Returns how a check goes with the reference."""
    key = (tests.entry_point, tests.reference, check)
    if key not in self._recorded:
      token = secrets.token_hex(8)
      program = code_replay.recording_program(
        check, tests.reference, tests.entry_point, token=token
      )
      result = await sandbox.run(program, **self._limits)
      run = code_replay.read_check_run(result.stdout, token=token)
      _refuse_unsupported(result, f"the tests of {tests.entry_point} need")
      if result.status is not Status.OK or not all(run.verdicts):
        raise ValueError(
          f"the reference of {tests.entry_point} does not pass its own tests:"
          f" {sum(run.verdicts)} of {len(run.verdicts)} assertions hold,"
          f" status {result.status}: {_last_line(result.stderr)}"
        )
      self._recorded[key] = run
    return self._recorded[key]

  async def _replay(
    self,
    tests: CodeTests,
    check: str,
    answers: Mapping[str, Any],
    sandbox: Sandbox,
  ) -> float:
    """Returns the share of a check's assertions that hold."""
    if not answers:
      return 0.0
    token = secrets.token_hex(8)
    program = code_replay.replaying_program(
      check, tests.reference, tests.entry_point, answers=answers, token=token
    )
    result = await sandbox.run(program, **self._limits)
    found = code_replay.read_check_run(result.stdout, token=token).verdicts
    expected = (await self._record(tests, check, sandbox)).verdicts
    return sum(found) / max(len(found), len(expected))


def program_text(submission: str, tests: CodeTests) -> str:
  """Returns the program that a submission is.

  Args:
    submission: a program that defines the function, or its body; of text with
      fenced blocks of Python, the last one counts.
    tests: have the function's name, and what comes before.
  """
  blocks = parse_code_blocks(submission, languages=("python", "py", ""))
  codes = [block.code for block in blocks if block.status is BlockStatus.OK]
  code = str(codes[-1]) if codes else submission
  name = re.escape(tests.entry_point)
  if not tests.prefix or re.search(rf"^(?:def\s+)?{name}\b", code, re.M):
    return f"{tests.prefix}\n{code}\n"
  # The spaces before its first line may have been taken for white space.
  body = code.strip("\n")
  indent = "" if body[:1] in (" ", "\t") else "    "
  return f"{tests.prefix}{indent}{body}\n"


def _share_same(
  answers: Mapping[int, Any],
  tests: Sequence[tuple[str, str]],
  *,
  first: int = 0,
) -> float:
  same = [
    number in answers
    and code_calls.is_same(answers[number], ast.literal_eval(expected))
    for number, (_, expected) in enumerate(tests, start=first)
  ]
  return sum(same) / len(same) if same else 0.0


def _refuse_unsupported(result: SandboxResult, what: str) -> None:
  if result.status is Status.UNSUPPORTED:
    raise UnsupportedProgramError(
      f"the sandbox lacks what {what}: {_last_line(result.stderr)}"
    )


def _last_line(text: str) -> str:
  return (text.strip().splitlines() or ["(nothing)"])[-1]


def _read_pair(task: Task, name: str, pair: Any) -> tuple[str, str]:
  try:
    call, expected = pair
    ast.parse(call, mode="eval")
    ast.literal_eval(expected)
  except (ValueError, TypeError, SyntaxError) as error:
    raise ValueError(
      f"task {task.task_id}: {name} has {pair!r}; expected pairs of a call and"
      " its value, as text of Python, such as ('add(2, 3)', '5')"
    ) from error
  return call, expected
