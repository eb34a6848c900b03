import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


def _turn_ids(mask: list[float], turn_end: list[float]) -> np.ndarray:
  """Turn of each action token, given which of them end a turn."""
  turn, ids = 0, []
  for live, end in zip(mask, turn_end, strict=True):
    ids.append(turn if live else -1)
    turn += int(end)
  return np.array([ids], np.int32)


def test_gae_golden():
  inputs, outputs = golden.load("gae_token_masked")
  mask = jnp.array([inputs["mask"]])
  advantages, returns = arl.gae(
    jnp.array([inputs["rewards"]]),
    jnp.array([inputs["values"]]),
    mask,
    discount=inputs["gamma"],
    lam=inputs["lam"],
  )
  golden.assert_close(advantages[0], outputs["adv"])
  golden.assert_close(returns[0], outputs["returns"])
  whitened = arl.masked_whiten(advantages, mask)
  golden.assert_close(whitened[0], outputs["adv_whitened"], 1e-4)


@pytest.mark.parametrize("seed", range(2))
def test_gae_equals_a_loop(seed: int):
  rng = np.random.default_rng(seed)
  rewards, values = rng.normal(size=(2, 3, 9))
  mask = rng.random((3, 9)) > 0.4
  lam = np.array([0.0, 0.5, 1.0])
  expected = np.zeros((3, 9))
  for row in range(3):
    next_value = next_advantage = 0.0
    for t in reversed(range(9)):
      if mask[row, t]:
        delta = rewards[row, t] + 0.9 * next_value - values[row, t]
        next_advantage = delta + 0.9 * lam[row] * next_advantage
        next_value = values[row, t]
        expected[row, t] = next_advantage
  actual, returns = arl.gae(rewards, values, mask, discount=0.9, lam=lam)
  golden.assert_close(actual, expected)
  golden.assert_close(returns, expected + np.where(mask, values, 0.0))


def test_turn_gae_golden():
  inputs, outputs = golden.load("gae_turn_wise")
  ends = np.array(inputs["turn_end"]) == 1
  advantages, returns = arl.turn_gae(
    np.array([inputs["rewards"]])[:, ends],
    np.array([inputs["values"]])[:, ends],
    np.ones((1, 2), bool),
    discount=inputs["high_level_gamma"],
    lam=inputs["lam"],
  )
  golden.assert_close(advantages[0], outputs["turn_adv"])
  golden.assert_close(returns[0], outputs["turn_returns"])
  turn_ids = _turn_ids(inputs["mask"], inputs["turn_end"])
  golden.assert_close(
    arl.broadcast_turns(advantages, turn_ids)[0], outputs["adv"]
  )


def test_bi_level_gae_golden():
  inputs, outputs = golden.load("gae_bi_level")
  advantages, returns = arl.bi_level_gae(
    jnp.array([inputs["rewards"]]),
    jnp.array([inputs["values"]]),
    jnp.array([inputs["mask"]]),
    _turn_ids(inputs["mask"], inputs["turn_end"]),
    discount=inputs["gamma"],
    lam=inputs["lam"],
    turn_discount=inputs["high_level_gamma"],
    turn_lam=inputs["lam"],
  )
  golden.assert_close(advantages[0], outputs["adv"])
  golden.assert_close(returns[0], outputs["returns"])


def test_bi_level_gae_second_golden():
  inputs, outputs = golden.load("gae_bi_level_ragen_smoke")
  advantages, returns = arl.bi_level_gae(
    jnp.array([inputs["rewards"]]),
    jnp.array([inputs["values"]]),
    jnp.array([inputs["mask"]]),
    np.repeat([[0, 1]], 5, axis=1),
    discount=1.0,
    lam=1.0,
    turn_discount=inputs["high_level_gamma"],
  )
  golden.assert_close(advantages[0], outputs["adv_unwhitened"])
  golden.assert_close(returns[0], outputs["returns"])


def test_bi_level_gae_of_one_turn_is_token_gae():
  rng = np.random.default_rng(0)
  values, mask = rng.normal(size=(2, 6)), np.ones((2, 6), bool)
  rewards = np.zeros((2, 6))
  rewards[:, -1] = 1.0
  expected, _ = arl.gae(rewards, values, mask, discount=0.9, lam=0.8)
  actual, _ = arl.bi_level_gae(
    rewards,
    values,
    mask,
    np.zeros((2, 6), int),
    discount=0.9,
    lam=0.8,
    turn_discount=0.5,
  )
  golden.assert_close(actual, expected)


def test_length_adaptive_lambda_golden():
  inputs, outputs = golden.load("vapo_length_adaptive_gae")
  lengths = jnp.array(inputs["lengths"])
  lam = arl.length_adaptive_lambda(lengths, alpha=inputs["alpha"])
  golden.assert_close(lam, outputs["lam_policy_clamped"])
  example = inputs["example"]
  advantages, _ = arl.gae(
    jnp.array([example["rewards"]]),
    jnp.array([example["values"]]),
    jnp.ones((1, 4), bool),
    lam=arl.length_adaptive_lambda(jnp.array([4]), alpha=example["alpha"]),
  )
  golden.assert_close(advantages[0], outputs["example_adv"])


def test_value_loss_golden():
  inputs, outputs = golden.load("value_loss_clipped")
  mask = jnp.ones((1, 2), bool)
  loss = arl.value_loss(
    jnp.array([inputs["vpred"]]),
    jnp.array([inputs["vold"]]),
    jnp.array([inputs["returns"]]),
    mask,
    clip=inputs["cliprange"],
  )
  golden.assert_close(2 * loss[0], outputs["per_token"])
  golden.assert_close(arl.masked_mean(loss, mask), outputs["loss"])
