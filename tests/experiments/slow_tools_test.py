import asyncio
import importlib
import itertools
import math
import pathlib
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from arl_jax.envs.environment import StepResult
from arl_jax.episode import Message, Task
from arl_jax.run import suites
from arl_jax.run.flight_suite import FlightSettings
from arl_jax.run.suite import Suite

FOLDER = pathlib.Path(__file__).parents[2] / "experiments" / "async"


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
  monkeypatch.syspath_prepend(str(FOLDER))  # a script finds its neighbours
  return importlib.import_module("slow_tools")


def test_a_latency_belongs_to_task_member_and_turn(tools: ModuleType):
  latency = tools.Latency(median=0.15, sigma=1.5, longest=20.0)
  keys = list(itertools.product(range(4), range(4), range(4)))
  drawn = [latency.seconds(*key) for key in keys]
  assert drawn == [latency.seconds(*key) for key in keys]
  assert len(set(drawn)) == len(keys)


def test_the_tail_of_the_latencies_is_heavy(tools: ModuleType):
  latency = tools.Latency(median=0.15, sigma=1.5, longest=20.0)
  drawn = np.array([latency.seconds(0, 1, turn) for turn in range(20000)])
  middle, high = np.percentile(drawn, [50, 99])
  assert middle == pytest.approx(0.15, rel=0.05)
  # A normal deviate is 2.326 in one case of a hundred.
  assert high == pytest.approx(0.15 * math.exp(1.5 * 2.326), rel=0.15)
  assert drawn.mean() == pytest.approx(0.15 * math.exp(1.5**2 / 2), rel=0.1)
  assert drawn.max() == 20.0
  longest = np.sort(drawn)[-1000:]  # a twentieth of the calls
  assert longest.sum() / drawn.sum() > 0.35


def test_no_median_takes_no_time(tools: ModuleType):
  latency = tools.Latency(median=0.0, sigma=1.5, longest=20.0)
  assert latency.seconds(1, 2, 3) == 0.0


class _Calls:
  """Calls a tool, except in the last turn."""

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    return (Message(role="user", content=f"{task.task_id} {seed}"),)

  async def step(self, action: str) -> StepResult:
    is_call = action == "call"
    return StepResult(terminated=not is_call, num_tool_calls=int(is_call))

  async def score(self) -> dict[str, float]:
    return {"success": 1.0}


@pytest.mark.parametrize(("task_id", "num_slow"), [("slow", 2), ("fast", 0)])
def test_tool_calls_of_slow_tasks_wait(
  tools: ModuleType,
  monkeypatch: pytest.MonkeyPatch,
  task_id: str,
  num_slow: int,
):
  slept = []

  async def sleep(seconds: float) -> None:
    slept.append(seconds)

  monkeypatch.setattr(tools, "asyncio", SimpleNamespace(sleep=sleep))
  latency = tools.Latency(median=2.0, sigma=1.0, longest=9.0)
  drawn: list[float] = []
  environment = tools.SlowTools(_Calls(), latency, {"slow"}, drawn)

  async def play() -> None:
    task = Task(task_id=task_id, prompt="", seed=7)
    messages = await environment.reset(task, seed=8)
    assert messages[0].content == f"{task_id} 8"
    for action in ("call", "call", "answer"):
      await environment.step(action)
    assert await environment.score() == {"success": 1.0}

  asyncio.run(play())
  expected = [latency.seconds(7, 8, turn) for turn in range(num_slow)]
  assert slept == drawn == expected


def test_only_training_is_slow_and_only_meanwhile(tools: ModuleType):
  settings = FlightSettings(num_train_tasks=4, levels=(1,))
  before = suites.SUITES["flight_booking"]
  latency = tools.Latency(median=1e-6, sigma=0.1, longest=1e-5)

  async def call(suite: Suite, task: Task) -> None:
    environment = suite.make_environment()
    await environment.reset(task, seed=0)
    await environment.step('<tool_call>{"name": "sort"}</tool_call>')

  with tools.slow_tools(latency) as drawn:
    suite = suites.SUITES["flight_booking"].make(settings)
    asyncio.run(call(suite, suite.heldout_tasks(1, 0)[0]))
    assert suite.demonstrate(1, 0, 1.0, False)[0].turns
    assert not drawn
    asyncio.run(call(suite, suite.train_tasks(0)[0]))
    assert len(drawn) == 1
  assert suites.SUITES["flight_booking"] is before
