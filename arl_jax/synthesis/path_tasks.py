"""Tasks from paths of calls, run with real values in a real environment.

A path is run first, and the task is what it turned out to achieve. Then the
same actions are played under that task, and its environment judges them.
"""

from collections import Counter
from collections.abc import Mapping
import dataclasses
import random
from typing import Any, Protocol

from arl_jax.episode import Message, Task
from arl_jax.rewards.compose import Reward
from arl_jax.synthesis.replay import (
  MakeEnvironment,
  open_environment,
  play,
  recorded,
)
from arl_jax.synthesis.scoring import (
  NO_REWARDS,
  SUCCESS_ALONE,
  played_reward,
)
from arl_jax.synthesis.signature_graph import Path, SignatureGraph
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode

SOURCE = "graph"
COUNTS = (
  "run",
  "no_value",  # that a call could have
  "same_call",  # as one before
  "tool_error",
  "no_goal",  # that the run achieved
  "not_verified",  # by the replay
  "same_task",  # as one before
  "kept",
)


@dataclasses.dataclass(kw_only=True)
class Run:
  """A path while it is run.

  Attributes:
    task: a draft that stages the world; its prompt means nothing.
    path: the names of all calls.
    rng: what values are drawn from.
    actions: as far as they were made.
    answers: the text that answered each.
    values: whatever a world wants to remember.
  """

  task: Task
  path: Path
  rng: random.Random
  actions: list[str] = dataclasses.field(default_factory=list)
  answers: list[str] = dataclasses.field(default_factory=list)
  values: dict[str, Any] = dataclasses.field(default_factory=dict)


class PathWorld(Protocol):
  """What paths need of an environment."""

  @property
  def graph(self) -> SignatureGraph:
    """The tools."""
    ...

  def draft(self, rng: random.Random) -> Task:
    """Draws a world to run a path in."""
    ...

  def call(self, run: Run) -> str | None:
    """Writes the next call with real values; None if there are none."""
    ...

  def goal(self, run: Run) -> tuple[Task, str] | None:
    """The task that a run solved, and its last action; None if it is none."""
    ...


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PathSettings:
  """How paths are drawn.

  Attributes:
    goal: the tool that they end with.
    max_length: calls of a path before it is expanded.
    expand_chance: of each expansion; another follows with the same chance.
    connect_chance: of a second path behind the first.
    max_attempts_per_episode: paths that may be run for each that is wanted.
  """

  goal: str
  max_length: int = 4
  expand_chance: float = 0.4
  connect_chance: float = 0.3
  max_attempts_per_episode: int = 20


async def synthesize_paths(
  world: PathWorld,
  *,
  settings: PathSettings,
  make_environment: MakeEnvironment,
  number: int,
  reward_weights: Mapping[str, float] = SUCCESS_ALONE,
  reward_fns: Mapping[str, Reward] = NO_REWARDS,
  seed: int = 0,
) -> tuple[list[SyntheticEpisode], dict[str, int]]:
  """Runs paths until enough of them are verified episodes.

  Args:
    world: draws, runs and names them.
    settings: how paths are drawn.
    make_environment: makes a fresh environment.
    number: of episodes wanted.
    reward_weights: weight of each reward component.
    reward_fns: further components, see `scoring.played_reward`.
    seed: fixes everything.

  Returns:
    The episodes, each a success under its own task, with the path as a tag,
    and counts: the `COUNTS`, and `kept/PATH`. There are fewer than wanted if
    attempts ran out.

  Raises:
    ValueError: no path leads to the goal.
  """
  counts = Counter[str]()
  kept: dict[str, SyntheticEpisode] = {}
  for attempt in range(number * settings.max_attempts_per_episode):
    if len(kept) == number:
      break
    rng = random.Random(f"path/{seed}/{attempt}")
    path = draw_path(world.graph, rng, settings)
    run = Run(task=world.draft(rng), path=path, rng=rng)
    counts["run"] += 1
    problem = await _run(world, run, make_environment)
    found = None if problem else world.goal(run)
    if found is None:
      counts[problem or "no_goal"] += 1
      continue
    task, answer = found
    if task.prompt in kept:
      counts["same_task"] += 1
      continue
    played = await play(
      make_environment, task, recorded([*run.actions, answer])
    )
    if not played.success or len(played.turns) != len(run.actions) + 1:
      counts["not_verified"] += 1
      continue
    name = ">".join(path)
    counts["kept"] += 1
    counts[f"kept/{name}"] += 1
    kept[task.prompt] = SyntheticEpisode(
      task=task,
      source=SOURCE,
      turns=played.turns,
      success=True,
      reward=played_reward(played, reward_weights, reward_fns),
      tags=(name,),
    )
  found = {name: counts.pop(name, 0) for name in COUNTS}
  return list(kept.values()), found | dict(counts.most_common())


def draw_path(
  graph: SignatureGraph, rng: random.Random, settings: PathSettings
) -> Path:
  """Samples a path, and maybe connects it to another and expands it.

  Raises:
    ValueError: no path leads to the goal.
  """

  def sample() -> Path:
    path = graph.sample_path(
      rng, goal=settings.goal, max_length=settings.max_length
    )
    if path is None:
      raise ValueError(
        f"no path of {settings.max_length} calls or fewer leads to"
        f" {settings.goal!r}; check what the tools take and return"
      )
    return path

  path = sample()
  if rng.random() < settings.connect_chance:
    path = graph.connect(path, sample()) or path
  while rng.random() < settings.expand_chance:
    longer = graph.expand(path, rng)
    if longer is None:
      break
    path = longer
  return path


async def _run(
  world: PathWorld, run: Run, make_environment: MakeEnvironment
) -> str:
  """Makes the calls of a path; returns what went wrong, empty if nothing."""
  async with open_environment(make_environment) as environment:
    await environment.reset(run.task, seed=0)
    for _ in run.path:
      action = world.call(run)
      if action is None:
        return "no_value"
      if action in run.actions:
        return "same_call"
      result = await environment.step(action)
      run.actions.append(action)
      run.answers.append(_text(result.observations))
      if result.num_tool_errors or result.terminated:
        return "tool_error"
  return ""


def _text(messages: tuple[Message, ...]) -> str:
  return "\n".join(message.content for message in messages)
