"""Tests of scripts that serve an airline's customers."""

import functools

import pytest

from arl_jax.envs.airline_environment import AirlineEnv
from arl_jax.envs.airline_tasks import TaskSource
from arl_jax.synthesis.airline_experts import (
  CARELESS_SLOTS,
  AirlineExpertMix,
  expert_transcripts,
  play_gold,
  read_reservation,
)
from tests.envs import airline_package

DATA = airline_package.load()
TASKS = TaskSource(DATA).tasks(300, seed=0, split="warmup")


def successes(careful, observations):
  make = functools.partial(
    AirlineEnv, DATA, show_tools=False, observations=observations
  )
  episodes = expert_transcripts(
    TASKS, make_environment=make, mix=AirlineExpertMix(careful=careful)
  )
  return [episode.success for episode in episodes]


@pytest.mark.parametrize("observations", ["json", "brief"])
def test_careful_experts_always_succeed_and_careless_ones_not(observations):
  assert all(successes(1.0, observations))
  careless = successes(0.0, observations)
  assert 0.2 < sum(careless) / len(careless) < 0.7


def test_gold_actions_solve_generated_tasks():
  make = functools.partial(AirlineEnv, DATA, show_tools=False)
  assert all(play_gold(make(), task).success for task in TASKS[:60])


def test_mix_draws_the_share_of_careful_experts():
  mix = AirlineExpertMix(careful=0.5)
  drawn = [mix.draw(seed=0, index=index) for index in range(400)]
  share = sum(habits not in CARELESS_SLOTS for habits in drawn) / 400
  assert 0.4 < share < 0.6
  with pytest.raises(ValueError, match="careful is 2"):
    AirlineExpertMix(careful=2)
  with pytest.raises(ValueError, match="careless_slots is empty"):
    AirlineExpertMix(careless_slots=())


def test_other_text_is_no_reservation():
  with pytest.raises(ValueError, match="'error: gone' is no reservation"):
    read_reservation("error: gone")
