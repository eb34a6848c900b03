import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


def test_overlong_penalty_golden():
  inputs, outputs = golden.load("dapo_soft_overlong")
  actual = arl.overlong_penalty(
    jnp.array(inputs["lengths"]),
    max_length=inputs["L_max"],
    buffer=inputs["L_cache"],
  )
  golden.assert_close(actual, outputs["penalty"])


def test_informative_groups_golden():
  inputs, outputs = golden.load("dapo_dynamic_sampling")
  accuracy = np.array(inputs["acc"])
  groups = np.repeat(np.arange(4), 4)
  keep = arl.informative_groups(accuracy.reshape(-1), groups, num_groups=4)
  np.testing.assert_array_equal(keep[::4], outputs["keep"])


def test_void_turns_golden():
  inputs, outputs = golden.load("simpletir_void_turn_filter")
  void = [
    [not (turn["code"] or turn["answer"]) for turn in row]
    for row in inputs["turns"]
  ]
  keep = arl.void_turn_keep_mask(jnp.array(void), jnp.ones((2, 2), bool))
  np.testing.assert_array_equal(keep, outputs["keep_traj"])


def test_an_empty_row_has_no_void_turn():
  keep = arl.void_turn_keep_mask(
    jnp.ones((1, 2), bool), jnp.zeros((1, 2), bool)
  )
  np.testing.assert_array_equal(keep, [True])


@pytest.mark.parametrize(
  ("drop", "expected"),
  [
    ("none", [True, True, True, True]),
    ("negative", [True, False, True, True]),
    ("all", [False, False, True, True]),
  ],
)
def test_truncated_rows(drop: str, expected: list[bool]):
  keep = arl.truncation_keep_mask(
    jnp.array([1, 1, 0, 0]), jnp.array([1.0, -1.0, 1.0, -1.0]), drop=drop
  )
  np.testing.assert_array_equal(keep, expected)


def test_top_variance_golden():
  inputs, outputs = golden.load("starpo_s_filter")
  rewards = np.array(inputs["group_rewards"])
  keep = arl.top_variance_groups(
    rewards.reshape(-1),
    np.repeat(np.arange(4), 4),
    num_groups=7,
    keep_ratio=inputs["keep_ratio"],
  )
  np.testing.assert_array_equal(
    np.flatnonzero(keep[::4]), outputs["kept_groups"]
  )


def test_top_variance_rounds_before_the_ceiling():
  assert 0.28 * 25 > 7  # in binary
  keep = arl.top_variance_groups(
    np.tile([0.0, 1.0], 25),
    np.repeat(np.arange(25), 2),
    num_groups=25,
    keep_ratio=0.28,
  )
  # All tie, so that the lowest ids stay.
  np.testing.assert_array_equal(np.flatnonzero(keep), np.arange(14))


def test_top_variance_ties_do_not_depend_on_row_order():
  rng = np.random.default_rng(0)
  values = rng.random(5).astype(np.float32)
  returns = np.concatenate([rng.permutation(values) for _ in range(6)])
  groups = np.repeat(np.arange(6), 5)
  keep = arl.top_variance_groups(returns, groups, num_groups=6, keep_ratio=0.5)
  np.testing.assert_array_equal(keep, groups < 3)
