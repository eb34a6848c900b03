"""What is published survives the learner's donation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from arl_jax.bridge import weights
from arl_jax.learner import sharding
from arl_jax.models import transformer
from arl_jax.models.transformer import ModelConfig

MODEL = ModelConfig(
  vocab_size=8,
  num_layers=3,
  model_dim=4,
  num_heads=2,
  num_kv_heads=1,
  head_dim=2,
  mlp_dim=8,
)


def make_params():
  return transformer.init_params(jax.random.key(0), MODEL)


def test_both_copies_outlive_the_original():
  params = make_params()
  expected = jax.tree.map(np.array, params)
  published = weights.make_publish(MODEL)(params)
  copied = weights.make_copy()(params)
  donate = jax.jit(lambda p: jax.tree.map(lambda a: a + 1, p), donate_argnums=0)
  donate(params)
  assert params["layers"]["w_gate"].is_deleted()
  jax.tree.map(np.testing.assert_array_equal, copied, expected)
  for name in ("embed", "unembed", "final_norm"):
    np.testing.assert_array_equal(published[name], expected[name])


def test_what_is_published_has_a_tree_for_each_layer():
  params = make_params()
  layers = weights.make_publish(MODEL)(params)["layers"]
  assert len(layers) == MODEL.num_layers
  for name, stacked in params["layers"].items():
    for i, layer in enumerate(layers):
      np.testing.assert_array_equal(layer[name], stacked[i])


def test_what_is_published_is_cast():
  model = dataclasses.replace(MODEL, dtype="bfloat16")
  published = weights.make_publish(model)(make_params())
  assert {a.dtype for a in jax.tree.leaves(published)} == {
    jnp.dtype(jnp.bfloat16)
  }


def test_what_is_published_lives_where_the_weights_do():
  mesh = sharding.make_mesh(
    sharding.MeshConfig(data=1, fsdp=2, tensor=2), jax.devices()[:4]
  )
  places = sharding.param_shardings(mesh, transformer.param_specs(MODEL))
  published = weights.make_publish(MODEL, places)(make_params())
  assert published["embed"].sharding == places["embed"]
  stacked = places["layers"]["w_gate"]
  assert stacked.shard_shape((3, 4, 8)) == (3, 2, 4)
  for layer in published["layers"]:
    assert layer["w_gate"].sharding.shard_shape((4, 8)) == (2, 4)
    assert layer["w_gate"].sharding.mesh == mesh
