"""Packing loses no token and leaves little padding."""

import numpy as np
import pytest

from arl_jax.bridge import batching, pieces
from arl_jax.episode import Row
from configs import flight_booking

PACKING = flight_booking.get_config().learner


def make_batch(sizes, *, length=208, seed=0):
  rng = np.random.default_rng(seed)
  rows = []
  for size in sizes:
    mask = rng.random(size) < 0.4
    mask[0] = False
    rows.append(
      Row(
        tokens=rng.integers(1, 100, size).astype(np.int32),
        action_mask=mask,
        turn_ids=np.where(mask, 0, -1).astype(np.int32),
        behavior_logprobs=np.zeros(size, np.float32),
        policy_versions=np.zeros(size, np.int32),
      )
    )
  return batching.pad_rows(rows, num_rows=len(rows), length=length, num_turns=1)


def test_every_token_has_one_place():
  rng = np.random.default_rng(0)
  batch = make_batch(rng.integers(1, 60, 23), length=64)
  rows = np.arange(2, 23)
  seen = []
  for piece in pieces.micro_batches(
    batch,
    rows,
    micro_batch_rows=3,
    packed_lengths=(64, 96),
    rows_per_pack=3,
  ):
    packing = piece.packing
    assert packing is not None
    tokens = np.append(np.asarray(packing.tokens).ravel(), -1)
    segments = np.asarray(packing.segment_ids)
    actions = np.zeros(segments.shape, bool)
    for p, columns in enumerate(np.asarray(packing.scored)):
      actions[p, columns[columns < segments.shape[1]]] = True
    flat_actions = np.append(actions.ravel(), False)
    assert piece.batch.tokens.shape == (9, 64)
    for row, b in enumerate(piece.rows):
      n = int((batch.segment_ids[b] > 0).sum())
      places = np.asarray(packing.index)[row]
      np.testing.assert_array_equal(tokens[places[:n]], batch.tokens[b, :n])
      np.testing.assert_array_equal(
        flat_actions[places[:n]], batch.action_mask[b, :n]
      )
      assert (places[n:] == segments.size).all()
      assert len(set(segments.ravel()[places[:n]])) == 1
    assert not piece.batch.row_mask[len(piece.rows) :].any()
    assert not piece.batch.action_mask[len(piece.rows) :].any()
    assert (segments > 0).sum() == sum(
      (batch.segment_ids[b] > 0).sum() for b in piece.rows
    )
    seen += list(piece.rows)
  assert sorted(seen) == list(rows)


def test_a_row_that_fits_nowhere_is_named():
  with pytest.raises(ValueError, match=r"30 tokens; packed_lengths are \(16,"):
    list(
      pieces.micro_batches(
        make_batch([30, 4]),
        np.arange(2),
        micro_batch_rows=2,
        packed_lengths=(16, 24),
      )
    )


def test_no_more_rows_share_one_than_allowed():
  (piece,) = pieces.micro_batches(
    make_batch([4] * 6),
    np.arange(6),
    micro_batch_rows=3,
    packed_lengths=(208,),
    rows_per_pack=2,
  )
  assert piece.packing is not None
  assert np.asarray(piece.packing.segment_ids).max(axis=1).tolist() == [2] * 3
