"""Tests of joining rewards by weights."""

from typing import Any, cast

import numpy as np
import pytest

from arl_jax.rewards import compose, outcome, shaping
from arl_jax.rewards.catalogue import REWARDS, select_rewards
from tests.rewards import played
from tests.rewards.played import answer, turn

EPISODE = played.episode(turn(), turn(errors=1), answer())


def test_the_total_is_the_weighted_sum_of_what_is_logged():
  value = compose.compose(
    {
      "success": (1.0, outcome.success),
      "format": (0.5, shaping.format_penalty),
      "turn_cost": (0.01, shaping.turn_cost),
      "each": (0.1, lambda episode: [1.0, 2.0, 3.0]),
      "logged": (0.0, lambda episode: 7.0),
    }
  )
  total, components = value(EPISODE)
  assert components == {
    "success": 1.0,
    "format": -0.5,
    "turn_cost": -3.0,
    "each": 6.0,
    "logged": 7.0,
  }
  assert total == pytest.approx(1.0 - 0.25 - 0.03 + 0.6)


@pytest.mark.parametrize(
  "bad",
  [
    float("nan"),
    float("inf"),
    1e31,
    None,
    "much",
    [1.0, 2.0],
    [1.0, 2.0, float("nan")],
    [None] * 3,
    np.zeros(4),
  ],
  ids=repr,
)
def test_what_is_no_finite_number_names_its_reward(bad):
  value = compose.compose({"mine": (1.0, lambda episode: cast(Any, bad))})
  with pytest.raises(ValueError, match="reward 'mine' gave .*expected"):
    value(EPISODE)


def test_arrays_and_numpy_numbers_are_numbers():
  value = compose.compose(
    {
      "array": (1.0, lambda episode: np.array([0.5, 0.25, 0.0])),
      "number": (1.0, lambda episode: cast(Any, np.float32(2.0))),
      "flag": (1.0, lambda episode: True),
    }
  )
  assert value(EPISODE).total == 3.75


@pytest.mark.parametrize(
  "entry",
  [outcome.success, (outcome.success, 1.0), (float("nan"), outcome.success)],
)
def test_weights_and_functions_are_checked_before_any_episode(entry):
  with pytest.raises(ValueError, match="for 'mine'; expected a finite weight"):
    compose.compose({"mine": cast(Any, entry)})
  with pytest.raises(ValueError, match="empty"):
    compose.compose({})


def test_a_missing_component_is_an_error_unless_it_has_a_default():
  with pytest.raises(ValueError, match=r"'f1'; it gave \['success'\]"):
    compose.component("f1")(EPISODE)
  assert compose.component("f1", default=0.25)(EPISODE) == 0.25
  assert compose.component("success", default=0.25)(EPISODE) == 1.0


def test_rewards_join_those_of_the_environment():
  rewards = {"each": lambda e: [1.0, 2.0, 3.0], "end": lambda e: 4.0}
  weights = {"success": 1.0, "each": 0.5, "other": 9.0}
  found = compose.add_rewards(EPISODE, rewards, weights)
  assert [turn.reward for turn in found.turns] == [0.5, 1.0, 1.5]
  assert found.reward_components == {"success": 1.0, "each": 6.0, "end": 4.0}
  assert compose.add_rewards(EPISODE, {}, weights) == EPISODE
  # `end` has no weight: it is logged alone.
  assert found.total_reward - EPISODE.total_reward == 3.0


def test_an_episode_without_turns_is_logged_and_pays_nobody():
  nothing = played.episode()
  rewards = {"end": lambda e: 4.0, "each": lambda e: ()}
  found = compose.add_rewards(nothing, rewards, {"end": 1.0, "each": 1.0})
  assert found.turns == ()
  assert found.reward_components == {"success": 1.0, "end": 4.0, "each": 0.0}


def test_a_reward_may_not_take_the_name_of_a_component():
  with pytest.raises(ValueError, match="'success' has the name of"):
    compose.add_rewards(EPISODE, {"success": outcome.success}, {})


def test_names_that_the_environment_does_not_give_are_looked_up():
  given = ("success", "turns")
  found = select_rewards(["success", "turn_cost"], given=given)
  assert found == {"turn_cost": shaping.turn_cost}
  # The environment's own comes first.
  assert select_rewards(["turn_cost"], given=["turn_cost"]) == {}
  with pytest.raises(ValueError, match=r"\['turn_costs'\].*success.*turn_cost"):
    select_rewards(["turn_costs"], given=given)


@pytest.mark.parametrize("name", REWARDS)
def test_every_named_reward_values_every_kind_of_episode(name):
  value = compose.compose({name: (1.0, REWARDS[name])})
  for episode in (EPISODE, played.episode(), played.episode(success=False)):
    assert np.isfinite(value(episode).total)
  unknown = played.episode(turn(), components={})
  assert np.isfinite(value(unknown).total)
