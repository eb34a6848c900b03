from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


@given(st.lists(st.one_of(st.none(), st.integers(0, 5), st.text(max_size=1))))
def test_dense_ids_are_equal_where_keys_are(keys):
  ids = arl.dense_ids(keys)
  assert ids.dtype == np.int32
  for key, i in zip(keys, ids, strict=True):
    for other, j in zip(keys, ids, strict=True):
      assert (key == other) == (i == j)
  assert set(ids[ids >= 0]) == set(range(len({k for k in keys} - {None})))


def test_an_unhashable_key_is_named():
  keys: Any = ["a", []]
  with pytest.raises(ValueError, match=r"keys\[1\] is a list"):
    arl.dense_ids(keys)


@pytest.mark.parametrize("history", [1, 2])
def test_edges_golden(history: int):
  inputs, outputs = golden.load("salt_step_advantage")
  edges = arl.salt_edge_ids(inputs["trajectories"], [0] * 4, history=history)
  counts = [[int((edges == edge).sum()) for edge in row] for row in edges]
  assert counts == outputs[f"edge_counts_h{history}"]


def test_edges_of_two_groups_never_merge():
  episode = [("look", "door")]
  edges = arl.salt_edge_ids([episode, episode], [0, 1], num_turns=2)
  np.testing.assert_array_equal(edges, [[0, -1], [1, -1]])


def test_contexts_tell_levels_groups_and_histories_apart():
  states = [["a", "b", "b"], ["c", "b", None], ["a", "b"]]
  ids = arl.history_context_ids(states, [0, 0, 1], num_levels=2)
  assert ids.shape == (2, 3, 3)
  assert ids[0, 0, 1] == ids[0, 0, 2] == ids[0, 1, 1]  # the same state
  assert ids[1, 0, 1] != ids[1, 1, 1]  # reached from another
  assert ids[0, 2, 1] != ids[0, 0, 1]  # another group
  assert (ids[1, :, 0] == -1).all()  # nothing came before
  assert ids[0, 1, 2] == ids[1, 1, 2] == -1  # an unknown state
  assert not set(ids[0].flat) & set(ids[1].flat) - {-1}


def test_contexts_check_their_lengths():
  with pytest.raises(ValueError, match="group_ids has 1 entries"):
    arl.history_context_ids([["a"], ["b"]], [0], num_levels=1)
  with pytest.raises(ValueError, match="num_turns is 1"):
    arl.history_context_ids([["a", "b"]], [0], num_levels=1, num_turns=1)


def test_resample_golden():
  inputs, outputs = golden.load("grpo_roc")
  kept = arl.resample_on_correct(
    inputs["rewards"],
    np.add(inputs["p_err"], inputs["p_format"]),
    num_keep=inputs["n_to"],
    min_correct=inputs["min_nonzero"],
    min_incorrect=inputs["min_zero"],
  )
  assert list(kept) == outputs["kept"]


@given(
  st.lists(st.tuples(st.booleans(), st.floats(0, 2)), min_size=1, max_size=12),
  st.data(),
)
def test_resample_keeps_what_was_asked(rollouts, data):
  rewards = [float(correct) for correct, _ in rollouts]
  penalties = [penalty for _, penalty in rollouts]
  num_keep = data.draw(st.integers(1, len(rollouts)))
  kept = arl.resample_on_correct(rewards, penalties, num_keep=num_keep)
  assert len(set(kept)) == num_keep
  correct = [i for i in range(len(rewards)) if rewards[i] > 0]
  if num_keep > 1 and correct:
    chosen = [i for i in kept if rewards[i] > 0]
    assert chosen
    if len(correct) < len(rewards):
      assert len(chosen) < num_keep
    left = [penalties[i] for i in correct if i not in chosen]
    assert max(penalties[i] for i in chosen) <= min(left, default=2.0)


@pytest.mark.parametrize("num_keep", [0, 3])
def test_resample_names_a_bad_count(num_keep: int):
  with pytest.raises(ValueError, match="num_keep"):
    arl.resample_on_correct([1, 0], [0, 0], num_keep=num_keep)
