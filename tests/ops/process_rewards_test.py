import jax
import jax.numpy as jnp

import arl_jax as arl
from tests.ops import golden


def test_reductions_and_soft_min_golden():
  inputs, outputs = golden.load("prm_aggregation")
  scores = jnp.array([[*inputs["step_scores"], jnp.nan]])
  mask = jnp.array([[1, 1, 1, 0]])
  for mode in ("sum", "mean", "min", "prod", "last"):
    actual = arl.aggregate_process_rewards(scores, mask, mode=mode)
    golden.assert_close(actual[0], outputs[mode])
  soft = arl.soft_min_process_rewards(scores, mask, temperature=inputs["T"])
  golden.assert_close(soft[0, :3], outputs["softmin_step_rewards"])
  returns = arl.turn_returns(soft, mask)
  golden.assert_close(returns[0, :3], outputs["min_form_returns"])


def test_implicit_rewards_golden():
  inputs, outputs = golden.load("prime_implicit_reward")
  actual = arl.implicit_process_rewards(
    jnp.array(inputs["prm_logp"]),
    jnp.array(inputs["ref_logp"]),
    jnp.ones((2, 3), bool),
    beta=inputs["beta"],
  )
  golden.assert_close(actual, outputs["implicit_token_rewards"])


def test_progress_loss_golden():
  inputs, outputs = golden.load("spa_rl")
  actual = arl.progress_loss(
    jnp.array([inputs["contributions"]]),
    jnp.ones((1, 3), bool),
    jnp.array([inputs["R"]]),
  )
  golden.assert_close(actual[0], outputs["mse_loss"])


def test_monte_carlo_targets_golden():
  # Three episodes: from state 0 two of three succeed, from state 1 one of two.
  rewards = jnp.array([[0.0, 1.0], [0.0, 0.0], [1.0, jnp.nan]])
  states = jnp.array([[0, 1], [0, 1], [0, -9]])
  mask = jnp.array([[1, 1], [1, 1], [1, 0]])
  found = arl.monte_carlo_targets(rewards, states, mask, num_states=2)
  golden.assert_close(found, [[2 / 3, 0.5], [2 / 3, 0.5], [2 / 3, 0.0]])
  # Discounted, and returns beyond [0, 1] are cut before they are averaged.
  rewards = jnp.array([[0.0, 5.0], [-3.0, 0.5], [0.5, jnp.nan]])
  found = arl.monte_carlo_targets(
    rewards, states.at[0, 0].set(-1), mask, num_states=2, discount=0.5
  )
  golden.assert_close(found, [[1.0, 0.75], [0.25, 0.75], [0.25, 0.0]])


def test_a_rejected_row_is_no_label():
  rewards, mask = jnp.array([[1.0], [0.0]]), jnp.ones((2, 1), bool)
  found = arl.monte_carlo_targets(
    rewards,
    jnp.zeros((2, 1), jnp.int32),
    mask,
    num_states=1,
    row_mask=jnp.array([True, False]),
  )
  golden.assert_close(found, [[1.0], [0.0]])


def test_process_score_loss_golden():
  # σ(log 3) = 0.75: -0.5 log 0.75 - 0.5 log 0.25, and 0.75's own entropy.
  logits = jnp.array([[jnp.log(3.0), jnp.log(3.0), 0.0, jnp.nan]])
  targets = jnp.array([[0.5, 0.75, 1.0, jnp.nan]])
  found = arl.process_score_loss(logits, targets, jnp.array([[1, 1, 1, 0]]))
  golden.assert_close(found, [[0.8369882, 0.5623351, 0.6931472, 0.0]])


def test_process_score_loss_is_finite_where_a_logarithm_would_not_be():
  logits = jnp.array([[200.0, -200.0, 200.0, -200.0]])
  targets = jnp.array([[1.0, 0.0, 0.0, 1.0]])
  mask = jnp.ones((1, 4), bool)

  def loss(z):
    return jnp.sum(arl.process_score_loss(z, targets, mask))

  found = arl.process_score_loss(logits, targets, mask)
  golden.assert_close(found, [[0.0, 0.0, 200.0, 200.0]])
  golden.assert_close(jax.grad(loss)(logits), [[0.0, 0.0, 1.0, -1.0]])


def test_potential_rewards_golden():
  values = jnp.array([[0.5, 0.75, 0.25], [0.5, 1.0, jnp.nan]])
  mask = jnp.array([[1, 1, 1], [1, 1, 0]])
  found = arl.potential_rewards(values, mask, discount=0.5)
  golden.assert_close(found, [[-0.125, -0.625, -0.25], [0.0, -1.0, 0.0]])
  # Whatever lies between, the discounted sum is minus the first value.
  sums = arl.episode_returns(found, mask, discount=0.5)
  golden.assert_close(sums, [-0.5, -0.5])
