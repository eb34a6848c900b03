import jax.numpy as jnp
import pytest

import arl_jax as arl
from tests.ops import golden


def test_calibration_error_golden():
  # Two bins: {0.1, 0.3} with mean 0.2 against 0.5, {0.5, 0.9, 1} with mean 0.8
  # against 1/3; 2/5 · 0.3 + 3/5 · 0.4666.
  p = jnp.array([0.1, 0.3, 0.5, 0.9, 1.0, jnp.nan])
  y = jnp.array([0.0, 1.0, 0.0, 0.0, 1.0, jnp.nan])
  mask = jnp.array([1, 1, 1, 1, 1, 0])
  found = arl.calibration_error(p, y, mask, num_bins=2)
  golden.assert_close(found, 0.4)
  # One bin compares the means: 0.56 and 0.4.
  golden.assert_close(arl.calibration_error(p, y, mask, num_bins=1), 0.16)
  with pytest.raises(ValueError, match="num_bins"):
    arl.calibration_error(p, y, mask, num_bins=0)


def test_brier_score_golden():
  p, y = jnp.array([[0.5, 0.25, 9.0]]), jnp.array([[1.0, 0.0, 0.0]])
  found = arl.brier_score(p, y, jnp.array([[1, 1, 0]]))
  golden.assert_close(found, (0.25 + 0.0625) / 2)


def test_a_sure_and_right_prediction_has_no_error():
  y, mask = jnp.array([0.0, 1.0, 1.0]), jnp.ones(3, bool)
  assert arl.calibration_error(y, y, mask) == arl.brier_score(y, y, mask) == 0
