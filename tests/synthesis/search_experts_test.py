"""Tests of scripts that answer by searching."""

import asyncio
import collections

import pytest

from arl_jax.envs.inline import run_inline
from arl_jax.envs.search_environment import SearchEnv
from arl_jax.envs.search_tasks import LEVELS
from arl_jax.synthesis.search_experts import (
  CARELESS_SLOTS,
  Habits,
  SearchExpertMix,
  expert_transcripts,
  play_expert,
)
from tests.envs import tiny_world


def make_environment(**options) -> SearchEnv:
  return SearchEnv(tiny_world.index(), inline=True, **options)


def tasks(number: int, *, split: str = "train", seed: int = 0):
  return tiny_world.source().tasks(number, seed=seed, split=split)


def play(habits: Habits, number: int = 80) -> dict[int, float]:
  """Share of successes by level."""
  found = {level: [] for level in LEVELS}
  for task in tasks(number):
    environment = make_environment(snippet_chars=40)
    episode = run_inline(play_expert(environment, task, habits=habits))
    found[task.level].append(episode.success)
  return {level: sum(won) / len(won) for level, won in found.items()}


@pytest.mark.parametrize("style", ["tags", "hermes"])
@pytest.mark.parametrize("split", ["train", "heldout", "warmup"])
def test_the_careful_expert_answers_all_with_evidence(style, split):
  for task in tasks(40, split=split):
    environment = make_environment(style=style)
    episode = run_inline(play_expert(environment, task, style=style))
    scores = run_inline(environment.score())
    assert episode.success
    assert scores["success"] == scores["support"] == 1.0
    assert scores["f1_or_penalty"] == 1.0
    assert scores["format"] == 0.0


@pytest.mark.parametrize("habits", CARELESS_SLOTS)
def test_every_careless_expert_fails_at_times(habits):
  shares = play(habits)
  assert min(shares.values()) < 0.9


def test_it_takes_more_care_at_higher_levels():
  turns = collections.Counter()
  for task in tasks(40):
    episode = run_inline(play_expert(make_environment(), task))
    turns[task.level] += len(episode.turns)
  assert turns[1] < turns[2] < turns[4]
  assert turns[1] < turns[3] < turns[4]


def test_an_expert_opens_what_was_cut_and_only_that():
  def opened(**options):
    (task,) = tasks(1)
    episode = run_inline(play_expert(make_environment(**options), task))
    assert episode.success
    return any(action.startswith("<open>") for _, action in episode.turns)

  assert opened(snippet_chars=10)
  assert not opened(snippet_chars=1000)


def test_the_mix_leaves_room_for_a_better_strategy():
  episodes = expert_transcripts(
    tasks(200), make_environment=make_environment, seed=1
  )
  rate = sum(episode.success for episode in episodes) / len(episodes)
  assert 0.3 < rate < 0.85


def test_draws_depend_on_the_seed_alone():
  def habits(seed):
    mix = SearchExpertMix(careful=0.5)
    return [mix.draw(seed=seed, index=index) for index in range(20)]

  assert habits(0) == habits(0) != habits(1)


def test_a_transcript_replays_in_the_environment_off_the_loop():
  (episode,) = expert_transcripts(
    tasks(1), make_environment=make_environment, mix=SearchExpertMix(careful=1)
  )

  async def replay():
    environment = SearchEnv(tiny_world.index())
    seen = [await environment.reset(episode.task, seed=9)]
    for _, action in episode.turns:
      seen.append((await environment.step(action)).observations)
    return seen

  seen = asyncio.run(replay())
  assert [messages for messages, _ in episode.turns] == seen[:-1]
  assert seen[-1] == ()


def test_misuse_is_explained():
  with pytest.raises(ValueError, match="careful is 2"):
    SearchExpertMix(careful=2)
  with pytest.raises(ValueError, match="careless_slots is empty"):
    SearchExpertMix(careless_slots=())
