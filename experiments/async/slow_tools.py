"""Tools that take their time, some of them very long."""

import asyncio
from collections.abc import Iterator, Mapping, Set
import contextlib
import dataclasses
import math
import random
from typing import Any

from arl_jax.actors.seeds import mix_seed
from arl_jax.envs.environment import Environment, StepResult
from arl_jax.episode import Message, Task
from arl_jax.run import suites
from arl_jax.run.flight_suite import FlightSettings
from arl_jax.run.suite import Suite

_NAME = "flight_booking"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Latency:
  """Seconds that a tool takes: lognormal, with an end.

  Attributes:
    median: half of the calls take less, unless it is 0: then none takes time.
    sigma: standard deviation of the logarithm; the larger, the heavier is the
      tail. With 1.5 a call in a hundred takes 33 times the median or more.
    longest: those that would take longer take so long.
  """

  median: float
  sigma: float
  longest: float

  def seconds(self, task_seed: int, member_seed: int, turn: int) -> float:
    """Draws the latency of one turn, always the same one."""
    if not self.median:
      return 0.0
    rng = random.Random(mix_seed(task_seed, member_seed, turn))
    drawn = rng.lognormvariate(math.log(self.median), self.sigma)
    return min(drawn, self.longest)


class SlowTools:
  """An environment whose answers to tool calls take their time."""

  def __init__(
    self,
    environment: Environment,
    latency: Latency,
    slow_tasks: Set[str],
    drawn: list[float],
  ):
    """Wraps an environment.

    Args:
      environment: the one that answers.
      latency: how long it takes.
      slow_tasks: their ids; all others are answered at once.
      drawn: takes down the latencies.
    """
    self._environment = environment
    self._latency, self._slow_tasks, self._drawn = latency, slow_tasks, drawn
    self._seeds = (0, 0)
    self._slow = False
    self._turn = 0

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    self._seeds, self._turn = (task.seed, seed), 0
    self._slow = task.task_id in self._slow_tasks
    return await self._environment.reset(task, seed=seed)

  async def step(self, action: str) -> StepResult:
    result = await self._environment.step(action)
    turn, self._turn = self._turn, self._turn + 1
    # A final answer calls no tool.
    if self._slow and result.num_tool_calls:
      seconds = self._latency.seconds(*self._seeds, turn)
      self._drawn.append(seconds)
      await asyncio.sleep(seconds)
    return result

  async def score(self) -> Mapping[str, float]:
    return await self._environment.score()


@contextlib.contextmanager
def slow_tools(latency: Latency) -> Iterator[list[float]]:
  """Makes the tools of training slow meanwhile; yields the latencies drawn.

  Demonstrations and evaluations are as fast as ever.
  """
  drawn: list[float] = []
  registered: Any = suites.SUITES
  kind = registered[_NAME]

  def make_slow_suite(settings: FlightSettings) -> Suite:
    suite = kind.make(settings)
    slow_tasks: set[str] = set()

    def train_tasks(seed: int) -> list[Task]:
      tasks = suite.train_tasks(seed)
      slow_tasks.update(task.task_id for task in tasks)
      return tasks

    def make_environment() -> SlowTools:
      return SlowTools(suite.make_environment(), latency, slow_tasks, drawn)

    return dataclasses.replace(
      suite, make_environment=make_environment, train_tasks=train_tasks
    )

  registered[_NAME] = kind._replace(make=make_slow_suite)
  try:
    yield drawn
  finally:
    registered[_NAME] = kind
