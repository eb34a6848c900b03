import jax.numpy as jnp
import numpy as np

import arl_jax as arl
from tests.ops import cases, golden


def test_passage_between_tokens_and_turns_equals_a_loop():
  rng = np.random.default_rng(0)
  values, turn_ids = rng.normal(size=(6, 7)), cases.TURN_IDS
  sums = arl.sum_over_turns(values, turn_ids, num_turns=4)
  means = arl.mean_over_turns(values, turn_ids, num_turns=4)
  spread = arl.broadcast_turns(means, turn_ids)
  ends = arl.turn_end_mask(turn_ids)
  for row in range(6):
    for turn in range(4):
      places = np.flatnonzero(turn_ids[row] == turn)
      golden.assert_close(sums[row, turn], values[row, places].sum())
      mean = values[row, places].mean() if places.size else 0.0
      golden.assert_close(means[row, turn], mean)
      golden.assert_close(spread[row, places], np.full(places.size, mean))
      expected = [place == places[-1] for place in places]
      np.testing.assert_array_equal(ends[row, places], expected)
  assert not np.asarray(spread)[turn_ids < 0].any()
  assert not np.asarray(ends)[turn_ids < 0].any()


def test_a_turn_may_be_cut_by_an_observation():
  ends = arl.turn_end_mask(jnp.array([[0, -1, 0, -1, 1]]))
  np.testing.assert_array_equal(ends, [[False, False, True, False, True]])
