import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


def _ragged(flat: list, rows: list[int], num_rows: int, width: int, fill):
  """Lays a flat list out as `[B, K]`, given the row of each entry."""
  out = np.full((num_rows, width), fill)
  for row in range(num_rows):
    entries = [x for x, r in zip(flat, rows, strict=True) if r == row]
    out[row, : len(entries)] = entries
  return out


def _flat(array, rows: list[int]) -> list[float]:
  """Reads the entries of `[B, K]` back in their flat order."""
  seen: dict[int, int] = {}
  out = []
  for row in rows:
    out.append(float(array[row, seen.setdefault(row, 0)]))
    seen[row] += 1
  return out


@pytest.mark.parametrize("scale", ["std", "none"])
def test_gigpo_golden(scale: str):
  inputs, outputs = golden.load("gigpo")
  rows = inputs["traj"]
  rewards = _ragged(inputs["step_rewards"], rows, 3, 4, np.nan)
  states = _ragged(list(arl.dense_ids(inputs["anchor_obs"])), rows, 3, 4, -1)
  mask = np.isfinite(rewards)
  expected = outputs["mean_std_norm" if scale == "std" else "mean_norm"]
  for weight, key in ((1.0, "joint_w1"), (0.0, "episode_adv_traj_stats")):
    actual = arl.gigpo_advantages(
      rewards,
      states,
      jnp.zeros(3, int),
      mask,
      num_groups=1,
      num_states=5,
      discount=inputs["gamma"],
      step_weight=weight,
      scale=scale,
      eps=inputs["eps"],
    )
    golden.assert_close(_flat(actual, rows), expected[key], 1e-4)


def test_step_baseline_is_the_step_term_of_gigpo():
  inputs, outputs = golden.load("gigpo")
  rows = inputs["traj"]
  rewards = _ragged(inputs["step_rewards"], rows, 3, 4, 0.0)
  states = _ragged(list(arl.dense_ids(inputs["anchor_obs"])), rows, 3, 4, -1)
  mask = np.arange(4) < np.array([[3], [4], [2]])
  returns = arl.turn_returns(rewards, mask, discount=inputs["gamma"])
  actual = arl.step_baseline_advantages(returns, states, mask, num_states=5)
  golden.assert_close(
    _flat(actual, rows), outputs["mean_norm"]["step_adv"], 1e-4
  )


def test_step_baseline_ignores_turns_without_a_state():
  actual = arl.step_baseline_advantages(
    jnp.array([[4.0, 1.0], [100.0, 3.0]]),
    jnp.array([[-1, 0], [-1, 0]]),
    jnp.ones((2, 2), bool),
    num_states=1,
  )
  golden.assert_close(actual, [[0.0, -1.0], [0.0, 1.0]])


@pytest.mark.parametrize("scale", ["none", "std"])
def test_hgpo_golden(scale: str):
  inputs, outputs = golden.load("hgpo")
  rows = inputs["traj"]
  states = [
    [s for s, r in zip(inputs["obs"], rows, strict=True) if r == row]
    for row in range(3)
  ]
  contexts = arl.history_context_ids(
    states, [0, 0, 0], num_levels=inputs["K"] + 1
  )
  actual = arl.hgpo_advantages(
    _ragged(inputs["returns"], rows, 3, 3, 0.0),
    contexts,
    jnp.ones((3, 3), bool),
    num_contexts=int(contexts.max()) + 1,
    alpha=inputs["alpha"],
    scale=scale,
  )
  key = "adv_std_norm_kplus1" if scale == "std" else "adv_weight_kplus1"
  golden.assert_close(_flat(actual, rows), outputs[key], 1e-4)


def test_hgpo_of_one_level_is_the_step_baseline():
  returns = jnp.array([[1.0, 2.0], [4.0, 8.0]])
  states, mask = jnp.array([[0, 1], [0, 1]]), jnp.array([[1, 1], [1, 0]])
  actual = arl.hgpo_advantages(returns, states[None], mask, num_contexts=2)
  expected = arl.step_baseline_advantages(returns, states, mask, num_states=2)
  golden.assert_close(actual, expected)
  golden.assert_close(actual, [[-1.5, 0.0], [1.5, 0.0]])


@pytest.mark.parametrize("history", [1, 2])
def test_salt_golden(history: int):
  inputs, outputs = golden.load("salt_step_advantage")
  advantages = arl.group_relative_advantages(
    jnp.array(inputs["rewards"]), jnp.zeros(4, int), num_groups=1
  )
  golden.assert_close(advantages, outputs["traj_adv"])
  edges = arl.salt_edge_ids(
    inputs["trajectories"], [0, 0, 0, 0], history=history
  )
  actual = arl.salt_advantages(
    advantages, edges, jnp.ones((4, 3), bool), num_edges=int(edges.max()) + 1
  )
  golden.assert_close(actual, outputs[f"step_adv_h{history}"])


def test_salt_without_shared_edges_changes_nothing():
  advantages = jnp.array([0.3, -0.7])
  actual = arl.salt_advantages(
    advantages,
    jnp.array([[0, 1], [2, -1]]),
    jnp.ones((2, 2), bool),
    num_edges=3,
  )
  expected = np.array([[0.3, 0.3], [-0.7, -0.7]], np.float32)
  np.testing.assert_array_equal(actual, expected)
