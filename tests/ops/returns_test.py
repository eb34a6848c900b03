import jax.numpy as jnp
import numpy as np

import arl_jax as arl
from tests.ops import golden


def test_turn_returns_golden():
  inputs, outputs = golden.load("turn_level_discounted_returns")
  rewards = jnp.array(inputs["turn_rewards"])
  actual = arl.turn_returns(
    rewards, jnp.ones_like(rewards, bool), discount=inputs["gamma"]
  )
  golden.assert_close(actual, outputs["returns"])
  episode = arl.episode_returns(
    rewards, jnp.ones_like(rewards, bool), discount=inputs["gamma"]
  )
  golden.assert_close(episode, np.array(outputs["returns"])[:, 0])


def test_outcome_to_turns_golden():
  inputs, outputs = golden.load("kimi_researcher_gamma_decay")
  actual = arl.outcome_to_turns(
    jnp.full(2, inputs["r"]),
    jnp.array([[1, 1, 1, 1], [1, 1, 0, 0]]),
    discount=inputs["gamma"],
  )
  golden.assert_close(actual[0], outputs["turn_rewards"])
  golden.assert_close(actual[1], [*outputs["short_T2"], 0.0, 0.0])


def test_an_outcome_is_a_reward_of_the_last_turn():
  mask = jnp.array([[1, 1, 1], [1, 0, 0]])
  rewards = jnp.array([[0.0, 0.0, 2.0], [3.0, 0.0, 0.0]])
  golden.assert_close(
    arl.outcome_to_turns(jnp.array([2.0, 3.0]), mask, discount=0.5),
    arl.turn_returns(rewards, mask, discount=0.5),
  )


def test_a_discount_of_zero_leaves_the_immediate_reward():
  rewards, mask = jnp.array([[1.0, 2.0]]), jnp.ones((1, 2), bool)
  golden.assert_close(arl.episode_returns(rewards, mask, discount=0.0), [1.0])
  golden.assert_close(
    arl.turn_returns(rewards, mask, discount=0.0), [[1.0, 2.0]]
  )


def test_joint_returns_of_a_team_golden():
  inputs, outputs = golden.load("magrpo")
  rewards = jnp.array(inputs["joint_rewards_per_turn"])
  returns = arl.turn_returns(rewards, jnp.ones_like(rewards, bool))
  golden.assert_close(returns, outputs["returns"])
  same_turn = jnp.broadcast_to(jnp.arange(2), (3, 2))
  actual = arl.step_baseline_advantages(
    returns, same_turn, jnp.ones_like(rewards, bool), num_states=2
  )
  golden.assert_close(actual, outputs["adv"])
