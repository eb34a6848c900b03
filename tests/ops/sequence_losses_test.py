import jax
import jax.numpy as jnp
import numpy as np

import arl_jax as arl
from tests.ops import golden


def _gspo(logprobs, inputs, **clips: float):
  mask = jnp.array(inputs["mask"])
  loss = arl.gspo_loss(
    logprobs,
    jnp.array(inputs["old_logp"]),
    jnp.array(inputs["adv"]),
    mask,
    **clips,
  )
  return arl.aggregate(loss, mask, mode="sequence_mean")


def test_gspo_golden_values_and_gradients():
  inputs, outputs = golden.load("gspo_loss")
  new = jnp.array(inputs["logp"])
  wide = {"clip_low": 0.2, "clip_high": 0.2}
  golden.assert_close(_gspo(new, inputs, **wide), outputs["loss_clip_0p2"])
  golden.assert_close(_gspo(new, inputs), outputs["loss_clip_3e4_4e4"])
  grad = jax.grad(_gspo)(new, inputs, **wide)
  golden.assert_close(grad, outputs["dloss_dlogp_clip_0p2"])


def test_turn_surrogate_golden():
  inputs, outputs = golden.load("turn_level_ratio")
  turn_ids, mask = jnp.array([inputs["turn"]]), jnp.ones((1, 5), bool)
  loss = arl.turn_surrogate_loss(
    jnp.array([inputs["log_ratio"]]),
    jnp.zeros((1, 5)),
    jnp.array([1.0]),
    mask,
    turn_ids,
    num_turns=2,
  )
  ratios = np.array(outputs["turn_geomean_ratio"])
  golden.assert_close(loss[0], -ratios[inputs["turn"]])


def test_turn_surrogate_of_one_turn_is_gspo():
  rng = np.random.default_rng(0)
  new, old = -rng.random((2, 2, 4)).astype(np.float32)
  mask, advantages = jnp.array([[1, 1, 1, 1], [1, 0, 1, 0]]), jnp.array([1, -2])
  turn_ids = jnp.where(mask == 1, 0, -1)
  clips = {"clip_low": 0.9, "clip_high": 9.0}

  def by_turn(x):
    loss = arl.turn_surrogate_loss(
      x, old, advantages, mask, turn_ids, num_turns=1, **clips
    )
    return arl.aggregate(loss, mask, mode="sequence_mean")

  def by_row(x):
    loss = arl.gspo_loss(x, old, advantages, mask, **clips)
    return arl.aggregate(loss, mask, mode="sequence_mean")

  for actual, expected in zip(
    jax.value_and_grad(by_turn)(new),
    jax.value_and_grad(by_row)(new),
    strict=True,
  ):
    golden.assert_close(actual, expected)


def test_mirror_descent_golden():
  inputs, outputs = golden.load("kimi_k15_mirror_loss")
  rewards = jnp.array(inputs["rewards"])

  def loss(log_ratio):
    return jnp.mean(
      arl.mirror_descent_loss(
        log_ratio[:, None],
        jnp.zeros((4, 1)),
        rewards - rewards.mean(),
        jnp.ones((4, 1), bool),
        tau=inputs["tau"],
      )
    )

  value, grad = jax.value_and_grad(loss)(jnp.array(inputs["seq_log_ratio"]))
  golden.assert_close(value, outputs["loss"])
  golden.assert_close(grad, outputs["dloss_dlogratio"])
