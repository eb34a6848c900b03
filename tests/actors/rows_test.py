"""The growing row."""

import numpy as np
import pytest

from arl_jax.actors.policy import Completion
from arl_jax.actors.rows import RowBuilder


def completion(ids, *, num_logprobs=None):
  n = len(ids)
  return Completion(
    token_ids=np.asarray(ids, np.int32),
    logprobs=np.full(n if num_logprobs is None else num_logprobs, -0.5, "f4"),
    policy_versions=np.full(n, 3, np.int32),
    finish_reason="length",
  )


def test_events_append_to_every_array():
  builder = RowBuilder(agent_id=2)
  builder.append_context(np.asarray([5, 6], np.int32))
  builder.append_action(builder.tokens, completion([7, 8, 9]), turn=0)
  builder.append_context(np.asarray([4], np.int32))
  row = builder.build()
  assert row.tokens.tolist() == [5, 6, 7, 8, 9, 4]
  assert row.action_mask.tolist() == [False, False, True, True, True, False]
  assert row.turn_ids.tolist() == [-1, -1, 0, 0, 0, -1]
  assert row.behavior_logprobs.tolist() == [0, 0, -0.5, -0.5, -0.5, 0]
  assert row.policy_versions.tolist() == [-1, -1, 3, 3, 3, -1]
  assert row.agent_id == 2


def test_random_events_keep_lengths_and_the_prefix():
  rng = np.random.default_rng(0)
  builder, ids = RowBuilder(), []
  for turn in range(40):
    before = builder.build()
    new = rng.integers(0, 100, size=rng.integers(1, 30)).tolist()
    if turn % 2:
      builder.append_action(builder.tokens, completion(new), turn=turn)
    else:
      builder.append_context(np.asarray(new, np.int32))
    ids += new
    row = builder.build()  # a Row refuses arrays of unequal length
    assert len(builder) == len(row) == len(ids)
    assert row.tokens.tolist() == ids == builder.tokens.tolist()
    for name in ("tokens", "action_mask", "turn_ids", "behavior_logprobs"):
      earlier = getattr(row, name)[: len(before)]
      assert np.array_equal(earlier, getattr(before, name))


def test_what_was_fed_must_be_the_row():
  builder = RowBuilder()
  builder.append_context(np.asarray([5, 6], np.int32))
  for fed in ([5], [5, 7], [5, 6, 7]):
    with pytest.raises(ValueError, match="not the row's 2"):
      builder.append_action(np.asarray(fed, "i4"), completion([1]), turn=0)
  assert len(builder) == 2


@pytest.mark.parametrize(
  "bad", [completion([]), completion([1], num_logprobs=0)]
)
def test_a_refused_completion_leaves_the_row_as_it_was(bad):
  # So a retry appends to a clean row.
  builder = RowBuilder()
  builder.append_context(np.asarray([5], np.int32))
  with pytest.raises(ValueError, match="lengths"):
    builder.append_action(builder.tokens, bad, turn=0)
  builder.append_action(builder.tokens, completion([1, 2]), turn=0)
  assert builder.build().tokens.tolist() == [5, 1, 2]


def test_nobody_can_write_into_the_row():
  builder = RowBuilder()
  builder.append_context(np.asarray([5, 6], np.int32))
  with pytest.raises(ValueError, match="read-only"):
    builder.tokens[0] = 1
  builder.build().tokens[0] = 1
  assert builder.tokens.tolist() == [5, 6]
