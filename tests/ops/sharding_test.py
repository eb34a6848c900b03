"""Rows spread over four devices give what one device gives."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import cases
from tests.ops.cases import Case

NUM_DEVICES = 4


@pytest.fixture(scope="module")
def mesh():
  return jax.make_mesh(
    (NUM_DEVICES,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,)
  )


def _spread(mesh, array: np.ndarray, layout: str) -> jax.Array:
  """Cuts the axis B over the devices."""
  axes = ("rows" if axis == "B" else None for axis in layout)
  return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_four_devices_equal_one(mesh, case: Case):
  layouts = {**case.layouts, "row_mask": "B"}
  halves = [cases.arrays(case, seed) for seed in (0, 1)]
  given = {
    name: np.concatenate([half[name] for half in halves], layout.index("B"))
    for name, layout in layouts.items()
  }
  spread = {
    name: _spread(mesh, array, layouts[name]) for name, array in given.items()
  }
  compute = jax.jit(case.__call__)
  expected, actual = compute(given), compute(spread)
  for one, four in zip(expected, actual, strict=True):
    assert len(four.sharding.device_set) == NUM_DEVICES
    np.testing.assert_allclose(four, one, rtol=2e-5, atol=2e-6)


def test_chunked_scores_stay_where_their_rows_are(mesh):
  rng = np.random.default_rng(0)
  hidden = rng.normal(size=(8, 7, 4)).astype(np.float32)
  unembedding = rng.normal(size=(4, 9)).astype(np.float32)
  tokens = rng.integers(0, 9, (8, 7)).astype(np.int32)

  @jax.jit
  def compute(hidden, unembedding, tokens):
    def loss(hidden, unembedding):
      logprobs, entropies = arl.chunked_token_logprobs(
        hidden, unembedding, tokens, chunk_size=2
      )
      return jnp.sum(logprobs + 0.1 * entropies), (logprobs, entropies)

    return jax.grad(loss, argnums=(0, 1), has_aux=True)(hidden, unembedding)

  expected = compute(hidden, unembedding, tokens)
  actual = compute(
    _spread(mesh, hidden, "BTD"),
    _spread(mesh, unembedding, "DV"),
    _spread(mesh, tokens, "BT"),
  )
  jax.tree.map(
    lambda one, four: np.testing.assert_allclose(
      four, one, rtol=2e-5, atol=2e-6
    ),
    expected,
    actual,
  )
  (hidden_grad, _), scores = actual
  for array in (hidden_grad, *scores):
    assert array.addressable_shards[0].data.shape[0] == 8 // NUM_DEVICES
