import jax.numpy as jnp

import arl_jax as arl
from tests.ops import golden


def test_reinforce_plus_plus_golden():
  inputs, outputs = golden.load("reinforce_pp")
  rewards, mask = jnp.array(inputs["token_rewards"]), jnp.array(inputs["mask"])
  returns = arl.token_returns(rewards, mask, discount=inputs["gamma"])
  golden.assert_close(returns, outputs["returns"])
  actual = arl.reinforce_plus_plus_advantages(
    rewards, mask, discount=inputs["gamma"]
  )
  golden.assert_close(actual, outputs["adv"])


def test_reinforce_plus_plus_baseline_golden():
  inputs, outputs = golden.load("reinforce_pp_baseline")
  actual = arl.reinforce_plus_plus_baseline_advantages(
    jnp.array(inputs["rewards"]),
    jnp.array(inputs["group"]),
    jnp.array(inputs["mask"]),
    num_groups=2,
  )
  golden.assert_close(actual, outputs["adv"])
