"""Environments that break, block, hang, and answer what they should not.

Each of them fails its own episode at most; its siblings don't notice.
"""

import asyncio
import threading

import numpy as np
import pytest

from arl_jax.actors import seeds
from arl_jax.actors.pool import run_group, run_tasks
from arl_jax.actors.rollout import Limits
from arl_jax.envs.environment import StepResult
from arl_jax.envs.off_loop import OffLoopEnvironment
from arl_jax.episode import EpisodeStatus, Message, Task
from tests.actors import fakes
from tests.actors.fakes import TASK, make_actor, say

PATIENCE = 60  # seconds, for what must happen


def one_then_done(turn, sampling):
  return say("one") if turn == 0 else say("done")


def play(make_environment, **options):
  return fakes.play_group(make_environment, one_then_done, **options)


def test_the_prompt_is_cleaned_as_well():
  class Flooding(fakes.FakeEnvironment):
    async def reset(self, task, *, seed):
      return (
        Message(role="system", content="\ud800"),
        Message(role="user", content="x" * 10**6),
      )

  episodes, _ = play(
    Flooding, limits=Limits(max_turns=1, max_observation_chars=100)
  )
  for episode in episodes:
    assert episode.status is EpisodeStatus.MAX_TURNS
    assert episode.prompt[0].content == "\ufffd"
    assert len(episode.prompt[1].content) < 150
    assert len(episode.rows[0]) < 300


def test_a_reset_that_fails_one_time_in_three_costs_those_episodes():
  class Unsteady(fakes.FakeEnvironment):
    async def reset(self, task, *, seed):
      if seed % 3 == 0:
        raise ConnectionError(f"seed {seed}")
      return await super().reset(task, seed=seed)

  async def main():
    actor = make_actor(fakes.FakePolicy(fakes.by_seed), Unsteady, seed=11)
    tasks = [Task(task_id=f"t{i}", prompt=f"go {i}") for i in range(15)]
    return await run_tasks(actor, tasks, max_concurrent=4, samples_per_task=2)

  episodes = asyncio.run(main())
  expected = [
    seeds.episode_seed(11, ordinal, member) % 3 == 0
    for ordinal in range(15)
    for member in range(2)
  ]
  failed = [e.status is EpisodeStatus.FAILED for e in episodes]
  assert failed == expected
  assert 0 < sum(failed) < 30
  for episode in episodes:
    assert episode.success is (episode.status is EpisodeStatus.TERMINATED)
    assert ("ConnectionError: seed" in episode.error) is (not episode.rows)


def test_a_blocking_environment_lets_the_others_go_on():
  others_done = threading.Event()
  made = []

  class Blocking:
    def __init__(self):
      self.member = len(made)
      made.append(self)

    def reset(self, task, *, seed):
      return (Message(role="user", content=task.prompt),)

    def step(self, action):
      if self.member == 0:  # blocks until the other three have ended
        assert others_done.wait(PATIENCE)
      return StepResult(
        observations=(Message(role="tool", content="seen"),),
        terminated=action == "done",
      )

    def score(self):
      ended.append(self.member)
      if len(ended) == 3:
        others_done.set()
      return {"success": 1.0}

  ended = []
  episodes, _ = play(lambda: OffLoopEnvironment(Blocking()), group_size=4)
  assert all(episode.success for episode in episodes)
  assert ended[-1] == 0


class Answering(fakes.FakeEnvironment):
  """Answers with `answers[method]` where there is one."""

  def __init__(self, **answers):
    super().__init__()
    self.answers = answers

  async def reset(self, task, *, seed):
    if "reset" in self.answers:
      return self._answer("reset")
    return await super().reset(task, seed=seed)

  async def step(self, action):
    if "step" in self.answers:
      return self._answer("step")
    return await super().step(action)

  async def score(self):
    if "score" in self.answers:
      return self._answer("score")
    return await super().score()

  def _answer(self, method):
    answer = self.answers[method]
    if isinstance(answer, BaseException):
      raise answer
    return answer


def play_beside_sound_ones(**answers):
  """Plays an environment as member 1 of 3; returns its episode."""
  made = []

  def make_environment():
    made.append(Answering(**answers) if len(made) == 1 else Answering())
    return made[-1]

  episodes, _ = play(make_environment, group_size=3)
  first, episode, last = episodes
  assert first.success
  assert last.success
  assert first.rows[0].tokens.tolist() == last.rows[0].tokens.tolist()
  return episode


@pytest.mark.parametrize(
  ("answers", "problem"),
  [
    ({"step": None}, "expected a StepResult, found None"),
    ({"step": {"observations": []}}, "expected a StepResult, found dict"),
    ({"step": StepResult(rewards={"step": "x"})}, "component 'step' is 'x'"),  # pyright: ignore
    ({"step": StepResult()}, "must answer every action"),
    (
      {
        "step": StepResult(
          observations=(Message(role="tool", content=b"bytes"),)  # pyright: ignore
        )
      },
      "content that is bytes, not a str",
    ),
    ({"reset": None}, "expected a tuple of messages, found None"),
    ({"reset": "go"}, "expected a tuple of messages, found str"),
    (
      {"reset": (Message(role="user", content=None),)},  # pyright: ignore
      "content that is None, not a str",
    ),
    ({"score": [1.0]}, "components by name, found list"),
    ({"score": {"success": 1e39}}, "'success' is 1e+39"),
  ],
)
def test_a_wrong_answer_fails_its_episode_alone(answers, problem):
  episode = play_beside_sound_ones(**answers)
  assert episode.status is EpisodeStatus.FAILED
  assert problem in episode.error
  (method,) = answers
  assert f"environment.{method}" in episode.error
  assert episode.reward_components == {}


@pytest.mark.parametrize("method", ["reset", "step", "score"])
@pytest.mark.parametrize(
  ("error", "problem"),
  [
    (SystemExit(2), "raised SystemExit: 2"),
    (BaseException("rust"), "raised BaseException: rust"),
    (asyncio.CancelledError(), "raised CancelledError"),
    (fakes.UnreadableError(), "raised UnreadableError: <no readable text>"),
    (KeyError("\ud800"), "raised KeyError"),
  ],
)
def test_whatever_an_environment_raises_fails_its_episode_alone(
  method, error, problem
):
  episode = play_beside_sound_ones(**{method: error})
  assert episode.status is EpisodeStatus.FAILED
  assert f"environment.{method} {problem}" in episode.error
  episode.error.encode("utf-8")


def test_an_endless_error_is_cut():
  episode = play_beside_sound_ones(step=KeyError("x" * 10**6))
  assert len(episode.error) < 33000


def test_an_environment_without_coroutines_is_told_what_to_do():
  class Plain(fakes.FakeEnvironment):
    def step(self, action):  # pyright: ignore
      return StepResult(terminated=True)

  (episode,), _ = play(Plain, group_size=1)
  assert episode.status is EpisodeStatus.FAILED
  assert "put the environment into an OffLoopEnvironment" in episode.error


def test_rewards_that_overflow_fail_the_episode():
  def on_step(environment, action):
    return StepResult(
      observations=(Message(role="tool", content="seen"),),
      rewards={"step": 3e38},
    )

  (episode,), _ = play(lambda: fakes.FakeEnvironment(on_step), group_size=1)
  assert episode.status is EpisodeStatus.FAILED
  assert "rewards add up to 6e+38" in episode.error
  assert np.isfinite(np.float32(episode.total_reward))


def test_ctrl_c_inside_an_environment_passes():
  with pytest.raises(KeyboardInterrupt):
    play_beside_sound_ones(step=KeyboardInterrupt())


@pytest.mark.parametrize("after", ["answers", "raises"])
def test_a_cancelled_group_ends_though_an_environment_swallows_it(after):
  stuck = []

  class Deaf(fakes.FakeEnvironment):
    async def step(self, action):
      stuck.append(self)
      if len(stuck) == 4:
        all_stuck.set()
      try:
        await fakes.forever()
      except asyncio.CancelledError:
        if after == "raises":
          raise KeyError("clean-up") from None
      return StepResult(terminated=True)

  all_stuck = asyncio.Event()

  async def main():
    policy = fakes.FakePolicy(one_then_done)
    actor = make_actor(policy, Deaf)
    group = asyncio.create_task(run_group(actor, TASK, ordinal=0, group_size=4))
    await all_stuck.wait()
    group.cancel()
    with pytest.raises(asyncio.CancelledError):
      await group
    assert not policy.alive

  asyncio.run(main())


def test_a_reset_without_end_leaves_nothing_to_score():
  class Stuck(fakes.FakeEnvironment):
    async def reset(self, task, *, seed):
      await fakes.forever()
      return ()

  made = []

  def make_environment():
    made.append(Stuck())
    return made[-1]

  (episode,), _ = play(
    make_environment,
    group_size=1,
    limits=Limits(episode_timeout_seconds=0.02),
  )
  assert episode.status is EpisodeStatus.FAILED
  assert "no answer within episode_timeout_seconds, 0.02" in episode.error
  assert made[0].num_scores == 0


class Closable(fakes.FakeEnvironment):
  """Notes what was asked of it, `close` last of all."""

  def __init__(self, on_step=lambda *_: None, on_close=lambda: None):
    super().__init__(on_step)
    self.on_close, self.asked = on_close, []

  async def score(self):
    self.asked.append("score")
    return await super().score()

  async def close(self):
    await asyncio.sleep(0)
    self.asked.append("close")
    result = self.on_close()
    if asyncio.iscoroutine(result):
      await result


class NeverReset(Closable):
  async def reset(self, task, *, seed):
    raise KeyError("no world")


@pytest.mark.parametrize(
  ("make_environment", "options", "status", "asked"),
  [
    (Closable, {}, "terminated", ["score", "close"]),
    (
      Closable,
      {"limits": Limits(max_turns=1)},
      "max_turns",
      ["score", "close"],
    ),
    (
      lambda: Closable(fakes.forever),
      {"limits": Limits(episode_timeout_seconds=0.02)},
      "timeout",
      ["score", "close"],
    ),
    (
      lambda: Closable(fakes.raiser(KeyError("a"))),
      {},
      "failed",
      ["close"],
    ),
    (NeverReset, {}, "failed", ["close"]),
    (
      lambda: Closable(fakes.forever),
      {"timeout_seconds": 0.02},
      "group_timeout",
      ["close"],
    ),
  ],
)
def test_an_environment_is_closed_once_however_its_episode_ended(
  make_environment, options, status, asked
):
  made = []

  def make():
    made.append(make_environment())
    return made[-1]

  options = dict(options)
  timeout = options.pop("timeout_seconds", 60.0)
  actor = make_actor(fakes.FakePolicy(one_then_done), make, **options)
  group = asyncio.run(
    run_group(actor, TASK, ordinal=0, group_size=2, timeout_seconds=timeout)
  )
  assert [e.status.value for e in group.episodes] == [status] * 2
  assert [environment.asked for environment in made] == [asked] * 2


@pytest.mark.parametrize(
  ("on_close", "message"),
  [
    (fakes.raiser(KeyError("sandbox")), "environment.close raised KeyError"),
    (fakes.raiser(SystemExit(3)), "environment.close raised SystemExit"),
    (fakes.forever, "no answer within 0.05 seconds"),
  ],
)
def test_an_environment_that_cannot_close_costs_a_line_in_the_log(
  on_close, message, caplog
):
  (episode,), _ = play(
    lambda: Closable(on_close=on_close),
    group_size=1,
    limits=Limits(step_timeout_seconds=0.05),
  )
  assert episode.status is EpisodeStatus.TERMINATED
  assert episode.success
  assert message in caplog.text
  assert "train/0/0" in caplog.text


def test_a_close_that_is_no_coroutine_is_told_what_to_do(caplog):
  class Plain(fakes.FakeEnvironment):
    def close(self):
      return 1

  (episode,), _ = play(Plain, group_size=1)
  assert episode.status is EpisodeStatus.TERMINATED
  assert "put the environment into an OffLoopEnvironment" in caplog.text
