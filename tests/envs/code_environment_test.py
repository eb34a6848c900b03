"""Tests of an episode with a code interpreter."""

import asyncio
import threading

import numpy as np
import pytest

from arl_jax.bridge.batching import collate_facts
from arl_jax.envs.check import check_environment, format_report
from arl_jax.envs.code_environment import (
  NO_CODE,
  PREMATURE,
  REWARDS,
  TOO_MANY,
  CodeEnv,
  ExactAnswerJudge,
)
from arl_jax.envs.code_output import NO_OUTPUT, VARIABLES_LOST
from arl_jax.envs.code_tasks import generate_tasks
from arl_jax.envs.code_trusted import TrustedSandbox
from arl_jax.envs.environment_checks import CheckStatus
from arl_jax.envs.inline import run_inline
from arl_jax.episode import Episode, EpisodeStatus, Group, Row, Task, Turn
from arl_jax.sandbox.sandbox import (
  SandboxResult,
  SandboxStartError,
  SessionEndedError,
  Status,
)
from arl_jax.synthesis.code_experts import play_expert
from arl_jax.text.action_formats import render_code_block

TASK = Task(task_id="t", prompt="What is 6 * 7?", hidden={"answers": ["42"]})
PROGRAM = render_code_block("print(6 * 7)")
RIGHT, WRONG = "<answer>42</answer>", "<answer>41</answer>"


class ScriptedSandbox:
  """Answers each program with a status that is its text; counts sessions."""

  def __init__(self):
    self.num_open = self.num_opened = 0

  async def run(self, code, *, timeout_seconds, memory_mb, stdin=""):
    if code == "broken":
      raise SandboxStartError("no memory on this machine")
    return SandboxResult(
      status=Status(code), stdout="1\n", stderr="a\nE: b\n", seconds=0.0
    )

  def session(self, *, memory_mb):
    return ScriptedSession(self)

  async def aclose(self):
    raise AssertionError("an episode closes no sandbox")


class ScriptedSession:
  """Ends with what ends a session."""

  def __init__(self, sandbox):
    self._sandbox, self._ended = sandbox, False

  async def __aenter__(self):
    self._sandbox.num_open += 1
    self._sandbox.num_opened += 1
    return self

  async def __aexit__(self, *error):
    self._sandbox.num_open -= 1

  async def run(self, code, *, timeout_seconds, stdin=""):
    if self._ended:
      raise SessionEndedError("over")
    result = await self._sandbox.run(
      code, timeout_seconds=timeout_seconds, memory_mb=64
    )
    self._ended = result.status in (Status.TIMEOUT, Status.CRASH)
    return result


def play(*actions: str, task: Task = TASK, sandbox=None, **options):
  """Returns the steps and the scores."""
  environment = CodeEnv(sandbox or TrustedSandbox(), **options)
  run_inline(environment.reset(task, seed=0))
  steps = [run_inline(environment.step(action)) for action in actions]
  scores = run_inline(environment.score())
  run_inline(environment.close())
  return steps, scores


def texts(step) -> list[str]:
  return [message.content for message in step.observations]


def test_a_program_is_run_and_its_output_read_before_the_answer():
  steps, scores = play(PROGRAM, RIGHT)
  assert texts(steps[0]) == ["42"]
  assert [step.terminated for step in steps] == [False, True]
  assert steps[0].rewards == {
    "turns": 1.0,
    "tool_errors": 0.0,
    "void_turns": 0.0,
    "valid_code": 1.0,
    "unsupported": 0.0,
  }
  assert scores == {
    "success": 1.0,
    "answered": 1.0,
    "clean_runs": 1.0,
    "format": 0.0,
    "turn_cost": -0.2,
    "repetition": 0.0,
  }
  assert {*scores, *steps[0].rewards} == set(REWARDS)
  assert play(PROGRAM, WRONG)[1]["success"] == 0.0


def test_an_answer_beside_a_program_came_before_it_was_read():
  (step,), scores = play(PROGRAM + "\n" + RIGHT)
  assert not step.terminated
  assert texts(step) == ["42", PREMATURE]
  assert (step.num_tool_calls, step.num_tool_errors) == (2, 1)
  assert (scores["success"], scores["answered"]) == (0.0, 0.0)
  assert scores["format"] == -1.0
  assert play(PROGRAM + "\n" + RIGHT, RIGHT)[1]["success"] == 1.0


def test_no_more_programs_of_an_action_run_than_may():
  action = "\n".join(
    render_code_block(f"x{n} = 1\nprint({n}, 'x0' in globals())")
    for n in range(50)
  )
  refused = f"error: {TOO_MANY}"
  (step, after), scores = play(action, action, stateful=True)
  # The first ones do, and nothing is earned by the others.
  assert texts(step) == [*(f"{n} True" for n in range(4)), refused.format(4)]
  assert step.rewards["valid_code"] == after.rewards["valid_code"] == 4.0
  assert (step.num_tool_calls, step.num_tool_errors) == (5, 1)
  assert (scores["clean_runs"], scores["format"]) == (1.0, -1.0)
  (step,), _ = play(f"{PROGRAM}\n{PROGRAM}\n{RIGHT}", max_calls_per_turn=1)
  assert texts(step) == ["42", refused.format(1), PREMATURE]
  assert not step.terminated
  # A program that is not read is still no reason to take an answer.
  (step,), _ = play(f"```python\n{PROGRAM}\n{RIGHT}", max_calls_per_turn=1)
  assert texts(step)[1:] == [refused.format(1), PREMATURE]
  assert not step.terminated


def test_an_answer_in_an_unfinished_program_is_none():
  (step, last), scores = play(f"```python\nprint(6 * 7)\n{RIGHT}", RIGHT)
  assert not step.terminated
  assert [text.partition(":")[0] for text in texts(step)] == ["error"]
  assert last.terminated
  assert (scores["success"], scores["format"]) == (1.0, -1.0)


def test_the_answer_is_never_read_from_an_output():
  echo = render_code_block("print('<answer>42</answer>')")
  steps, scores = play(echo, PROGRAM)
  assert texts(steps[0]) == [RIGHT]
  assert not any(step.terminated for step in steps)
  assert scores["success"] == scores["answered"] == 0.0


def test_mistakes_are_answered_and_lose_no_answer():
  (step,), scores = play(f"```\n1\n```\n{RIGHT}")
  assert step.terminated
  assert (step.num_tool_calls, step.num_tool_errors) == (1, 1)
  assert (scores["success"], scores["format"]) == (1.0, -1.0)
  (step,), scores = play(f"{RIGHT}{WRONG}")
  assert texts(step) == ["error: more than one <answer>; give one"] * 2
  assert scores["success"] == 0.0


def turn_of(action: str, step) -> Turn:
  return Turn(
    action=action,
    finish_reason="stop",
    num_tool_calls=step.num_tool_calls,
    num_tool_errors=step.num_tool_errors,
  )


def test_a_void_turn_is_seen_by_its_filter_and_no_other_turn_is():
  empty = np.zeros(0, np.int32)
  row = Row(
    tokens=empty,
    action_mask=np.zeros(0, bool),
    turn_ids=empty,
    behavior_logprobs=np.zeros(0, np.float32),
    policy_versions=empty,
  )
  failing = render_code_block("1 / 0")
  actions = [PROGRAM, "Let me think.", failing, f"{PROGRAM}\n{RIGHT}", RIGHT]
  steps, scores = play(*actions)
  turns = tuple(map(turn_of, actions, steps))
  episode = Episode(
    task=TASK,
    member=0,
    status=EpisodeStatus.TERMINATED,
    rows=(row,),
    turns=turns,
  )
  group = Group(ordinal=0, task=TASK, episodes=(episode,))
  facts = collate_facts([group], version=0, num_rows=1, num_turns=5)
  assert np.asarray(facts.turn_is_void).tolist() == [
    [False, True, False, False, False]
  ]
  assert texts(steps[1]) == [NO_CODE]
  assert steps[1].rewards["void_turns"] == 1.0
  assert steps[1].rewards["tool_errors"] == 0.0
  assert scores["format"] == -1.0


@pytest.mark.parametrize("status", list(Status))
def test_statuses_are_told_and_only_the_policys_mistakes_are_counted(status):
  (step,), scores = play(
    render_code_block(status.value), sandbox=ScriptedSandbox(), memory_mb=64
  )
  (text,) = texts(step)
  failed = status not in (Status.OK, Status.UNSUPPORTED)
  assert (step.num_tool_calls, step.num_tool_errors) == (1, failed)
  assert step.rewards["tool_errors"] == failed
  assert step.rewards["valid_code"] == (status == Status.OK)
  assert step.rewards["unsupported"] == (status == Status.UNSUPPORTED)
  assert scores["clean_runs"] == (status == Status.OK)
  assert text.startswith("1\n")
  assert ("error: " in text) == failed
  assert ("E: b" in text) == (
    status in (Status.OK, Status.ERROR, Status.UNSUPPORTED)
  )


def test_what_a_sandbox_lacks_is_left_out_of_the_share_of_clean_runs():
  ok, unsupported = (
    render_code_block(each) for each in (Status.OK, Status.UNSUPPORTED)
  )
  _, scores = play(ok, unsupported, unsupported, sandbox=ScriptedSandbox())
  assert scores["clean_runs"] == 1.0


def test_a_machine_that_fails_is_no_observation():
  with pytest.raises(SandboxStartError):
    play(render_code_block("broken"), sandbox=ScriptedSandbox())


def test_output_is_cut_and_nothing_is_told():
  long = render_code_block("print('a' * 300 + 'b' * 300)")
  (step,), _ = play(long, max_output_chars=20)
  assert texts(step) == ["a" * 10 + "\n[580 characters left out]\n" + "b" * 10]
  (step,), _ = play(render_code_block("6 * 7"))
  assert texts(step) == [NO_OUTPUT]
  fails = render_code_block("print(1)\n1 / 0")
  (step,), _ = play(fails)
  assert texts(step) == ["1\nerror: ZeroDivisionError: division by zero"]
  (step,), _ = play(fails, full_traceback=True)
  assert "line 2" in texts(step)[0]


def test_variables_live_on_where_that_is_asked_for():
  actions = [render_code_block("x = 42"), render_code_block("print(x)")]
  assert texts(play(*actions, stateful=True)[0][1]) == ["42"]
  assert texts(play(*actions)[0][1]) == [
    "error: NameError: name 'x' is not defined"
  ]


def test_a_session_is_opened_when_needed_and_left_in_any_case():
  sandbox = ScriptedSandbox()
  ok, late = (
    render_code_block(each.value) for each in (Status.OK, Status.TIMEOUT)
  )
  play(RIGHT, sandbox=sandbox, stateful=True)
  assert sandbox.num_opened == 0
  environment = CodeEnv(sandbox, stateful=True)
  run_inline(environment.reset(TASK, seed=0))
  run_inline(environment.step(ok))
  assert sandbox.num_open == 1
  run_inline(environment.step(RIGHT))  # others may wait for an interpreter
  assert sandbox.num_open == 0
  steps, _ = play(late, ok, ok, sandbox=sandbox, stateful=True)
  assert texts(steps[1]) == [f"{VARIABLES_LOST}\n1\na\nE: b"]
  assert VARIABLES_LOST not in texts(steps[2])[0]
  assert sandbox.num_open == 0
  assert sandbox.num_opened == 3
  run_inline(environment.reset(TASK, seed=0))
  run_inline(environment.step(ok))
  run_inline(environment.reset(TASK, seed=0))
  assert sandbox.num_open == 0
  run_inline(environment.close())
  run_inline(environment.close())


def test_a_judge_of_ones_own_gets_the_text_of_the_answer():
  class LengthJudge:
    async def judge(self, task, submission, sandbox):
      return {"success": 1.0, "length": float(len(submission))}

  program = f"<answer>\n{PROGRAM}\n</answer>"
  (step,), scores = play(program, judge=LengthJudge())
  assert step.terminated
  assert scores["length"] == len(PROGRAM)
  assert play("hm", judge=LengthJudge())[1]["success"] == 0.0


def test_states_are_equal_where_the_same_programs_ran():
  one, other = (render_code_block(f"print({n})") for n in (1, 2))

  def key(*actions, **options):
    return play(*actions, **options)[0][-1].state_key

  assert key(one, other) == key(other, one) == key(other, "hm", one)
  assert key(one, other) != key(one)
  assert key(one, other, stateful=True) != key(other, one, stateful=True)


def test_the_prompt_says_what_to_write():
  def prompt(**options):
    environment = CodeEnv(TrustedSandbox(), **options)
    return run_inline(environment.reset(TASK, seed=0))

  system, user = prompt()
  assert (system.role, user.content) == ("system", TASK.prompt)
  assert "```python" in system.content
  assert "<answer>" in system.content
  assert prompt(stateful=True)[0] != system
  assert prompt(show_tools=False) == (user,)
  assert prompt(system_prompt="Be brief.")[0].content.startswith("Be brief.\n")


@pytest.mark.parametrize("stateful", [False, True])
def test_the_environment_passes_its_check_in_a_real_sandbox(stateful):
  pytest.importorskip(
    "pydantic_monty", reason="needs pydantic-monty: pip install arl-jax[monty]"
  )
  from arl_jax.run.code_suite import CodeSettings, code_suite

  suite = code_suite(CodeSettings(stateful=stateful))
  tasks = generate_tasks(4, seed=0, split="train")

  def gold(task):
    environment = CodeEnv(TrustedSandbox(), stateful=stateful)
    played = run_inline(play_expert(environment, task, stateful=stateful))
    return [action for _, action in played.turns]

  results = check_environment(
    suite.make_environment, tasks, gold_actions=gold, max_block_seconds=30.0
  )
  report = format_report(results)
  assert all(r.status == CheckStatus.OK for r in results), report
  assert "cancelled steps ended" in report


def test_a_program_that_runs_long_holds_up_nobody():
  """The loop serves others while an episode waits for its program."""
  pytest.importorskip(
    "pydantic_monty", reason="needs pydantic-monty: pip install arl-jax[monty]"
  )
  from arl_jax.sandbox.monty_sandbox import MontySandbox

  class Gate:
    """Whoever is not the event loop may wait for it."""

    def __init__(self, sandbox):
      self._sandbox, self.opened = sandbox, threading.Event()

    async def run(self, code, **limits):
      await asyncio.to_thread(self.opened.wait)
      return await self._sandbox.run(code, **limits)

  async def main():
    sandbox = MontySandbox()
    gate = Gate(sandbox)
    environments = [CodeEnv(gate), CodeEnv(sandbox)]  # pyright: ignore
    for environment in environments:
      await environment.reset(TASK, seed=0)
    waits = asyncio.create_task(environments[0].step(PROGRAM))
    step = await environments[1].step(PROGRAM)
    assert not waits.done()
    gate.opened.set()
    assert texts(await waits) == texts(step) == ["42"]
    await sandbox.aclose()

  asyncio.run(main())


def test_misuse_is_explained():
  environment = CodeEnv(TrustedSandbox())
  for call in (lambda: environment.step(RIGHT), environment.score):
    with pytest.raises(RuntimeError, match="reset"):
      run_inline(call())
  run_inline(environment.reset(TASK, seed=0))
  run_inline(environment.step(RIGHT))
  with pytest.raises(RuntimeError, match="after the final answer"):
    run_inline(environment.step(RIGHT))
  with pytest.raises(ValueError, match="max_output_chars is 0"):
    CodeEnv(TrustedSandbox(), max_output_chars=0)
  with pytest.raises(ValueError, match="max_calls_per_turn is 0; expected 1"):
    CodeEnv(TrustedSandbox(), max_calls_per_turn=0)
  with pytest.raises(ValueError, match="memory_mb is 1"):
    CodeEnv(TrustedSandbox(), memory_mb=1)
  with pytest.raises(ValueError, match="hidden.answers of task u is None"):
    run_inline(
      ExactAnswerJudge().judge(
        Task(task_id="u", prompt=""), "1", TrustedSandbox()
      )
    )
