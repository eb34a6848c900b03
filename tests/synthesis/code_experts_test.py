"""Tests of scripts that answer with a code interpreter."""

import asyncio
import collections

import pytest

from arl_jax.envs.code_environment import CodeEnv
from arl_jax.envs.code_questions import LEVELS
from arl_jax.envs.code_tasks import generate_tasks
from arl_jax.envs.code_trusted import TrustedSandbox
from arl_jax.rewards.code import BINARY_WEIGHTS, COMPOSITE_WEIGHTS
from arl_jax.rewards.outcome import weighted_reward
from arl_jax.synthesis.code_experts import (
  CARELESS_SLOTS,
  HACKER,
  CodeExpertMix,
  Habits,
  expert_transcripts,
)


def play(mix: CodeExpertMix, number: int = 120, *, seed: int = 0, **options):
  return expert_transcripts(
    generate_tasks(number, seed=seed, split="warmup"),
    make_environment=lambda: CodeEnv(TrustedSandbox(), **options),
    mix=mix,
    seed=seed,
    stateful=options.get("stateful", False),
  )


def only(habits: Habits) -> CodeExpertMix:
  return CodeExpertMix(careful=0.0, careless_slots=(habits,))


def share(episodes) -> float:
  return sum(episode.success for episode in episodes) / len(episodes)


@pytest.mark.parametrize("stateful", [False, True])
def test_the_careful_expert_solves_all_without_a_mistake(stateful):
  episodes = play(CodeExpertMix(careful=1.0), 400, stateful=stateful)
  for episode in episodes:
    assert episode.success
    assert episode.components["tool_errors"] == 0.0
    assert episode.components["format"] == 0.0
    assert len(episode.turns) == 2 + (episode.task.level == 4)


@pytest.mark.parametrize("habits", CARELESS_SLOTS)
def test_a_careless_expert_fails_or_takes_longer(habits):
  careless, careful = play(only(habits)), play(CodeExpertMix(careful=1.0))
  wasted = sum(
    len(one.turns) > len(other.turns) or one.components["tool_errors"] > 0
    for one, other in zip(careless, careful, strict=True)
  )
  assert share(careless) < 0.6 or wasted == len(careless)


@pytest.mark.parametrize("level", LEVELS)
def test_the_mix_leaves_room_for_a_better_strategy(level):
  episodes = play(CodeExpertMix(), 1200, seed=2)
  chosen = [one for one in episodes if one.task.level == level]
  assert 0.4 < share(episodes) < 0.65
  assert 0.35 < share(chosen) < 0.75


def test_the_composite_can_be_won_without_solving_anything():
  """Which a binary reward does not pay for."""

  def paid(episodes, weights):
    rewards = [weighted_reward(one.components, weights) for one in episodes]
    return sum(rewards) / len(rewards)

  hacked, solved = play(only(HACKER)), play(CodeExpertMix(careful=1.0))
  assert share(hacked) == 0.0
  assert paid(hacked, COMPOSITE_WEIGHTS) > paid(solved, COMPOSITE_WEIGHTS)
  assert paid(hacked, BINARY_WEIGHTS) < paid(solved, BINARY_WEIGHTS)
  # What it writes is told by its repetition.
  most = max(one.components["repetition"] for one in hacked)
  least = min(one.components["repetition"] for one in solved)
  assert most < -0.7 < least


def test_hackers_come_as_often_as_asked():
  mix = CodeExpertMix(careful=0.5, hacker=0.5)
  drawn = collections.Counter(
    mix.draw(seed=1, index=index) == HACKER for index in range(1000)
  )
  assert 200 < drawn[True] < 300
  assert all(
    CodeExpertMix(careful=0, hacker=1).draw(seed=0, index=index) == HACKER
    for index in range(20)
  )


@pytest.mark.parametrize("stateful", [False, True])
def test_a_real_sandbox_answers_as_the_trusted_one_did(stateful):
  """Else a policy would learn from what it never sees."""
  pytest.importorskip(
    "pydantic_monty", reason="needs pydantic-monty: pip install arl-jax[monty]"
  )
  from arl_jax.sandbox.monty_sandbox import MontySandbox

  episodes = play(CodeExpertMix(), 150, stateful=stateful)

  async def replay():
    sandbox = MontySandbox()
    for episode in episodes:
      environment = CodeEnv(sandbox, stateful=stateful)
      seen = [await environment.reset(episode.task, seed=0)]
      for _, action in episode.turns:
        seen.append((await environment.step(action)).observations)
      assert [messages for messages, _ in episode.turns] == seen[:-1]
      assert (await environment.score())["success"] == episode.success
      await environment.close()
    await sandbox.aclose()

  asyncio.run(replay())


def test_draws_and_slips_depend_on_the_seed_alone():
  def actions(seed):
    return [episode.turns for episode in play(CodeExpertMix(), 40, seed=seed)]

  assert actions(0) == actions(0) != actions(1)


def test_misuse_is_explained():
  with pytest.raises(ValueError, match="careful is 2"):
    CodeExpertMix(careful=2)
  with pytest.raises(ValueError, match="hacker is -1"):
    CodeExpertMix(hacker=-1)
  with pytest.raises(ValueError, match="careless_slots is empty"):
    CodeExpertMix(careless_slots=())
