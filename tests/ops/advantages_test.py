import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


def _random_groups(seed: int):
  rng = np.random.default_rng(seed)
  returns = rng.normal(size=12).astype(np.float32)
  groups = rng.integers(0, 4, 12)
  rows = rng.random(12) > 0.2
  return returns, groups, rows


def test_group_relative_golden():
  inputs, outputs = golden.load("grpo_advantage")
  returns, groups = jnp.array(inputs["rewards"]), jnp.array(inputs["group"])
  for ddof, scale, key in (
    (1, "std", "adv_sample_std"),
    (0, "std", "adv_population_std"),
    (1, "none", "dr_grpo_adv"),
  ):
    expected = np.array(outputs[key])
    expected[-1] = 0.0  # a single member has nobody to be compared with
    actual = arl.group_relative_advantages(
      returns, groups, num_groups=3, ddof=ddof, scale=scale
    )
    golden.assert_close(actual, expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", ["std", "none"])
def test_group_relative_equals_a_loop(seed: int, scale: str):
  returns, groups, rows = _random_groups(seed)
  expected = np.zeros(12)
  for i in range(12):
    peers = returns[(groups == groups[i]) & rows].astype(np.float64)
    if rows[i] and len(peers) > 1:
      spread = peers.std(ddof=1) + 1e-6 if scale == "std" else 1.0
      expected[i] = (returns[i] - peers.mean()) / spread
  actual = arl.group_relative_advantages(
    returns, groups, num_groups=4, scale=scale, row_mask=rows
  )
  golden.assert_close(actual, expected)


@pytest.mark.parametrize(("value", "size"), [(0.1, 3), (0.7, 7), (-1e6, 11)])
def test_equal_returns_give_exact_zeros(value: float, size: int):
  for function in (
    arl.group_relative_advantages,
    arl.leave_one_out_advantages,
  ):
    actual = function(np.full(size, value), np.zeros(size, int), num_groups=1)
    np.testing.assert_array_equal(actual, np.zeros(size))


def test_a_large_offset_costs_no_precision():
  returns = jnp.array([1.0, 0.0, 0.0, 1.0])
  groups = jnp.zeros(4, int)
  plain = arl.group_relative_advantages(returns, groups, num_groups=1)
  moved = arl.group_relative_advantages(returns + 1e6, groups, num_groups=1)
  golden.assert_close(moved, plain)


def test_gradient_is_finite_where_nothing_varies():
  groups = jnp.zeros(3, int)

  def total(returns):
    advantages = arl.group_relative_advantages(returns, groups, num_groups=1)
    return jnp.sum(advantages * jnp.arange(3.0))

  assert np.isfinite(jax.grad(total)(jnp.full(3, 0.1))).all()


def test_leave_one_out_golden():
  inputs, outputs = golden.load("rloo_advantage")
  actual = arl.leave_one_out_advantages(
    jnp.array(inputs["rewards"]), jnp.array(inputs["group"]), num_groups=2
  )
  golden.assert_close(actual, outputs["adv"])


@pytest.mark.parametrize("seed", range(3))
def test_leave_one_out_equals_a_loop(seed: int):
  returns, groups, rows = _random_groups(seed)
  expected = np.zeros(12)
  for i in range(12):
    others = [
      returns[j]
      for j in range(12)
      if j != i and rows[j] and groups[j] == groups[i]
    ]
    if rows[i] and others:
      expected[i] = returns[i] - np.mean(others)
  actual = arl.leave_one_out_advantages(
    returns, groups, num_groups=4, row_mask=rows
  )
  golden.assert_close(actual, expected)


def test_length_weighted_golden():
  inputs, outputs = golden.load("opo_advantage")
  actual = arl.length_weighted_advantages(
    jnp.array(inputs["rewards"]),
    jnp.array(inputs["lengths"]),
    jnp.array(inputs["group"]),
    num_groups=2,
  )
  golden.assert_close(actual, outputs["adv"])


def test_group_policy_gradient_golden():
  inputs, outputs = golden.load("gpg_advantage")
  actual = arl.group_policy_gradient_advantages(
    jnp.array(inputs["rewards"]), jnp.array(inputs["group"]), num_groups=2
  )
  golden.assert_close(actual, outputs["adv_paper"])


def test_group_policy_gradient_counts_rows_of_unequal_groups():
  actual = arl.group_policy_gradient_advantages(
    jnp.array([1.0, 0.0, 1.0, 1.0, 1.0, 9.0]),
    jnp.array([0, 0, 1, 1, 1, 2]),
    num_groups=3,
    row_mask=jnp.array([1, 1, 1, 1, 1, 0]),
  )
  # Five live rows, two of them in the group with variance.
  golden.assert_close(actual, [1.25, -1.25, 0.0, 0.0, 0.0, 0.0])


def test_pass_at_k_golden():
  inputs, outputs = golden.load("grpo_passk_advantage")
  returns, groups = jnp.array(inputs["rewards"]), jnp.array(inputs["group"])
  for scale, key in (("std", "adv_std_norm"), ("none", "adv_no_std")):
    actual = arl.pass_at_k_advantages(
      returns, groups, num_groups=1, scale=scale
    )
    golden.assert_close(actual, outputs[key])


def test_pass_at_k_gives_nothing_to_a_shared_best():
  actual = arl.pass_at_k_advantages(
    jnp.array([1.0, 1.0, 0.0]), jnp.zeros(3, int), num_groups=1
  )
  np.testing.assert_array_equal(actual, np.zeros(3))


def test_tree_golden():
  inputs, outputs = golden.load("tree_grpo")
  actual = arl.tree_advantages(
    jnp.array(inputs["rewards"]),
    jnp.array(inputs["tree"]),
    jnp.array(inputs["prompt"]),
    num_trees=3,
    num_groups=1,
  )
  golden.assert_close(actual, outputs["adv_sum"])


def test_agents_of_a_team_are_groups_of_their_own():
  inputs, outputs = golden.load("dr_mas_agentwise_norm")
  keys = zip(inputs["uid"], inputs["agent"], strict=True)
  actual = arl.group_relative_advantages(
    jnp.array(inputs["rewards"]), arl.dense_ids(keys), num_groups=2
  )
  golden.assert_close(actual, outputs["adv_agentwise"])


def test_turns_of_a_team_are_groups_of_their_own():
  inputs, outputs = golden.load("at_grpo")
  keys = zip(inputs["env"], inputs["turn"], inputs["agent"], strict=True)
  actual = arl.group_relative_advantages(
    jnp.array(outputs["reward"]), arl.dense_ids(keys), num_groups=4
  )
  golden.assert_close(actual, outputs["adv"], 1e-4)
