import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden

MODES = ["token_mean", "sequence_mean", "sequence_sum", "fixed_length"]


def test_modes_golden():
  inputs, outputs = golden.load("loss_aggregation")
  values, mask = jnp.array(inputs["loss"]), jnp.array(inputs["mask"])
  for mode, expected in (
    ("token_mean", outputs["token_mean"]),
    ("sequence_sum", outputs["seq_mean_token_sum"]),
    ("sequence_mean", outputs["seq_mean_token_mean"]),
    # Two rows with a live token, of four places each.
    ("fixed_length", 17.0 / (2 * 4)),
  ):
    golden.assert_close(
      arl.aggregate(values, mask, mode=mode, length=4), expected
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_parts", [2, 3])
def test_micro_batches_add_up(mode: str, num_parts: int):
  rng = np.random.default_rng(0)
  values = rng.normal(size=(6, 9)).astype(np.float32)
  lengths = np.array([1, 9, 4, 0, 7, 2])
  mask = np.arange(9) < lengths[:, None]

  def part(values, mask, normalizer):
    return arl.aggregate(
      values, mask, mode=mode, length=9, normalizer=normalizer
    )

  _, normalizer = arl.aggregate_terms(values, mask, mode=mode, length=9)
  whole, whole_grad = jax.value_and_grad(part)(values, mask, None)
  parts = [
    jax.value_and_grad(part)(v, m, normalizer)
    for v, m in zip(
      np.split(values, num_parts), np.split(mask, num_parts), strict=True
    )
  ]
  golden.assert_close(sum(value for value, _ in parts), whole)
  golden.assert_close(np.concatenate([g for _, g in parts]), whole_grad)
  terms = [
    arl.aggregate_terms(v, m, mode=mode, length=9)
    for v, m in zip(
      np.split(values, num_parts), np.split(mask, num_parts), strict=True
    )
  ]
  total = sum(n for n, _ in terms) / sum(d for _, d in terms)
  golden.assert_close(total, whole)


def test_fixed_length_needs_a_length():
  with pytest.raises(ValueError, match="length is None"):
    arl.aggregate(jnp.ones((1, 2)), jnp.ones((1, 2), bool), mode="fixed_length")
