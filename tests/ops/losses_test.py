import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


def test_clipped_surrogate_golden_values_and_gradients():
  inputs, outputs = golden.load("ppo_clip_higher_dual_clip")
  new = jnp.log(jnp.array([inputs["ratio"]]))

  def loss(logprobs):
    return arl.clipped_surrogate_loss(
      logprobs,
      jnp.zeros_like(logprobs),
      jnp.array([inputs["adv"]]),
      jnp.ones_like(logprobs, bool),
      clip_low=inputs["clip_low"],
      clip_high=inputs["clip_high"],
      dual_clip=inputs["dual_clip_c"],
    )

  golden.assert_close(loss(new)[0], outputs["per_token_loss"])
  grad = jax.grad(lambda x: loss(x).sum())(new)
  golden.assert_close(grad[0], outputs["dloss_dlogp"])


def test_clip_higher_with_overlong_filtering_golden():
  inputs, outputs = golden.load("deepcoder_grpo_plus")
  low, high = inputs["clip"]
  mask = jnp.array([inputs["mask_after_overlong_filter"]])
  loss = arl.clipped_surrogate_loss(
    jnp.log(jnp.array([inputs["ratio"]])),
    jnp.zeros((1, 4)),
    jnp.array([inputs["adv"]]),
    mask,
    clip_low=low,
    clip_high=high,
  )
  golden.assert_close(arl.aggregate(loss, mask), outputs["loss"])


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 3)])
def test_advantages_of_every_layout(shape: tuple[int, ...]):
  advantages = jnp.array([1.0, -2.0]).reshape(2, *[1] * (len(shape) - 1))
  advantages = jnp.broadcast_to(advantages, shape)
  logprobs = -jnp.arange(6.0).reshape(2, 3)
  loss = arl.policy_gradient_loss(logprobs, advantages, jnp.ones((2, 3), bool))
  golden.assert_close(loss, [[0, 1, 2], [-6, -8, -10]])


def test_gradient_at_ratio_one_is_that_of_the_score_function():
  rng = np.random.default_rng(0)
  logprobs = jnp.asarray(-rng.random((2, 4)), jnp.float32)
  advantages, mask = jnp.array([1.5, -0.5]), jnp.ones((2, 4), bool)

  def grad(loss):
    return jax.grad(lambda x: loss(x).sum())(logprobs)

  expected = grad(lambda x: arl.policy_gradient_loss(x, advantages, mask))
  for surrogate in (
    arl.clipped_surrogate_loss,
    arl.cispo_loss,
    arl.sapo_loss,
  ):
    actual = grad(lambda x, f=surrogate: f(x, logprobs, advantages, mask))
    golden.assert_close(actual, expected)


@pytest.mark.parametrize(
  ("cap", "mode", "key"),
  [
    (None, "clamp", "loss_no_cap"),
    (2.0, "clamp", "loss_clamp_cap2"),
    (2.0, "mask", "loss_mask_cap2_fixed_denominator"),
  ],
)
def test_decoupled_surrogate_golden(cap: float | None, mode: str, key: str):
  inputs, outputs = golden.load("decoupled_ppo_areal")
  mask = jnp.ones((1, 3), bool)
  loss = arl.decoupled_surrogate_loss(
    jnp.array([inputs["logp"]]),
    jnp.array([inputs["prox_logp"]]),
    jnp.array([inputs["behave_logp"]]),
    jnp.array([inputs["adv"]]),
    mask,
    clip_low=inputs["clip"],
    clip_high=inputs["clip"],
    behavior_cap=cap,
    cap_mode=mode,
  )
  golden.assert_close(arl.aggregate(loss, mask), outputs[key])


def test_cispo_golden():
  inputs, outputs = golden.load("cispo_loss")

  def loss(logprobs):
    return arl.cispo_loss(
      logprobs,
      jnp.array([inputs["old_logp"]]),
      jnp.array([inputs["adv"]]),
      jnp.ones_like(logprobs, bool),
      clip_low=inputs["clip_low"],
      clip_high=inputs["clip_high"],
    )

  new = jnp.array([inputs["logp"]])
  golden.assert_close(loss(new)[0], outputs["per_token_loss_two_sided"])
  grad = jax.grad(lambda x: loss(x).sum())(new)
  golden.assert_close(grad[0], outputs["dloss_dlogp_two_sided"])


def test_sapo_golden():
  inputs, outputs = golden.load("sapo_gate")
  new, mask = jnp.log(jnp.array([inputs["ratio"]])), jnp.ones((1, 3), bool)
  for sign, key in ((1.0, "gate_pos"), (-1.0, "gate_neg")):
    loss = arl.sapo_loss(new, jnp.zeros((1, 3)), jnp.array([sign]), mask)
    golden.assert_close(loss[0], -sign * np.array(outputs[key]))


def test_retrieved_tokens_do_not_count_golden():
  inputs, outputs = golden.load("retrieved_token_masking")
  mask = jnp.array([inputs["policy_mask"]])
  values = jnp.array([inputs["per_token_loss"]])
  golden.assert_close(arl.aggregate(values, mask), outputs["token_mean"])
  loss = arl.masked_cross_entropy(-values, mask)
  golden.assert_close(loss, jnp.where(mask == 1, values, 0.0))
