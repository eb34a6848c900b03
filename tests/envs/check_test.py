"""Tests of checking an environment: sound ones pass, each fault is named."""

import asyncio
import pathlib
import random
import re
import subprocess
import sys
import time

import pytest

from arl_jax.envs import check
from arl_jax.envs.check import check_environment, format_report, main
from arl_jax.envs.environment import StepResult
from arl_jax.envs.environment_checks import CHECKS
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.flight_expert import play_expert
from arl_jax.envs.flight_tasks import generate_tasks
from arl_jax.envs.inline import run_inline
from arl_jax.envs.off_loop import OffLoopEnvironment
from arl_jax.episode import Message, Task
from arl_jax.text import tokenizer as tokenizer_lib

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "own-environment.md"
TASKS = [
  Task(task_id=word, prompt="Say the word.", hidden={"word": word, "log": []})
  for word in ("tea", "owl")
]


def gold(task):
  return ["look", task.hidden["word"]]


class Sound:
  """Tells a word, and waits before it does."""

  shared: list[str] = []

  async def reset(self, task, *, seed):
    self.rng = random.Random(seed)
    self.task, self.answer = task, ""
    return (Message(role="user", content=task.prompt),)

  async def step(self, action):
    await asyncio.sleep(0)
    if action == "look":
      text = f"{self.task.hidden['word']} {self.rng.random()}"
      return StepResult(observations=(Message(role="tool", content=text),))
    self.answer = action
    return StepResult(terminated=True, rewards={"turns": 1})

  async def score(self):
    return {"success": float(self.answer == self.task.hidden["word"])}


def run(make, *, gold_actions=gold, tasks=TASKS, **options):
  return check_environment(make, tasks, gold_actions=gold_actions, **options)


def failures(results):
  return {r.name: r.detail for r in results if r.status == "FAILED"}


def only_failure(make, **options):
  """Returns the name and the detail of the one check that fails."""
  (found,) = failures(run(make, **options)).items()
  return found


def test_a_sound_environment_passes_every_check():
  results = run(Sound)
  assert not failures(results), format_report(results)
  assert [result.name for result in results] == [*CHECKS, "event loop"]
  assert {result.status for result in results} == {"ok"}
  details = {result.name: result.detail for result in results}
  assert details["timeouts"] == "4 cancelled steps ended"
  assert details["prompt"] == "13 characters at most"


def test_every_environment_is_closed_and_one_that_cannot_is_named():
  opened, closed = [], []

  class Closable(Sound):
    async def reset(self, task, *, seed):
      opened.append(self)
      return await super().reset(task, seed=seed)

    async def close(self):
      closed.append(self)

  assert not failures(run(Closable))
  assert {*map(id, opened)} == {*map(id, closed)}
  assert len(opened) == len(closed)

  class Broken(Sound):
    async def close(self):
      raise KeyError("sandbox")

  assert "close raised KeyError" in failures(run(Broken))["types"]


def test_flight_booking_is_sound():
  def expert_actions(task):
    played = run_inline(play_expert(FlightBookingEnv(), task))
    return [turn.action for turn in played.turns]

  tasks = generate_tasks(4, seed=3, split="train")
  results = run(FlightBookingEnv, tasks=tasks, gold_actions=expert_actions)
  assert not failures(results), format_report(results)
  results = run(FlightBookingEnv, tasks=tasks[:1], gold_actions=None)
  assert "give one, as a method or beside" in failures(results)["gold"]
  assert [*failures(results)] == ["gold"]


class Blocking:
  def reset(self, task, *, seed):
    self.task, self.answer = task, ""
    return (Message(role="user", content=task.prompt),)

  def step(self, action):
    self.answer = action
    return StepResult(terminated=action != "look")

  def score(self):
    return {"success": float(self.answer == self.task.hidden["word"])}


def test_a_blocking_environment_needs_threads():
  assert not failures(run(lambda: OffLoopEnvironment(Blocking())))
  results = run(Blocking)
  assert "use `async def`, or put" in failures(results)["types"]
  assert results[1].status == "skipped"


class ClockBound(Sound):
  async def step(self, action):
    result = await super().step(action)
    text = Message(role="tool", content=str(time.monotonic_ns()))
    return StepResult(observations=(text,), terminated=result.terminated)


class Unsolvable(Sound):
  async def score(self):
    return {"success": 0.0}


class Generous(Sound):
  async def score(self):
    return {"success": 1.0}


class Lazy(Sound):
  async def score(self):
    return {"success": float(self.answer in ("", self.task.hidden["word"]))}


class Shared(Sound):
  async def reset(self, task, *, seed):
    Shared.shared = []  # so that one episode alone looks well
    return await super().reset(task, seed=seed)

  async def step(self, action):
    Shared.shared.append(action)
    await asyncio.sleep(0)
    self.answer = action
    text = Message(role="tool", content=str(len(Shared.shared)))
    return StepResult(observations=(text,), terminated=action != "look")


class Vandal(Sound):
  async def step(self, action):
    self.task.hidden["log"].append(action)
    return await super().step(action)


class Stubborn(Sound):
  async def step(self, action):
    try:
      await asyncio.sleep(0.01)
    except asyncio.CancelledError:
      pass
    return await super().step(action)


class Careless(Sound):
  async def step(self, action):
    try:
      await asyncio.sleep(0.01)
    except BaseException as error:
      raise OSError("lost") from error
    return await super().step(action)


class Endless(Sound):
  async def step(self, action):
    for _ in range(100):
      try:
        await asyncio.sleep(0.02)
        break
      except asyncio.CancelledError:
        await asyncio.sleep(30)
    return await super().step(action)


class Verbose(Sound):
  async def reset(self, task, *, seed):
    await super().reset(task, seed=seed)
    return (Message(role="user", content="x" * 101),)


class Silent(Sound):
  async def reset(self, task, *, seed):
    await super().reset(task, seed=seed)
    return ()


SAME = Sound()


@pytest.mark.parametrize(
  ("make", "name", "problem"),
  [
    (ClockBound, "determinism", "played twice: step 1 answered .*seed"),
    (Unsolvable, "gold", "task 'tea': the gold actions score 0; the last"),
    (Generous, "random", "an empty action scores 1 on every task"),
    (Lazy, "random", "an empty action scores 1 on every task"),
    (Shared, "isolation", "alone and beside others: step . answered .*class"),
    (Vandal, "isolation", r"changes task.hidden"),
    (lambda: SAME, "isolation", "the same environment is given"),
    (Stubborn, "timeouts", "answered when it was cancelled; let the Canc"),
    (Careless, "timeouts", "raised OSError: lost when it was cancelled"),
    (Silent, "prompt", "the prompt is empty"),
  ],
)
def test_a_fault_fails_its_check_alone(make, name, problem):
  tasks = [
    Task(task_id=t.task_id, prompt=t.prompt, hidden={**t.hidden, "log": []})
    for t in TASKS
  ]
  found, detail = only_failure(make, tasks=tasks)
  assert found == name
  assert re.search(problem, detail), detail


def test_a_step_that_does_not_end_when_cancelled_is_left_behind():
  found, detail = only_failure(Endless, timeout_seconds=2.0)
  assert found == "timeouts"
  assert "went on for 2 seconds after it was cancelled" in detail


def test_a_limit_on_the_prompt_is_kept():
  found, detail = only_failure(Verbose, max_prompt_length=100)
  assert found == "prompt"
  assert "the prompt has 101 characters; the limit is 100" in detail
  assert not failures(run(Verbose, max_prompt_length=101))


def answering(**answers):
  """Returns a class whose methods answer with given values."""

  class Odd(Sound):
    async def reset(self, task, *, seed):
      right = await super().reset(task, seed=seed)
      return answers.get("reset", right)

    async def step(self, action):
      right = await super().step(action)
      return answers.get("step", right)

    async def score(self):
      return answers.get("score", await super().score())

  return Odd


MESSAGE = Message(role="user", content="")


@pytest.mark.parametrize(
  ("answers", "problem"),
  [
    ({"reset": "hello"}, "reset gave a str; expected a tuple of messages"),
    ({"reset": ("hello",)}, "reset gave a str; expected a Message"),
    ({"reset": (Message(role="bot", content=""),)}, "of role 'bot'; expected"),
    (
      {"reset": (Message(role="user", content=b""),)},  # pyright: ignore
      "whose content is a bytes",
    ),
    ({"step": None}, "step 1 gave None; expected a StepResult"),
    ({"step": StepResult(terminated=1)}, "terminated=1; expected a bool"),  # pyright: ignore
    ({"step": StepResult(rewards={"x": float("nan")})}, "component x=nan"),
    ({"step": StepResult(rewards={1: 1.0})}, "named a component 1"),  # pyright: ignore
    ({"step": StepResult(rewards=[])}, "gave a list; expected reward"),  # pyright: ignore
    ({"step": StepResult(num_tool_calls=-1)}, "num_tool_calls=-1; expected"),
    ({"step": StepResult(state_key=3)}, "state_key that is a int"),  # pyright: ignore
    ({"score": {"won": 1.0}}, "expected a component `success`"),
    ({"score": {"success": 0.5}}, "expected a component `success`"),
    ({"score": None}, "score gave None; expected reward components"),
  ],
)
def test_wrong_types_are_named_and_end_the_checks(answers, problem):
  results = run(answering(**answers))
  assert problem in failures(results)["types"]
  statuses = [result.status for result in results]
  assert statuses[1:-1] == ["skipped"] * (len(CHECKS) - 1)


class Crash(Sound):
  async def step(self, action):
    raise KeyError("row")


class Late(Sound):
  async def step(self, action):
    await asyncio.Event().wait()
    return StepResult()


class Interrupted(Sound):
  async def score(self):
    raise KeyboardInterrupt


class Unmade(Sound):
  def __init__(self):
    raise OSError("no database")


@pytest.mark.parametrize(
  ("make", "seconds", "problem"),
  [
    (Crash, 30.0, r"step raised KeyError: 'row' at .*check_test.py:\d+"),
    (Late, 0.2, r"step gave no answer within 0.2 seconds"),
    (Interrupted, 30.0, r"KeyboardInterrupt at .*check_test.py"),
    (Unmade, 30.0, r"OSError: no database at .*check_test.py:\d+"),
    (object, 30.0, "object has no method reset"),
  ],
)
def test_what_breaks_is_said_with_its_place(make, seconds, problem):
  detail = failures(run(make, timeout_seconds=seconds))["types"]
  assert re.search(problem, detail), detail


class Sleeper(Sound):
  slept = False

  async def step(self, action):
    if not Sleeper.slept:
      Sleeper.slept = True
      time.sleep(0.6)  # noqa: ASYNC251
    return await super().step(action)


def test_a_step_that_holds_the_event_loop_is_found():
  found, detail = only_failure(Sleeper, max_block_seconds=0.3)
  assert found == "event loop"
  assert "use OffLoopEnvironment" in detail


class Hung(Sound):
  async def step(self, action):
    time.sleep(30)  # noqa: ASYNC251
    return await super().step(action)


def test_a_step_that_never_gives_the_loop_back_is_given_up():
  results = run(Hung, timeout_seconds=2.0, max_block_seconds=2.0)
  assert [result.name for result in results] == ["event loop"]
  assert re.search(r"2 seconds, at .*check_test.py:\d+", results[0].detail)


@pytest.mark.parametrize(
  ("gold_actions", "problem"),
  [
    (lambda task: "look", "are 'look'; expected a sequence of strings"),
    (lambda task: [1], r"are \[1\]; expected a sequence of strings"),
    (lambda task: task.gold, r"AttributeError: .* at .*check_test.py:\d+"),
  ],
)
def test_a_broken_hook_is_explained(gold_actions, problem):
  results = run(Sound, gold_actions=gold_actions)
  assert re.search(problem, failures(results)["types"])


def test_no_tasks_are_refused():
  with pytest.raises(ValueError, match="tasks is empty"):
    check_environment(Sound, [])


def test_details_are_wrapped_below_each_other():
  result = check.CheckResult(
    name="gold", status=check.CheckStatus.FAILED, detail="word " * 30
  )
  lines = format_report([result]).splitlines()
  assert lines[0].startswith("gold  FAILED   word word")
  assert len(lines) > 1
  assert all(line.startswith(" " * 15 + "word") for line in lines[1:])
  assert all(len(line) <= 80 for line in lines)


def template():
  code = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
  )
  return code[0]


def test_the_documented_template_is_short_and_passes(tmp_path):
  assert len(template().splitlines()) <= 40
  (tmp_path / "my_env.py").write_text(template(), encoding="utf-8")
  done = subprocess.run(
    [sys.executable, "-m", "arl_jax.envs.check", "my_env:HiddenWord"],
    cwd=tmp_path,
    env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.count(" ok ") == len(CHECKS) + 1
  # What the page shows is what is printed.
  assert done.stdout in PAGE.read_text("utf-8")


def write(tmp_path, code, name="my_env.py"):
  path = tmp_path / name
  path.write_text(code, encoding="utf-8")
  return path


def test_a_file_with_functions_beside_the_class_is_checked(tmp_path, capsys):
  code = template().replace(
    "  def example_tasks(self):", "def example_tasks():\n  if True:"
  )
  head, tail = code.split("  def gold_actions(self, task):\n")
  code = f"{head}def gold_actions(task):\n  if True:\n{tail}"
  path = write(tmp_path, code)
  tokenizer_lib.train_tokenizer(["look at the desk"], vocab_size=300).save(
    tmp_path / "tokenizer"
  )
  command = [f"{path}:HiddenWord", "--tokenizer", str(tmp_path / "tokenizer")]
  assert main(command) == 0
  printed = capsys.readouterr().out
  length = int(re.findall(r"prompt +ok +(\d+) tokens at most", printed)[0])
  assert main([*command, "--max-prompt", str(length)]) == 0
  assert main([*command, "--max-prompt", str(length - 1)]) == 1
  assert "prompt       FAILED" in capsys.readouterr().out


def test_a_failure_exits_with_one(tmp_path, capsys):
  code = template().replace("float(self._answer ==", "float(self._answer !=")
  assert main([f"{write(tmp_path, code)}:HiddenWord"]) == 1
  assert "the gold actions score 0" in capsys.readouterr().out


@pytest.mark.parametrize(
  ("target", "problem"),
  [
    ("HiddenWord", "not like my_module:MyEnv"),
    ("no_such_module:A", "no_such_module cannot be imported"),
    ("no_such_file.py:A", "no_such_file.py cannot be imported"),
    ("FILE:A", "has no class or function A"),
    ("FILE:Message", "the environment cannot be made"),
    ("FILE:object", "has no class or function object"),
    ("FILE:Bare", "has no example_tasks()"),
  ],
)
def test_what_cannot_be_checked_exits_with_two(
  tmp_path, capsys, target, problem
):
  path = write(tmp_path, f"{template()}\nclass Bare:\n  pass\n")
  assert main([target.replace("FILE", str(path))]) == 2
  assert problem in capsys.readouterr().err


def test_time_in_which_the_process_could_not_run_does_not_count(monkeypatch):
  wall, computed = [100.0], [7.0]
  monkeypatch.setattr(check.time, "monotonic", lambda: wall[0])
  monkeypatch.setattr(check.time, "process_time", lambda: computed[0])
  clock = check._WakingClock()

  def pass_by(seconds, *, used):
    before = clock.seconds
    wall[0] += seconds
    computed[0] += used
    clock.advance()
    return clock.seconds - before

  assert pass_by(0.05, used=0.0) == pytest.approx(0.05)
  assert pass_by(60.0, used=0.0) < 0.2  # stopped
  assert pass_by(6.0, used=6.0) == pytest.approx(6.0)  # held by one long call
  assert pass_by(6.0, used=11.0) == pytest.approx(6.0)  # on two processors
