import math

import jax.numpy as jnp
import numpy as np
import pytest

from arl_jax.models import rope
from arl_jax.models.rope import RopeScaling


def test_default_frequencies_are_powers_of_theta():
  frequencies, scale = rope.rope_frequencies(8, 10000.0)
  np.testing.assert_allclose(frequencies, [1.0, 0.1, 0.01, 0.001], rtol=1e-6)
  assert scale == 1.0


def test_linear_divides_every_frequency():
  scaling = RopeScaling(kind="linear", factor=4.0)
  frequencies, scale = rope.rope_frequencies(4, 100.0, scaling)
  np.testing.assert_allclose(frequencies, [0.25, 0.025], rtol=1e-6)
  assert scale == 1.0


def test_llama3_keeps_fast_stretches_slow_and_blends_between():
  # Turns within 64 positions: 10.19, 1.019, 0.1019; kept above 4, stretched
  # below 1, so the middle one keeps (1.0186 - 1) / 3 of itself.
  scaling = RopeScaling(kind="llama3", factor=8.0, original_max_position=64)
  frequencies, _ = rope.rope_frequencies(8, 10000.0, scaling)
  keep = (64 * 0.1 / (2 * math.pi) - 1.0) / 3.0
  middle = keep * 0.1 + (1 - keep) * 0.1 / 8
  np.testing.assert_allclose(
    frequencies, [1.0, middle, 0.01 / 8, 0.001 / 8], rtol=1e-6
  )


def test_yarn_ramps_over_dimensions():
  # 4096 positions, theta 10000, half 4: the ramp's ends are
  # floor(4 ln(4096 / (32 * 2 pi)) / ln 1e4) = floor(1.31) = 1 and
  # ceil(4 ln(4096 / (2 pi)) / ln 1e4) = ceil(2.81) = 3.
  scaling = RopeScaling(kind="yarn", factor=4.0, original_max_position=4096)
  frequencies, scale = rope.rope_frequencies(8, 10000.0, scaling)
  np.testing.assert_allclose(
    frequencies, [1.0, 0.1, 0.01 * (0.5 + 0.5 / 4), 0.001 / 4], rtol=1e-6
  )
  assert scale == pytest.approx(0.1 * math.log(4.0) + 1.0)


def test_yarn_attention_factor_overrides_the_derived_scale():
  scaling = RopeScaling(
    kind="yarn", factor=4.0, original_max_position=64, attention_factor=1.25
  )
  assert rope.rope_frequencies(8, 10000.0, scaling)[1] == 1.25


def test_dynamic_is_unscaled_within_the_trained_length():
  scaling = RopeScaling(kind="dynamic", factor=4.0, original_max_position=64)
  frequencies, _ = rope.rope_frequencies(8, 500.0, scaling)
  plain, _ = rope.rope_frequencies(8, 500.0)
  np.testing.assert_array_equal(frequencies, plain)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"kind": "longrope"}, "linear, llama3, yarn, dynamic"),
    ({"kind": "linear", "factor": 0.0}, "factor is 0.0"),
    ({"kind": "yarn", "factor": 2.0}, "original_max_position"),
    (
      {
        "kind": "llama3",
        "original_max_position": 64,
        "low_freq_factor": 4.0,
        "high_freq_factor": 4.0,
      },
      "high_freq_factor is 4.0",
    ),
  ],
)
def test_bad_scaling_is_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    RopeScaling(**settings)


def test_rotation_turns_halves_by_the_position():
  x = jnp.asarray([1.0, 2.0, 0.0, 0.0]).reshape(1, 1, 1, 4)
  frequencies = np.asarray([math.pi / 2, math.pi], np.float32)
  cos, sin = rope.rotations(jnp.asarray([[1]]), frequencies, 1.0)
  rotated = rope.apply_rope(x, cos, sin)
  # (1, 0) by a quarter turn is (0, 1); (2, 0) by a half turn is (-2, 0).
  np.testing.assert_allclose(
    np.asarray(rotated).ravel(), [0.0, -2.0, 1.0, 0.0], atol=1e-6
  )
