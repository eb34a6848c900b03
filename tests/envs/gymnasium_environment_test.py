"""Tests of Gymnasium's worlds as text."""

import asyncio
from collections.abc import Sequence
import dataclasses
import importlib
import importlib.util
import itertools
import sys
from typing import Any

import pytest

from arl_jax.envs import check, gymnasium_environment
from arl_jax.envs.environment import StepResult
from arl_jax.envs.gymnasium_environment import (
  GymnasiumEnv,
  gold_actions,
  make_task,
)
from arl_jax.episode import Task

HAS_GYMNASIUM = importlib.util.find_spec("gymnasium") is not None
needs_gymnasium = pytest.mark.skipif(
  not HAS_GYMNASIUM, reason=gymnasium_environment.INSTALL
)
LAKE = make_task(
  "FrozenLake-v1",
  prompt="Get to G.",
  options={"desc": ["SF", "HG"], "is_slippery": False},
)


async def _play(task: Task, actions: Sequence[str], **options):
  """Returns the score, the prompt and the steps."""
  environment = GymnasiumEnv(**options)
  prompt = await environment.reset(task, seed=0)
  steps: list[StepResult] = []
  for action in actions:
    steps.append(await environment.step(action))
    if steps[-1].terminated:
      break
  score = await environment.score()
  await environment.close()
  return score, prompt[0].content, steps


def _run(task: Task, actions: Sequence[str], **options):
  return asyncio.run(_play(task, actions, **options))


def test_missing_package_is_named_with_how_to_install_it(monkeypatch):
  def refuse(name):
    raise ModuleNotFoundError(name="gymnasium")

  monkeypatch.setattr(importlib, "import_module", refuse)
  with pytest.raises(ModuleNotFoundError, match="pip install gymnasium"):
    _run(LAKE, [])


@needs_gymnasium
def test_shortest_ways_succeed_and_shorter_ones_do_not():
  tasks = gymnasium_environment.example_tasks()
  names = {task.task_id.partition("-")[0] for task in tasks}
  assert names == {"FrozenLake", "Taxi", "CliffWalking"}
  for task in tasks:
    actions = gold_actions(task)
    score, _, steps = _run(task, actions)
    assert score == {"success": 1.0, "truncated": 0.0}
    assert [step.terminated for step in steps[:-1]] == [False] * len(steps[:-1])
    assert steps[-1].terminated
    assert len(steps) == len(actions)
    assert _run(task, actions[:-1])[0]["success"] == 0
    assert _run(task, [*actions[:-1], "nowhere"])[0]["success"] == 0


@needs_gymnasium
def test_no_way_is_shorter_than_the_gold_one():
  task = gymnasium_environment.example_tasks()[0]
  length = len(gold_actions(task))
  assert length == 6
  moves = ("left", "down", "right", "up")
  for actions in itertools.product(moves, repeat=4):
    assert _run(task, actions)[0]["success"] == 0


@needs_gymnasium
def test_map_is_shown_and_holes_end_it_without_success():
  score, prompt, steps = _run(LAKE, ["right", "I go down."])
  assert prompt == (
    "Get to G.\nEach turn, write one of left, down, right, up.\nP F\nH G"
  )
  assert steps[0].observations[0].content == "S P\nH G"
  assert steps[1].rewards["reward"] == 1
  assert score["success"] == 1
  score, _, steps = _run(LAKE, ["down"])
  assert steps[0].terminated
  assert score == {"success": 0.0, "truncated": 0.0}


@needs_gymnasium
def test_taxi_says_who_is_where():
  task = gymnasium_environment.example_tasks()[3]
  actions = gold_actions(task)
  _, prompt, steps = _run(task, actions)
  texts = [prompt, *(s.observations[0].content for s in steps[:-1])]
  picked = actions.index("pickup")
  assert all("passenger at" in text for text in texts[: picked + 1])
  assert all("in the taxi" in text for text in texts[picked + 1 :])
  assert all(text.count("T") >= 1 for text in texts)
  assert [step.rewards["reward"] for step in steps] == [-1.0] * (
    len(steps) - 1
  ) + [20.0]


@needs_gymnasium
@pytest.mark.parametrize(
  "action", ["", "jump", "left or right", "0", "leftish"]
)
def test_action_that_cannot_be_read_changes_nothing(action: str):
  score, _, steps = _run(LAKE, [action, "right", "down"])
  text = "error: expected one of left, down, right, up"
  assert steps[0].observations[0].content == text
  assert steps[0].num_tool_errors == 1
  assert steps[0].rewards["reward"] == 0
  assert score["success"] == 1


@needs_gymnasium
def test_worlds_at_once_are_as_they_are_alone():
  lake = dataclasses.replace(
    LAKE,
    hidden={**LAKE.hidden, "options": {"map_name": "4x4", "is_slippery": True}},
  )
  tasks = [dataclasses.replace(lake, seed=seed) for seed in range(6)]
  actions = ["right", "down", "left", "up"] * 4
  alone = [_run(task, actions) for task in tasks]
  assert len({str(game) for game in alone}) > 2

  async def play_all():
    return await asyncio.gather(*(_play(task, actions) for task in tasks))

  assert asyncio.run(play_all()) == alone


def _echo_world() -> Any:
  """A world of texts: it ends with the word `stop`, and is cut off after 3."""
  import gymnasium

  class Echo(gymnasium.Env):
    observation_space = gymnasium.spaces.Text(20)
    action_space = gymnasium.spaces.Text(5)

    def reset(self, *, seed=None, options=None):
      super().reset(seed=seed)
      self.count = 0
      self.closed = False
      return "Say stop.", {}

    def step(self, action):
      self.count += 1
      is_stop = action == "stop"
      reward = 2.0 if is_stop else 0.0
      return f"You said {action}.", reward, is_stop, self.count > 2, {}

    def close(self):
      self.closed = True

  return Echo()


@needs_gymnasium
def test_text_spaces_and_worlds_of_ones_own():
  worlds = []

  def make(task: Task) -> Any:
    worlds.append(_echo_world())
    return worlds[-1]

  task = make_task("none", prompt="", success_reward=2.0)
  score, prompt, steps = _run(
    task, ["much too long", "no", "stop"], make_world=make
  )
  assert prompt == "Say stop."
  assert steps[0].observations[0].content.startswith("error: expected a text")
  assert steps[1].observations[0].content == "You said no."
  assert score == {"success": 1.0, "truncated": 0.0}
  assert worlds[0].closed


@needs_gymnasium
def test_truncated_is_not_terminated():
  task = make_task("none", prompt="", success_reward=0.0)
  make = lambda task: _echo_world()  # noqa: E731
  score, _, steps = _run(task, ["a", "b", "c"], make_world=make)
  assert steps[-1].terminated
  assert score == {"success": 0.0, "truncated": 1.0}
  score, _, _ = _run(task, ["a", "b", "stop"], make_world=make)
  assert score == {"success": 1.0, "truncated": 0.0}


@needs_gymnasium
def test_limit_of_steps_is_off():
  score, _, steps = _run(LAKE, ["left"] * 150)  # it is registered with 100
  assert len(steps) == 150
  assert not steps[-1].terminated
  assert score == {"success": 0.0, "truncated": 0.0}


@needs_gymnasium
def test_functions_of_ones_own_render_and_parse():
  score, prompt, _ = _run(
    LAKE,
    ["2", "1"],
    render_observation=lambda world, observation: f"cell {observation}",
    parse_action=lambda world, text: int(text),
  )
  assert prompt == "Get to G.\ncell 0"
  assert score["success"] == 1


@needs_gymnasium
def test_gold_needs_a_table_without_chance():
  slippery = make_task(
    "FrozenLake-v1", prompt="", options={"is_slippery": True}
  )
  with pytest.raises(ValueError, match="chance"):
    gold_actions(slippery)
  with pytest.raises(ValueError, match="no table"):
    gold_actions(make_task("Blackjack-v1", prompt=""))
  with pytest.raises(ValueError, match="no way"):
    gold_actions(
      make_task(
        "FrozenLake-v1",
        prompt="",
        options={"desc": ["SH", "HG"], "is_slippery": False},
      )
    )


@needs_gymnasium
def test_numbers_stand_for_actions_without_names():
  task = make_task("Blackjack-v1", prompt="Get 21.")
  _, prompt, steps = _run(task, ["2", "0"])
  assert "write one of 0, 1." in prompt
  assert steps[0].observations[0].content == "error: expected one of 0, 1"
  assert steps[1].terminated


@needs_gymnasium
def test_check_command_holds_all_checks_without_pygame(capsys):
  name = "arl_jax.envs.gymnasium_environment:GymnasiumEnv"
  assert check.main([name]) == 0
  assert "success is 1 on 7 tasks" in capsys.readouterr().out
  assert "pygame" not in sys.modules
