"""A packed micro-batch trains exactly as its rows do on their own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.bridge import pieces
from arl_jax.learner import sharding
from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.state import ModelFns, init_state, state_shardings
from arl_jax.learner.surrogates import (
  AGGREGATIONS,
  IMPORTANCE_LEVELS,
  SURROGATES,
  LossConfig,
)
from arl_jax.learner.update import make_update_fns, update
from arl_jax.models import transformer

MODEL = transformer.ModelConfig(
  vocab_size=16,
  num_layers=2,
  model_dim=8,
  num_heads=4,
  num_kv_heads=2,
  head_dim=4,
  mlp_dim=16,
  tie_embeddings=True,
)
LOSSES = [
  *({"surrogate": name} for name in sorted(SURROGATES)),
  *({"aggregation": name, "length": 12} for name in sorted(AGGREGATIONS)),
  *(
    {"importance": "clamp", "importance_level": name, "importance_lower": 0.5}
    for name in sorted(IMPORTANCE_LEVELS)
  ),
  {"surrogate": "decoupled", "proximal": "interpolated"},
  {"kl_weight": 0.1, "entropy_weight": 0.01, "logprob_chunk": None},
]


def gradients(batch, *, fields, **how):
  """Loss and new weights of one step of plain gradient descent."""
  mesh = sharding.make_mesh(sharding.MeshConfig(), jax.devices()[:1])
  params = transformer.init_params(jax.random.key(0), MODEL)
  places = sharding.param_shardings(mesh, transformer.param_specs(MODEL))
  optimizer = optax.sgd(1.0)
  model = ModelFns(
    functools.partial(transformer.forward, config=MODEL),
    functools.partial(transformer.unembedding, config=MODEL, transposed=True),
    transposed=True,
  )
  loss = LossConfig(**{"logprob_chunk": 4, **fields})
  fns = make_update_fns(
    model,
    loss,
    optimizer,
    shardings=state_shardings(params, optimizer, shardings=places),
  )
  rng = np.random.default_rng(1)
  advantages = rng.normal(size=batch.tokens.shape)
  per_token = {"advantages": advantages.astype(np.float32)}
  if loss.needs_ages:
    ages = rng.integers(0, 5, batch.tokens.shape)
    per_token["ages"] = ages.astype(np.float32)
  micros = [
    MicroBatch(
      piece.batch,
      packing=piece.packing,
      scored=None
      if piece.packing
      else pieces.scored_columns(piece.batch.action_mask),
      **piece.per_token,
    )
    for piece in pieces.micro_batches(
      batch,
      np.arange(len(batch.tokens)),
      per_token=per_token,
      **how,
    )
  ]
  state = init_state(params, optimizer, shardings=places)
  reference = jax.tree.map(lambda a: a * 1.1, params)
  state, metrics = update(state, micros, fns=fns, ref_params=reference)
  return metrics, jax.device_get(state.params), micros


@pytest.mark.parametrize("fields", LOSSES, ids=lambda f: "-".join(map(str, f)))
def test_packed_rows_give_the_same_losses_and_gradients(make_batch, fields):
  batch = make_batch(num_rows=8)
  alone, expected, _ = gradients(batch, fields=fields, micro_batch_rows=8)
  packed, found, micros = gradients(
    batch,
    fields=fields,
    micro_batch_rows=2,
    packed_lengths=(16, 24),
    rows_per_pack=3,
  )
  packings = [micro.packing for micro in micros if micro.packing is not None]
  assert len(packings) == len(micros)
  # Some rows did share one.
  assert max(np.asarray(p.segment_ids).max() for p in packings) > 1
  for name, value in alone.items():
    np.testing.assert_allclose(packed[name], value, rtol=2e-4, atol=2e-5)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
    found,
    expected,
  )


def test_a_packed_row_has_the_log_probs_of_its_rows(make_batch):
  batch = make_batch(num_rows=6)
  (piece,) = pieces.micro_batches(
    batch,
    np.arange(6),
    micro_batch_rows=4,
    packed_lengths=(32,),
    rows_per_pack=4,
  )
  params = transformer.init_params(jax.random.key(0), MODEL)
  run = functools.partial(transformer.forward, params, config=MODEL)
  alone = run(
    *map(jnp.asarray, (batch.tokens, batch.positions, batch.segment_ids))
  )
  packing = piece.packing
  assert packing is not None
  packed = run(*map(jnp.asarray, packing[:3])).reshape(-1, MODEL.model_dim)
  for row, b in enumerate(piece.rows):
    n = int((batch.segment_ids[b] > 0).sum())
    places = np.asarray(packing.index)[row, :n]
    np.testing.assert_allclose(packed[places], alone[b, :n], atol=1e-5)
