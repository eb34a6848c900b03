"""Which tokens the ablation of the mask adds, and with what."""

import numpy as np

from arl_jax.bridge import batching, observations
from arl_jax.episode import Row


def make_row(turn_ids):
  turn_ids = np.asarray(turn_ids, np.int32)
  mask = turn_ids >= 0
  return Row(
    tokens=np.arange(len(mask), dtype=np.int32) + 10,
    action_mask=mask,
    turn_ids=turn_ids,
    behavior_logprobs=np.where(mask, -1.0, 0.0).astype(np.float32),
    policy_versions=np.where(mask, 4, -1).astype(np.int32),
  )


def make_batch():
  rows = [
    make_row([-1, -1, 0, 0, -1, 1, -1]),
    make_row([-1, -1, -1]),  # never acted
    make_row([0, -1]),
  ]
  return batching.pad_rows(rows, num_rows=4, length=8, num_turns=2)


def test_what_follows_the_first_action_is_of_the_turn_before():
  batch = make_batch()
  found = observations.observations_as_actions(batch)
  added = found.action_mask & ~batch.action_mask
  assert [np.flatnonzero(row).tolist() for row in added] == [
    [4, 6],
    [],
    [1],
    [],
  ]
  assert found.turn_ids.tolist() == [
    [-1, -1, 0, 0, 0, 1, 1, -1],
    [-1] * 8,
    [0, 0] + [-1] * 6,
    [-1] * 8,
  ]
  assert np.isnan(found.behavior_logprobs[added]).all()
  np.testing.assert_array_equal(
    found.behavior_logprobs[~added], batch.behavior_logprobs[~added]
  )
  for name in ("tokens", "policy_versions", "segment_ids", "row_mask"):
    np.testing.assert_array_equal(getattr(found, name), getattr(batch, name))


def test_an_observation_takes_the_value_of_the_token_before_it():
  values = np.arange(32, dtype=np.float32).reshape(4, 8)
  values = np.where(make_batch().action_mask, values, 0.0).astype(np.float32)
  found = observations.carry_over_observations(values, make_batch())
  assert found.tolist() == [
    [0, 0, 2, 3, 3, 5, 5, 0],
    [0] * 8,
    [16, 16] + [0] * 6,
    [0] * 8,
  ]
