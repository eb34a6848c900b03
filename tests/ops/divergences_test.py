import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


def test_values_golden():
  inputs, outputs = golden.load("kl_estimators_values")
  pair = jnp.array(inputs["logp"]), jnp.array(inputs["ref_logp"])
  for name in ("k1", "k2", "k3"):
    actual = getattr(arl, f"kl_{name}")(*pair)
    golden.assert_close(actual, outputs[name])


def test_the_gradient_of_each_estimator_golden():
  inputs, outputs = golden.load("kl_gradient_caveats")
  reference = jnp.log(jnp.array(inputs["ref_probs"]))
  theta = jnp.array(inputs["theta"])
  probs = jax.nn.softmax(theta)

  def expected_loss(theta, estimator):
    logprobs = jax.nn.log_softmax(theta)[None]
    loss = arl.kl_penalty_loss(
      logprobs,
      reference[None],
      jnp.log(probs)[None],
      jnp.ones((1, 3), bool),
      estimator=estimator,
    )
    return jnp.sum(probs * loss[0])

  for estimator, key in (
    ("k2", "true_grad_reverse_KL"),
    ("k3", "grad_forward_KL_ref_pi"),
    ("k3_unbiased", "true_grad_reverse_KL"),
  ):
    grad = jax.grad(expected_loss)(theta, estimator)
    golden.assert_close(grad, outputs[key])


@pytest.mark.parametrize("estimator", ["k2", "k3", "k3_unbiased"])
def test_a_step_on_the_penalty_lowers_the_divergence(estimator: str):
  reference = jnp.log(jnp.array([0.5, 0.3, 0.2]))
  theta = jnp.array([0.2, -0.3, 0.5])

  def divergence(theta):
    logprobs = jax.nn.log_softmax(theta)
    return jnp.sum(jnp.exp(logprobs) * (logprobs - reference))

  def penalty(theta, probs):
    logprobs = jax.nn.log_softmax(theta)[None]
    loss = arl.kl_penalty_loss(
      logprobs,
      reference[None],
      jnp.log(probs)[None],
      jnp.ones((1, 3), bool),
      estimator=estimator,
    )
    return jnp.sum(probs * loss[0])

  moved = theta - 0.1 * jax.grad(penalty)(theta, jax.nn.softmax(theta))
  assert divergence(moved) < divergence(theta)


def test_a_policy_far_below_the_reference_is_not_pushed_further():
  grad = jax.grad(lambda x: arl.kl_k3(x, jnp.zeros(1)).sum())
  assert grad(jnp.array([-50.0]))[0] <= 0.0
  assert grad(jnp.array([50.0]))[0] > 0.0
  assert np.isfinite(arl.kl_k3(jnp.array([-1e4, 1e4]), jnp.zeros(2))).all()
