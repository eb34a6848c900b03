"""Tests of the airline's desk as a run uses it."""

import asyncio
from typing import Any

import pytest

from arl_jax import command_line
from arl_jax.actors.policy import SamplingParams
from arl_jax.actors.rollout import Limits, run_episode
from arl_jax.envs.airline_requests import read_request
from arl_jax.envs.airline_tasks import split_of
from arl_jax.run import config_rules
from arl_jax.run.airline_suite import AirlineSettings, airline_suite
from arl_jax.run.settings import read_settings
from arl_jax.synthesis.airline_experts import gold_actions
from arl_jax.text.tokenizer import train_tokenizer
from tests.actors import fakes
from tests.envs import airline_package

airline_package.load()


def suite(**options):
  return airline_suite(AirlineSettings(**options))


def test_generated_tasks_are_split_by_customer():
  made = suite(num_train_tasks=60)
  train, held = made.train_tasks(0), made.heldout_tasks(40, 0)
  assert (len(train), len(held)) == (60, 40)

  def splits(prompts):
    return {split_of(read_request(prompt).user_id) for prompt in prompts}

  shown = [
    one.turns[0][0][-1].content for one in made.demonstrate(40, 0, 1.0, False)
  ]
  assert splits(task.prompt for task in train) == {"train"}
  assert splits(task.prompt for task in held) == {"heldout"}
  assert splits(shown) == {"warmup"}


def test_demonstrations_succeed_about_as_often_as_they_are_to():
  made = suite()
  assert all(one.success for one in made.demonstrate(60, 1, 1.0, True))
  mixed = [one.success for one in made.demonstrate(200, 1, 0.25, True)]
  assert 0.35 < sum(mixed) / len(mixed) < 0.75


def test_tau_demonstrations_are_of_the_tasks_to_train_on():
  made = suite(kind="tau", observations="json")
  assert (len(made.train_tasks(0)), len(made.heldout_tasks(99, 0))) == (30, 20)
  assert len(made.heldout_tasks(3, 0)) == 3
  shown = made.demonstrate(40, 0, 0.25, False)
  assert all(one.success for one in shown)
  prompts = {task.prompt for task in made.train_tasks(0)}
  assert {one.turns[0][0][-1].content for one in shown} <= prompts


def test_generated_episodes_are_short_for_a_small_tokenizer():
  made = suite()
  shown = made.demonstrate(200, 0, 0.25, True)
  episodes = [
    [
      text
      for messages, action in one.turns
      for text in [*(message.content for message in messages), action]
    ]
    for one in shown
  ]
  tokenizer = train_tokenizer(
    [text for texts in episodes for text in texts],
    vocab_size=1000,
    split_pattern=made.split_pattern,
  )
  lengths = sorted(
    sum(len(tokenizer.encode(text)) for text in texts) for texts in episodes
  )
  assert lengths[len(lengths) // 2] < 160
  assert lengths[-1] < 320


def test_episode_is_played_and_scored_by_an_actor():
  made = suite(reward_weights={"success": 1.0, "turns": -0.01})
  (task,) = made.heldout_tasks(1, 0)
  actions = gold_actions(task)
  policy = fakes.FakePolicy(lambda turn, _: fakes.say(actions[turn]))
  episode = asyncio.run(
    run_episode(
      policy,
      made.make_environment(),
      task,
      member=0,
      chat=fakes.CHAT,
      limits=Limits(max_turns=9, max_tokens_per_turn=900, max_length=20000),
      sampling=SamplingParams(),
      reward_weights={"success": 1.0, "turns": -0.01},
      seed=0,
      session="s",
    )
  )
  assert episode.success
  assert episode.total_reward == pytest.approx(1.0 - 0.01 * len(actions))


def test_wrong_settings_are_named():
  with pytest.raises(ValueError, match=r"names \['speed'\]; the environment"):
    suite(reward_weights={"speed": 1.0})
  wrong: tuple[tuple[dict[str, Any], str], ...] = (
    ({"levels": ()}, "levels is empty"),
    ({"user": "scripted"}, "user is 'scripted' while kind is 'generated'"),
    ({"kind": "tau"}, "observations is 'brief' while kind is 'tau'"),
  )
  for options, words in wrong:
    (problem,) = AirlineSettings(**options).problems()
    assert words in problem


@pytest.mark.parametrize("variant", ["", ":smollm2", ":runlocal"])
def test_shipped_variants_are_possible(variant):
  name = f"--config=configs/airline.py{variant}"
  config = command_line.parse(["test", name, "--workdir=unused"]).config
  config_rules.check(read_settings(config))
