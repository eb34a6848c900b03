import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.learner import sharding
from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.state import ModelFns, init_state, state_shardings
from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import make_update_fns, update
from arl_jax.models import transformer

SGD = optax.sgd(1.0)


def take(batch, rows):
  return jax.tree.map(lambda x: x[rows], batch)


def copied(state):
  return jax.tree.map(jnp.copy, state)


def normal(batch, seed=1):
  rng = np.random.default_rng(seed)
  return rng.normal(size=batch.tokens.shape).astype(np.float32)


def widen(x, num_tokens, fill):
  width = ((0, 0), (0, num_tokens - x.shape[1]))
  return np.pad(x, width, constant_values=fill)


def on_rows(batch, function):
  """Maps the `[B, T]` fields of a batch."""
  return batch.replace(
    **{
      field.name: function(field.name, getattr(batch, field.name))
      for field in dataclasses.fields(batch)
      if getattr(batch, field.name).shape == batch.tokens.shape
    }
  )


@pytest.mark.parametrize(
  "loss",
  [
    LossConfig(),
    LossConfig(aggregation="sequence_mean", surrogate="gspo"),
    LossConfig(aggregation="fixed_length", length=12, entropy_weight=0.1),
    LossConfig(importance="mask", importance_lower=0.5),
    LossConfig(surrogate="decoupled", proximal="interpolated"),
  ],
)
def test_micro_batches_add_up_to_the_whole(make_learner, make_batch, loss):
  batch = make_batch()
  advantages = normal(batch)
  ages = (np.indices(batch.tokens.shape).sum(axis=0) % 4).astype(np.float32)
  initial, fns = make_learner(loss, SGD)
  results = []
  for size in (8, 4, 2):
    parts = [slice(start, start + size) for start in range(0, 8, size)]
    micros = [
      MicroBatch(take(batch, rows), advantages[rows], ages=ages[rows])
      for rows in parts
    ]
    state, metrics = update(copied(initial), micros, fns=fns)
    results.append((state.params, metrics))
  for params, metrics in results[1:]:
    chex.assert_trees_all_close(params, results[0][0], rtol=1e-5, atol=1e-6)
    for name, value in metrics.items():
      assert value == pytest.approx(results[0][1][name], rel=1e-4, abs=1e-6)


def test_token_mean_is_not_a_mean_of_means(make_learner, make_batch):
  # Row 0 has one action token and row 1 has three: every token weighs 1/4.
  batch = take(make_batch(num_tokens=8), slice(0, 2))
  turn_ids = np.full((2, 8), -1, np.int32)
  turn_ids[0, 3], turn_ids[1, 2:5] = 0, 0
  batch = batch.replace(turn_ids=turn_ids, action_mask=turn_ids >= 0)
  state, fns = make_learner(LossConfig(surrogate="cross_entropy"), SGD)
  scores = fns.logprobs(state.params, batch)
  expected = -float(scores.sum()) / 4
  micros = [(take(batch, slice(0, 1)),), (take(batch, slice(1, 2)),)]
  _, metrics = update(state, micros, fns=fns)
  assert metrics["loss"] == pytest.approx(expected, rel=1e-6)
  assert metrics["tokens"] == 4


@pytest.mark.parametrize(
  "aggregation", ["token_mean", "sequence_mean", "fixed_length"]
)
def test_padding_and_rejected_rows_change_nothing(
  make_learner, make_batch, aggregation
):
  batch = make_batch(num_rows=4)
  advantages = normal(batch)
  loss = LossConfig(aggregation=aggregation, length=10)
  state, fns = make_learner(loss, SGD)
  expected, metrics = update(copied(state), [(batch, advantages)], fns=fns)

  fills = {"turn_ids": -1, "policy_versions": -1}
  wide = on_rows(batch, lambda name, x: widen(x, 32, fills.get(name, 0)))
  rejected = make_batch(num_rows=2, num_tokens=32, seed=5)
  rejected = rejected.replace(row_mask=np.zeros(2, bool))
  wide = jax.tree.map(lambda *x: np.concatenate(x), wide, rejected)
  wide_advantages = np.full((6, 32), 1e3, np.float32)
  wide_advantages[:4, :16] = advantages
  found, wide_metrics = update(state, [(wide, wide_advantages)], fns=fns)
  chex.assert_trees_all_close(
    found.params, expected.params, rtol=1e-5, atol=1e-6
  )
  assert wide_metrics == pytest.approx(metrics, rel=1e-4, abs=1e-6)


def test_fully_masked_batch_gives_exact_zeros(make_learner, make_batch):
  batch = make_batch(num_rows=2)
  batch = batch.replace(
    action_mask=np.zeros_like(batch.action_mask),
    turn_ids=np.full_like(batch.turn_ids, -1),
  )
  loss = LossConfig(kl_weight=0.5, entropy_weight=0.1, importance="truncate")
  state, fns = make_learner(loss, SGD)
  before = jax.device_get(state.params)
  state, metrics = update(
    state, [(batch, normal(batch))], fns=fns, ref_params=before
  )
  assert metrics["loss"] == 0.0
  assert metrics["grad_norm"] == 0.0
  assert metrics["skipped_updates"] == 0.0
  assert all(np.isfinite(value) for value in metrics.values())
  chex.assert_trees_all_equal(state.params, before)


def test_supervised_learning_raises_the_likelihood(make_learner, make_batch):
  batch = make_batch()
  loss = LossConfig(surrogate="cross_entropy")
  state, fns = make_learner(loss, optax.adam(0.1))
  losses = []
  for _ in range(8):
    state, metrics = update(state, [MicroBatch(batch)], fns=fns)
    losses.append(metrics["loss"])
  assert losses[-1] < 0.7 * losses[0]
  assert set(metrics) == {
    "loss",
    "tokens",
    "entropy",
    "grad_norm",
    "skipped_updates",
  }


def test_gradient_that_is_not_finite_is_skipped(make_learner, make_batch):
  batch = make_batch()
  state, fns = make_learner(LossConfig(), optax.adam(0.1))
  state, _ = update(state, [(batch, normal(batch))], fns=fns)
  before = jax.device_get(state)
  advantages = normal(batch)
  advantages[batch.action_mask] = np.inf
  state, metrics = update(state, [(batch, advantages)], fns=fns)
  assert metrics["skipped_updates"] == 1
  assert not np.isfinite(metrics["grad_norm"])
  chex.assert_trees_all_equal(jax.device_get(state), before)
  state, metrics = update(state, [(batch, normal(batch))], fns=fns)
  assert metrics["skipped_updates"] == 0
  assert int(state.step) == 2


def test_compiles_once_per_shape(make_learner, make_batch, counted_model):
  model, traces = counted_model
  state, fns = make_learner(LossConfig(), optax.adam(0.1), model=model)
  long, short = make_batch(4), make_batch(6, num_tokens=20)
  for _ in range(3):
    micros = [(long, normal(long)), (short, normal(short))]
    state, _ = update(state, micros, fns=fns)
  assert sorted(traces) == [(4, 16), (6, 20)]
  assert fns.gradient._cache_size() == 2
  assert fns.apply._cache_size() == 1
  assert fns.zeros._cache_size() == 1


def test_mistakes_are_named(make_learner, make_batch):
  batch = make_batch()
  state, fns = make_learner(LossConfig(kl_weight=0.1), SGD)
  with pytest.raises(ValueError, match="microbatches is empty"):
    update(state, [], fns=fns)
  with pytest.raises(ValueError, match="ref_params is None"):
    update(state, [(batch, normal(batch))], fns=fns)


MODEL = transformer.ModelConfig(
  vocab_size=16,
  num_layers=2,
  model_dim=8,
  num_heads=4,
  num_kv_heads=2,
  head_dim=4,
  mlp_dim=16,
)


def train_transformer(make_batch, mesh_config, num_devices):
  mesh = sharding.make_mesh(mesh_config, jax.devices()[:num_devices])
  params = transformer.init_params(jax.random.key(0), MODEL)
  places = sharding.param_shardings(mesh, transformer.param_specs(MODEL))
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
  model = ModelFns(
    lambda p, t, pos, seg: sharding.constrain_rows(
      mesh, transformer.forward(p, t, pos, seg, config=MODEL)
    ),
    lambda p: transformer.unembedding(p, MODEL),
  )
  fns = make_update_fns(
    model,
    LossConfig(logprob_chunk=8),
    optimizer,
    shardings=state_shardings(params, optimizer, shardings=places),
  )
  state = init_state(params, optimizer, shardings=places)
  batch = make_batch(num_rows=4)
  micro = (
    sharding.shard_batch(mesh, batch),
    sharding.shard_batch(mesh, normal(batch)),
  )
  losses = []
  for _ in range(3):
    state, metrics = update(state, [micro], fns=fns)
    losses.append([metrics["loss"], metrics["grad_norm"]])
  assert fns.gradient._cache_size() == 1
  assert fns.apply._cache_size() == 1
  return np.asarray(losses), jax.device_get(state.params)


@pytest.fixture(scope="module")
def one_device(make_batch):
  return train_transformer(make_batch, sharding.MeshConfig(), 1)


@pytest.mark.parametrize(
  "mesh_config",
  [
    sharding.MeshConfig(data=1, fsdp=2, tensor=2),
    sharding.MeshConfig(data=2, seq=2),
  ],
)
def test_four_devices_equal_one(make_batch, one_device, capfd, mesh_config):
  one, params = one_device
  four, sharded = train_transformer(make_batch, mesh_config, 4)
  np.testing.assert_allclose(four, one, rtol=2e-5, atol=1e-6)
  # Adam divides by a gradient's own size, so rounding shows more in weights.
  chex.assert_trees_all_close(sharded, params, rtol=1e-3, atol=1e-4)
  assert "Involuntary full rematerialization" not in capfd.readouterr().err
