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
