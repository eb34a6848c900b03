import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


def _example():
  inputs, outputs = golden.load("rollout_correction_weights")
  new, mask = jnp.array(inputs["log_ratio"]), jnp.array(inputs["mask"])
  return (new, jnp.zeros_like(new), mask), outputs


@pytest.mark.parametrize(
  ("mode", "lower", "upper", "key"),
  [
    ("truncate", None, 2.0, "token_tis"),
    ("mask", 0.5, 2.0, "token_mis"),
    ("mask", 0.5, 5.0, "icepop"),
  ],
)
def test_token_weights_golden(mode, lower, upper, key):
  arguments, outputs = _example()
  weights = arl.token_importance_weights(
    *arguments, mode=mode, lower=lower, upper=upper
  )
  golden.assert_close(weights, outputs[key])


@pytest.mark.parametrize(
  ("reduce", "mode", "lower", "key"),
  [
    ("sum", "truncate", None, "seq_tis"),
    ("sum", "mask", 0.5, "seq_mis"),
    ("sum", "none", None, "seq_ratio"),
    ("mean", "none", None, "geo_ratio"),
  ],
)
def test_sequence_weights_golden(reduce, mode, lower, key):
  arguments, outputs = _example()
  weights = arl.sequence_importance_weights(
    *arguments, reduce=reduce, mode=mode, lower=lower, upper=2.0
  )
  expected = np.array(outputs[key])
  golden.assert_close(
    weights, expected if expected.ndim == 1 else expected[:, 0]
  )


def test_keep_masks_golden():
  arguments, outputs = _example()
  geometric = arl.sequence_keep_mask(*arguments, lower=0.99, upper=1.15)
  np.testing.assert_array_equal(geometric, outputs["geo_keep_0p99_1p15"])
  k3 = arl.sequence_keep_mask(*arguments, metric="k3", upper=0.1)
  np.testing.assert_array_equal(k3, outputs["k3_keep_0p1"])
  # The largest ratios of the rows are e^0.5, e^1.0 and e^0.02.
  highest = arl.sequence_keep_mask(*arguments, metric="max_ratio", upper=2.0)
  np.testing.assert_array_equal(highest, [True, False, True])


def test_effective_sample_size_golden():
  arguments, outputs = _example()
  weights = arl.token_importance_weights(*arguments)
  actual = arl.effective_sample_size(weights, arguments[2])
  golden.assert_close(actual, outputs["ess_token"])
  assert arl.effective_sample_size(jnp.full(5, 3.0), jnp.ones(5, bool)) == 1.0


def test_bounds_are_on_the_ratio_itself_golden():
  inputs, outputs = golden.load("rollout_rs_bound_direction")
  new = jnp.array([inputs["log_ratio"]])
  old, mask = jnp.zeros_like(new), jnp.ones_like(new, bool)
  raw = arl.token_importance_weights(new, old, mask, mode="none")
  golden.assert_close(raw[0, 0], outputs["true_ratio"])
  banded = arl.token_importance_weights(
    new, old, mask, mode="mask", lower=0.25, upper=2.0
  )
  assert bool(banded[0, 0] > 0) == outputs["ratio_band_keeps"]


def test_interpolation_by_age():
  # 1 / age of the way from the current policy back to the one that sampled.
  new = jnp.array([[-1.0, -1.0, -1.0, -1.0, -0.5]])
  old = jnp.array([[-2.0, -2.0, -2.0, -2.0, jnp.nan]])
  ages, mask = jnp.array([[0, 1, 2, 4, 3]]), jnp.ones((1, 5), bool)
  actual = arl.interpolated_logprobs(new, old, ages, mask)
  golden.assert_close(actual, [[-2.0, -2.0, -1.5, -1.25, -0.5]])
  for position in (0, 1):
    grad = jax.grad(
      lambda a, b: arl.interpolated_logprobs(a, b, ages, mask).sum(),
      argnums=position,
    )(new, old)
    np.testing.assert_array_equal(grad, np.zeros((1, 5)))


def test_interpolation_lies_between_and_tames_the_ratio():
  rng = np.random.default_rng(0)
  new, old = -rng.exponential(size=(2, 4, 6)).astype(np.float32)
  ages, mask = rng.integers(0, 9, (4, 6)), np.ones((4, 6), bool)
  actual = arl.interpolated_logprobs(new, old, ages, mask)
  assert (actual >= np.minimum(new, old) - 1e-6).all()
  assert (actual <= np.maximum(new, old) + 1e-6).all()
  golden.assert_close(new - actual, (new - old) / np.maximum(ages, 1), 1e-4)


def test_the_same_policy_leaves_samples_as_they_are():
  logprobs, mask = jnp.full((2, 3), -1.3), jnp.ones((2, 3), bool)
  for mode in ("truncate", "mask", "clamp", "none"):
    weights = arl.token_importance_weights(
      logprobs, logprobs, mask, mode=mode, lower=0.9, upper=1.1
    )
    np.testing.assert_array_equal(weights, np.ones((2, 3)))


def test_clamp_bounds_both_sides():
  new = jnp.log(jnp.array([[0.1, 1.0, 9.0]]))
  weights = arl.token_importance_weights(
    new,
    jnp.zeros((1, 3)),
    jnp.ones((1, 3), bool),
    mode="clamp",
    lower=0.5,
    upper=2.0,
  )
  golden.assert_close(weights, [[0.5, 1.0, 2.0]])


def test_weights_carry_no_gradient():
  new, old, mask = (
    jnp.full((1, 2), -1.0),
    jnp.full((1, 2), -1.2),
    jnp.ones((1, 2), bool),
  )
  for function in (
    arl.token_importance_weights,
    arl.sequence_importance_weights,
  ):
    grads = jax.grad(
      lambda x, y, f=function: f(x, y, mask).sum(), argnums=(0, 1)
    )(new, old)
    for grad in grads:
      np.testing.assert_array_equal(grad, np.zeros((1, 2)))
