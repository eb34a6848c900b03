"""Reasoning with a code interpreter, judged on the answer in its tag.

The policy writes a program, reads what it printed, and so on until it answers.
How actions look is written in `code_actions`, what it reads in `code_output`,
and how it is judged in `rewards/code.py` and by a `Judge`.
"""

from collections.abc import Mapping
import hashlib
from typing import Protocol

from arl_jax.envs import code_output
from arl_jax.envs.action_bound import bound_attempts
from arl_jax.envs.code_actions import Attempt, read_action
from arl_jax.envs.environment import StepResult
from arl_jax.episode import Message, Task
from arl_jax.rewards import code as code_rewards
from arl_jax.sandbox.sandbox import (
  Sandbox,
  SandboxResult,
  Session,
  SessionEndedError,
  Status,
  check_limits,
)

# Components that any judge may add to.
REWARDS = (
  "success",
  "answered",
  "turns",
  "tool_errors",
  "void_turns",
  "unsupported",
  "valid_code",
  "clean_runs",
  "format",
  "turn_cost",
  "repetition",
)
PREMATURE = "error: answer alone, once you have read the output"
NO_CODE = "error: write a program in ```python, or give <answer>"
TOO_MANY = "the rest was not run: an action may have at most {} programs"
_USAGE = """\
To run a program, write
```python
print(1 + 1)
```
and read what it printed. {keeps}
To finish: <answer>the answer</answer>"""
_KEEPS = {
  False: "Every program starts afresh.",
  True: "Variables are kept from one program to the next.",
}


class Judge(Protocol):
  """Says what a submission is worth."""

  async def judge(
    self, task: Task, submission: str, sandbox: Sandbox
  ) -> Mapping[str, float]:
    """Judges what was submitted.

    Args:
      task: with what is needed to judge in `hidden`.
      submission: the text between the answer's tags, never empty.
      sandbox: runs what has to be run.

    Returns:
      Components before weights, among them `success`, which is 0 or 1.
    """
    ...


class ExactAnswerJudge:
  """Compares with `task.hidden["answers"]`; see `rewards.code.exact_answer`."""

  async def judge(
    self, task: Task, submission: str, sandbox: Sandbox
  ) -> Mapping[str, float]:
    """Returns `success` alone.

    Raises:
      ValueError: the task has no right answers.
    """
    del sandbox  # nothing to run
    accepted = task.hidden.get("answers")
    if (
      not isinstance(accepted, list | tuple)
      or not accepted
      or not all(isinstance(one, str) and one.strip() for one in accepted)
    ):
      raise ValueError(
        f"hidden.answers of task {task.task_id} is {accepted!r}; expected"
        " texts, at least one"
      )
    return {"success": code_rewards.exact_answer(submission, accepted)}


class CodeEnv:
  """One episode of reasoning with a code interpreter.

  An action with programs is answered with what each printed. An action with
  an answer and no program ends the episode. An answer beside a program is
  refused, since it was given before the output was read. So are several
  answers. An action with neither is void: it is answered with what is expected,
  and counts as no call, which is what a filter for void turns looks for.

  What a sandbox does not support is told, and is no error of the policy.

  Args:
    sandbox: runs the programs; many episodes share one, and none closes it.
    judge: of answers; compares them with accepted ones by default.
    stateful: whether variables live on in the next program of the episode.
    max_calls_per_turn: programs of one action that are run, the first ones;
      malformed ones count. An action takes so many times `timeout_seconds` at
      most, besides waiting for the sandbox. The rest is one malformed program,
      and of several answers one counts.
    timeout_seconds: of one program.
    memory_mb: of one program, or of the session.
    max_output_chars: that are shown of what a program prints.
    full_traceback: whether all of a traceback is shown, or its last line.
    show_tools: whether a system message says what to write.
    system_prompt: text that the system message starts with; None for none.

  Raises:
    ValueError: a limit is out of its range.
  """

  def __init__(
    self,
    sandbox: Sandbox,
    *,
    judge: Judge | None = None,
    stateful: bool = False,
    max_calls_per_turn: int = 4,
    timeout_seconds: float = 5.0,
    memory_mb: int = 128,
    max_output_chars: int = 500,
    full_traceback: bool = False,
    show_tools: bool = True,
    system_prompt: str | None = None,
  ):
    check_limits(timeout_seconds=timeout_seconds, memory_mb=memory_mb)
    for name, value in (
      ("max_calls_per_turn", max_calls_per_turn),
      ("max_output_chars", max_output_chars),
    ):
      if value < 1:
        raise ValueError(f"{name} is {value}; expected 1 or more")
    self._sandbox = sandbox
    self._judge = judge or ExactAnswerJudge()
    self._stateful = stateful
    self._max_calls_per_turn = max_calls_per_turn
    self._timeout_seconds = timeout_seconds
    self._memory_mb = memory_mb
    self._max_output_chars = max_output_chars
    self._full_traceback = full_traceback
    self._show_tools = show_tools
    self._system_prompt = system_prompt
    self._task: Task | None = None
    self._session: Session | None = None
    self._begin()

  def _begin(self) -> None:
    self._answer: str | None = None
    self._actions: list[str] = []
    self._programs: list[str] = []
    self._num_clean = self._num_unsupported = self._num_malformed = 0

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Returns the question, after what to write."""
    del seed  # nothing here is random
    await self.close()
    self._task = task
    self._begin()
    user = Message(role="user", content=task.prompt)
    parts = [] if self._system_prompt is None else [self._system_prompt]
    if self._show_tools:
      parts.append(_USAGE.format(keeps=_KEEPS[self._stateful]))
    if not parts:
      return (user,)
    return (Message(role="system", content="\n".join(parts).strip()), user)

  async def step(self, action: str) -> StepResult:
    """Runs the programs of an action, or takes its answer."""
    if self._task is None:
      raise RuntimeError("the environment needs reset() first")
    if self._answer is not None:
      raise RuntimeError("step() after the final answer; call reset() first")
    self._actions.append(action)
    found = read_action(action)
    given = [each.answer for each in found if each.answer is not None]
    is_final = bool(given) and all(each.code is None for each in found)
    most = self._max_calls_per_turn
    attempts = bound_attempts(
      found,
      most=most,
      refuse=lambda start: Attempt(start=start, error=TOO_MANY.format(most)),
    )
    before = self._num_clean, self._num_unsupported
    texts: list[str] = []
    num_failed = 0
    for attempt in attempts:
      if is_final and attempt.answer is not None:
        continue
      text, failed = await self._respond(attempt)
      texts.append(text)
      num_failed += failed
    num_calls = len(texts)
    if not attempts:
      self._num_malformed += 1
      texts = [NO_CODE]
    if is_final:
      self._answer = given[0]
      await self.close()
    return StepResult(
      observations=()
      if is_final
      else tuple(Message(role="tool", content=text) for text in texts),
      terminated=is_final,
      rewards={
        "turns": 1.0,
        "tool_errors": float(num_failed),
        "void_turns": float(not attempts),
        "valid_code": float(self._num_clean - before[0]),
        "unsupported": float(self._num_unsupported - before[1]),
      },
      num_tool_calls=num_calls,
      num_tool_errors=num_failed,
      state_key=self._state_key(),
    )

  async def score(self) -> Mapping[str, float]:
    """What the judge says, and the components that no turn has."""
    if self._task is None:
      raise RuntimeError("the environment needs reset() first")
    found: Mapping[str, float] = {"success": 0.0}
    if self._answer is not None:
      found = await self._judge.judge(self._task, self._answer, self._sandbox)
    # What could not be tried says nothing about the policy.
    num_tried = len(self._programs) - self._num_unsupported
    return {
      "answered": float(self._answer is not None),
      "clean_runs": code_rewards.clean_runs(self._num_clean, num_tried),
      "format": code_rewards.format_penalty(
        self._answer, is_well_formed=self._num_malformed == 0
      ),
      "turn_cost": code_rewards.turn_cost(len(self._actions)),
      "repetition": code_rewards.repetition_penalty("\n".join(self._actions)),
      **found,
    }

  async def close(self) -> None:
    """Ends the session, if there is one."""
    session, self._session = self._session, None
    if session is not None:
      await session.__aexit__(None, None, None)

  async def _respond(self, attempt: Attempt) -> tuple[str, bool]:
    """What an attempt is answered with, and whether it failed."""
    if attempt.answer is not None:
      self._num_malformed += 1
      return PREMATURE, True
    if attempt.code is None:
      self._num_malformed += 1
      return f"error: {attempt.error}", True
    result, note = await self._run(attempt.code)
    self._programs.append(attempt.code)
    self._num_clean += result.status == Status.OK
    self._num_unsupported += result.status == Status.UNSUPPORTED
    text = code_output.describe_result(
      result,
      timeout_seconds=self._timeout_seconds,
      memory_mb=self._memory_mb,
      max_chars=self._max_output_chars,
      full_traceback=self._full_traceback,
    )
    return f"{note}{text}", result.status not in code_output.HARMLESS

  async def _run(self, code: str) -> tuple[SandboxResult, str]:
    """Runs a program; with what is to be said before its output."""
    if not self._stateful:
      result = await self._sandbox.run(
        code, timeout_seconds=self._timeout_seconds, memory_mb=self._memory_mb
      )
      return result, ""
    if self._session is None:
      return await self._run_in(await self._open(), code), ""
    try:
      return await self._run_in(self._session, code), ""
    except SessionEndedError:
      await self.close()
    result = await self._run_in(await self._open(), code)
    return result, f"{code_output.VARIABLES_LOST}\n"

  async def _open(self) -> Session:
    session = self._sandbox.session(memory_mb=self._memory_mb)
    await session.__aenter__()
    self._session = session
    return session

  async def _run_in(self, session: Session, code: str) -> SandboxResult:
    return await session.run(code, timeout_seconds=self._timeout_seconds)

  def _state_key(self) -> str:
    """Names what was run: in its order, if that matters."""
    programs = self._programs if self._stateful else sorted(self._programs)
    return hashlib.sha256(repr(programs).encode()).hexdigest()
