"""Tests of objects with reset and step: their forms, and where they run."""

import asyncio
from collections.abc import Sequence
import threading
from typing import Any

import pytest

from arl_jax.envs import check
from arl_jax.envs.environment import StepResult
from arl_jax.envs.environment_checks import CheckStatus
from arl_jax.envs.reset_step_environment import ResetStepEnv
from arl_jax.episode import Message, Task


class Sum:
  """A plain world: add up to 7 in as many steps as one likes; four results."""

  def __init__(self):
    self.threads: list[int] = []
    self.num_closed = 0

  def reset(self, seed: int) -> str:
    self.threads.append(threading.get_ident())
    self.total = seed
    return f"total {self.total}"

  def step(self, action: str):
    self.threads.append(threading.get_ident())
    self.total += len(action)
    done = self.total >= 7
    reward = 1.0 if self.total == 7 else -0.5 if done else None
    return f"total {self.total}", reward, done, {"unused": 1}

  def close(self) -> None:
    self.num_closed += 1


class Chat:
  """A world of coroutines that speaks in messages; five results."""

  def __init__(self):
    self.threads: list[int] = []
    self.num_closed = 0

  async def reset(self, *, topic: str = "tea"):
    await asyncio.sleep(0)
    self.threads.append(threading.get_ident())
    self.said: list[str] = []
    system = {"role": "system", "content": f"We talk about {topic}."}
    return [system, {"role": "user", "content": "Hello"}], {"info": 1}

  async def step(self, action: str):
    await asyncio.sleep(0)
    self.threads.append(threading.get_ident())
    self.said.append(action)
    answer = {"role": "user", "content": f"You said {action}."}
    return [answer], len(self.said) / 2, action == "bye", len(self.said) > 2, {}

  async def close(self) -> None:
    self.num_closed += 1


TASK = Task(task_id="a", prompt="Reach 7.", seed=2)


async def _play(
  world: Any, actions: Sequence[str], task: Task = TASK, **kwargs
):
  environment = ResetStepEnv(lambda task: world, success_return=1.0, **kwargs)
  prompt = await environment.reset(task, seed=5)
  steps: list[StepResult] = []
  for action in actions:
    steps.append(await environment.step(action))
    if steps[-1].terminated:
      break
  score = await environment.score()
  await environment.close()
  return prompt, steps, score


def _run(world: Any, actions: Sequence[str], **kwargs):
  return asyncio.run(_play(world, actions, **kwargs))


def test_plain_world_runs_in_threads_and_its_four_results_are_read():
  world = Sum()
  prompt, steps, score = _run(world, ["aa", "bbb", "unused"])
  assert prompt == (Message(role="user", content="total 2"),)
  assert steps[0].observations == (Message(role="user", content="total 4"),)
  assert [step.rewards["reward"] for step in steps] == [0.0, 1.0]
  assert [step.terminated for step in steps] == [False, True]
  assert steps[1].observations == ()
  assert score == {"success": 1.0, "truncated": 0.0}
  assert threading.get_ident() not in world.threads
  assert world.num_closed == 1


def test_return_below_the_threshold_is_no_success():
  assert _run(Sum(), ["a" * 9])[2]["success"] == 0
  assert _run(Sum(), ["a"])[2] == {"success": 0.0, "truncated": 0.0}


def test_episode_that_did_not_end_is_no_success():
  async def play():
    environment = ResetStepEnv(lambda task: Sum(), success_return=-1.0)
    await environment.reset(TASK, seed=0)
    await environment.step("a")
    return await environment.score()

  assert asyncio.run(play())["success"] == 0


def test_world_of_coroutines_runs_on_the_loop_and_speaks_in_messages():
  world = Chat()
  prompt, steps, score = _run(world, ["yes", "bye"])
  assert [message.role for message in prompt] == ["system", "user"]
  assert prompt[0].content == "We talk about tea."
  assert steps[0].observations[0].content == "You said yes."
  assert [step.rewards["reward"] for step in steps] == [0.5, 1.0]
  assert score == {"success": 1.0, "truncated": 0.0}
  assert set(world.threads) == {threading.get_ident()}
  assert world.num_closed == 1


def test_truncated_is_not_terminated():
  _, steps, score = _run(Chat(), ["a", "b", "c", "d"])
  assert len(steps) == 3
  assert score == {"success": 1.0, "truncated": 1.0}
  assert _run(Chat(), ["a", "b", "bye"])[2]["truncated"] == 0


def test_arguments_of_reset_are_given():
  prompt, _, _ = _run(
    Chat(), [], reset_arguments=lambda task, seed: {"topic": f"{seed} owls"}
  )
  assert prompt[0].content == "We talk about 5 owls."


def test_prompt_is_shown_if_the_world_says_nothing():
  class Silent(Sum):
    def reset(self, seed: int):
      return super().reset(seed) and None

  assert _run(Silent(), [])[0] == (Message(role="user", content="Reach 7."),)


def _world(reset: Any, step: Any) -> Any:
  class World:
    def reset(self):
      return reset

    def step(self, action):
      return step

  return World()


@pytest.mark.parametrize(
  ("step", "reason"),
  [
    ("text", "expected a tuple"),
    (("text", 1.0, False), "expected a tuple"),
    (("text", "1.0", False, {}), "the reward '1.0'"),
    (("text", float("nan"), False, {}), "the reward nan"),
    (("text", {}, False, {}), "the reward {}"),
    (("text", 1.0, None, {}), "done=None"),
    (("text", 1.0, False, "no", {}), "truncated='no'"),
    ((3, 1.0, False, {}), "the observation 3"),
    (([{"role": "user", "content": []}], 1.0, False, {}), "observation {'role"),
    ((b"bytes", 1.0, False, {}), "observation b'bytes'"),
    ((None, 1.0, False, {}), "no observation"),
  ],
)
def test_results_of_no_known_form_are_named(step, reason):
  with pytest.raises(ValueError, match=reason):
    _run(_world("hello", step), ["a"])


def test_end_without_an_observation_is_fine():
  for world in [
    _world("x", (None, 1.0, True, {})),
    _world("x", ("", 1, 1, {})),
  ]:
    assert _run(world, ["a"])[2]["success"] == 1


def test_pair_of_messages_is_no_pair_with_info():
  pair = ({"role": "system", "content": "a"}, {"role": "user", "content": "b"})
  prompt, _, _ = _run(_world(pair, None), [])
  assert [message.content for message in prompt] == ["a", "b"]
  prompt, _, _ = _run(_world(("a", {"note": 1}), None), [])
  assert [message.content for message in prompt] == ["a"]


def test_steps_before_reset_and_after_the_end_are_refused():
  environment = ResetStepEnv(lambda task: Sum(), success_return=1.0)
  with pytest.raises(RuntimeError, match="call reset"):
    asyncio.run(environment.step("a"))
  with pytest.raises(RuntimeError, match="reset"):
    asyncio.run(environment.score())

  async def go_on():
    await environment.reset(TASK, seed=0)
    assert (await environment.step("a" * 5)).terminated
    await environment.step("a")

  with pytest.raises(RuntimeError, match="has ended"):
    asyncio.run(go_on())


@pytest.mark.parametrize("make", [Sum, Chat])
def test_all_checks_hold(make: Any):
  tasks = [Task(task_id=str(n), prompt="Reach 7.", seed=n) for n in range(3)]
  results = check.check_environment(
    lambda: ResetStepEnv(lambda task: make(), success_return=1.0),
    tasks,
    gold_actions=lambda task: (
      ["a" * (7 - task.seed)] if make is Sum else ["a", "bye"]
    ),
  )
  assert {result.status for result in results} == {CheckStatus.OK}, results
