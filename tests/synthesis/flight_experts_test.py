"""Tests of the mix of experts."""

import collections

import pytest

from arl_jax.envs.flight_expert import CAREFUL, Habits
from arl_jax.synthesis.flight_experts import ExpertMix


def test_draws_follow_the_shares():
  mix = ExpertMix()
  draws = collections.Counter(
    mix.draw(seed=0, index=index) for index in range(3000)
  )
  assert draws[CAREFUL] / 3000 == pytest.approx(0.25, abs=0.03)
  assert draws[Habits(sorts=False)] / 3000 == pytest.approx(0.375, abs=0.03)
  assert len(draws) == 5


def test_draws_are_fixed_by_seed_and_index():
  mix = ExpertMix()
  first = [mix.draw(seed=1, index=index) for index in range(20)]
  assert first == [mix.draw(seed=1, index=index) for index in range(20)]
  assert first != [mix.draw(seed=2, index=index) for index in range(20)]


def test_bad_shares_are_explained():
  with pytest.raises(ValueError, match="careful is 1.5"):
    ExpertMix(careful=1.5)
  with pytest.raises(ValueError, match="careless_slots is empty"):
    ExpertMix(careless_slots=())
  assert (
    ExpertMix(careful=1.0, careless_slots=()).draw(seed=0, index=0) == CAREFUL
  )
