import jax.numpy as jnp
import numpy as np

import arl_jax as arl
from tests.ops import golden


def test_mt_grpo_golden():
  inputs, outputs = golden.load("mt_grpo")
  # The tool's answer follows the first of two turns; the last row called none.
  rewards = np.stack([inputs["turn_rewards"], np.zeros(4)], axis=1)
  actual = arl.mt_grpo_advantages(
    rewards,
    jnp.array(inputs["outcome_rewards"]),
    jnp.zeros(4, int),
    jnp.ones((4, 2), bool),
    num_groups=1,
    turn_weight=inputs["lam"],
    eps=inputs["eps"],
  )
  outcome = np.array(outputs["outcome_adv"])
  golden.assert_close(actual[:, 0], outcome + np.array(outputs["turn_adv"]))
  golden.assert_close(actual[:, 1], outcome)


def test_mt_grpo_compares_a_turn_with_those_who_took_it():
  actual = arl.mt_grpo_advantages(
    jnp.array([[1.0, 3.0], [1.0, 1.0], [1.0, 50.0]]),
    jnp.array([1.0, 1.0, 1.0]),
    jnp.zeros(3, int),
    jnp.array([[1, 1], [1, 1], [1, 0]]),
    num_groups=1,
    eps=0.0 + 1e-6,
  )
  half = np.sqrt(0.5)
  golden.assert_close(actual, [[0, half], [0, -half], [0, 0]])


def test_igpo_golden():
  inputs, outputs = golden.load("igpo")
  beliefs = np.array(inputs["gt_mean_logprob_per_prefix"])
  # What follows the last turn is never read.
  beliefs = np.concatenate([beliefs, np.full((2, 1), np.nan)], axis=1)
  actual = arl.igpo_advantages(
    beliefs,
    jnp.array(inputs["outcome_reward"]),
    jnp.zeros(2, int),
    jnp.ones((2, 3), bool),
    num_groups=1,
    discount=inputs["gamma"],
  )
  golden.assert_close(actual, outputs["discounted_cumulative_adv"], 1e-4)


def test_igpo_discounts_after_the_z_score():
  beliefs = np.array([[-3.0, -2.0, 0.0], [-3.0, -3.2, 0.0]])
  outcomes, mask = np.array([1.0, 0.0]), np.ones((2, 2), bool)

  def call(discount):
    return arl.igpo_advantages(
      beliefs, outcomes, np.zeros(2, int), mask, num_groups=1, discount=discount
    )

  scores = np.asarray(call(0.0))
  expected = np.stack([scores[:, 0] + 0.5 * scores[:, 1], scores[:, 1]], 1)
  golden.assert_close(call(0.5), expected)
  golden.assert_close(scores.mean(), 0.0)


def test_igpo_of_a_single_row_is_zero():
  actual = arl.igpo_advantages(
    np.array([[-3.0, -1.0, 0.0]]),
    np.array([1.0]),
    np.array([0]),
    np.ones((1, 2), bool),
    num_groups=1,
  )
  np.testing.assert_array_equal(actual, np.zeros((1, 2)))


def test_state_values_golden():
  inputs, outputs = golden.load("vineppo")
  values = np.array([[*outputs["values"], 0.0]])
  rewards = np.array([[0.0, 0.0, inputs["terminal_reward"]]])
  actual = arl.state_value_advantages(
    values, rewards, np.ones((1, 3), bool), discount=inputs["gamma"]
  )
  golden.assert_close(actual[0], outputs["step_adv"])
  golden.assert_close(actual.sum(), outputs["telescoped_sum"])


def test_state_values_read_the_one_after_the_last_turn():
  actual = arl.state_value_advantages(
    np.array([[0.5, 0.25, np.nan]]), np.zeros((1, 2)), np.array([[1, 0]])
  )
  golden.assert_close(actual, [[-0.25, 0.0]])
