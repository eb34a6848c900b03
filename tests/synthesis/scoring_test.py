"""Tests that what a script played is worth what a policy would be paid."""

import asyncio

import pytest

from arl_jax.actors.pool import run_group
from arl_jax.actors.rollout import Limits
from arl_jax.rewards.catalogue import REWARDS
from arl_jax.synthesis.replay import play, recorded
from arl_jax.synthesis.scoring import played_reward
from tests.actors import fakes
from tests.synthesis import played

WEIGHTS = {"success": 1.0, "turns": -0.125, "tool_errors": -0.5} | {
  name: 0.1 * place for place, name in enumerate(REWARDS, start=1)
}


def paid_to_a_policy(make_environment, task, actions):
  """The reward of an actor whose policy says the same."""
  actor = fakes.make_actor(
    fakes.FakePolicy(lambda turn, sampling: fakes.say(actions[turn])),
    make_environment,
    limits=Limits(
      max_turns=len(actions), max_length=20_000, max_tokens_per_turn=500
    ),
    reward_weights=WEIGHTS,
    reward_fns=REWARDS,
  )
  group = asyncio.run(run_group(actor, task, ordinal=0, group_size=1))
  (episode,) = group.episodes
  assert not episode.error
  return episode.total_reward


@pytest.mark.parametrize("kind", ["flight", "search"])
def test_every_reward_is_that_of_training(kind):
  make_environment = getattr(played, f"{kind}_environment")()
  episodes = getattr(played, f"{kind}_episodes")(12, careful=0.3)
  found = []
  for episode in episodes:
    # The same call twice is an error or a repetition, and some do not end.
    first, *rest = episode.actions
    for actions in ([first, first, *rest], [first, "nothing", first]):
      result = asyncio.run(
        play(make_environment, episode.task, recorded(actions))
      )
      worth = played_reward(result, WEIGHTS, REWARDS)
      said = [turn.action for turn in result.turns]
      assert worth == pytest.approx(
        paid_to_a_policy(make_environment, episode.task, said)
      )
      found.append(worth)
      assert played_reward(result, {"success": 2.0}) == 2.0 * result.success
  assert len(set(found)) > 5


def test_a_reward_with_the_name_of_a_component_is_refused():
  (episode,) = played.flight_episodes(1)
  result = asyncio.run(
    play(played.flight_environment(), episode.task, recorded(episode.actions))
  )
  with pytest.raises(ValueError, match="'success' has the name of a component"):
    played_reward(result, {"success": 1.0}, {"success": lambda episode: 1.0})
