"""Host seeds."""

import itertools

from arl_jax.actors import seeds


def test_one_part_is_the_published_generator():
  # The first output of splitmix64 with seed 0 is 0xE220A8397B1DCDAF.
  assert seeds.mix_seed(0) == 0xE220A8397B1DCDAF >> 33


def test_seeds_differ_in_every_part_and_fit_an_int32():
  found = {
    seeds.turn_seed(seeds.episode_seed(run, ordinal, member), turn)
    for run, ordinal, member, turn in itertools.product(
      range(2), range(20), range(8), range(8)
    )
  }
  assert len(found) == 2 * 20 * 8 * 8
  assert all(0 <= seed < 2**31 for seed in found)


def test_the_order_of_parts_matters():
  assert seeds.mix_seed(1, 2) != seeds.mix_seed(2, 1)
  assert seeds.mix_seed(0) != seeds.mix_seed(0, 0)
