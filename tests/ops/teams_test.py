import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


def test_critical_steps_golden():
  inputs, outputs = golden.load("parl_critical_steps")
  stages = inputs["stages"]
  sub = np.zeros((1, len(stages), 3))
  for index, stage in enumerate(stages):
    sub[0, index, : len(stage["sub"])] = stage["sub"]
  main = np.array([[stage["main"] for stage in stages]])
  actual = arl.critical_steps(main, sub, np.ones((1, len(stages)), bool))
  golden.assert_close(actual[0], outputs["critical_steps"])


def test_parallel_agent_rewards_golden():
  inputs, outputs = golden.load("parl_reward")
  for parallel_weight, finish_weight, expected in zip(
    inputs["lambda1"], inputs["lambda2"], outputs["r"], strict=True
  ):
    actual = arl.parallel_agent_rewards(
      jnp.array([inputs["r_parallel"]]),
      jnp.array([np.mean(inputs["finish"])]),
      jnp.array([inputs["r_perf"]]),
      parallel_weight=parallel_weight,
      finish_weight=finish_weight,
    )
    golden.assert_close(actual[0], expected)


@pytest.mark.parametrize("num_agents", [1, 3, 4])
def test_shapley_equals_the_average_over_orders(num_agents: int):
  values = np.random.default_rng(0).normal(size=2**num_agents)
  expected = np.zeros(num_agents)
  orders = list(itertools.permutations(range(num_agents)))
  for order in orders:
    coalition = 0
    for agent in order:
      joined = coalition | 1 << agent
      expected[agent] += (values[joined] - values[coalition]) / len(orders)
      coalition = joined
  actual = arl.shapley_values(values, num_agents=num_agents)
  golden.assert_close(actual, expected)
  golden.assert_close(actual.sum(), values[-1] - values[0])


def test_weights_are_renormalised():
  actual = arl.weighted_team_rewards(
    jnp.array([4.0, 1.0]), jnp.array([[2.0, 6.0], [0.0, 0.0]])
  )
  golden.assert_close(actual, [[1.0, 3.0], [0.0, 0.0]])


def test_agents_share_what_the_team_earned():
  actual = arl.team_average_rewards(
    jnp.array([[1.0, 2.0]]), jnp.ones((1, 2), bool), num_agents=4
  )
  golden.assert_close(actual, np.full((1, 4), 0.75))
