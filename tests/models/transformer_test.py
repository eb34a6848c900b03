"""The transformer: padding, packing, recomputation and gradients."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arl_jax.models import transformer

CONFIG = transformer.ModelConfig(
  vocab_size=37,
  num_layers=2,
  model_dim=16,
  num_heads=4,
  num_kv_heads=2,
  head_dim=6,
  mlp_dim=24,
)

_forward: Any = jax.jit(transformer.forward, static_argnames="config")


def rows(seed, num_rows, length) -> tuple[Any, Any, Any]:
  tokens = np.random.default_rng(seed).integers(0, 37, (num_rows, length))
  positions = np.broadcast_to(np.arange(length), tokens.shape)
  return tokens.astype(np.int32), positions, np.ones_like(tokens)


@pytest.fixture(scope="module")
def params():
  return transformer.init_params(jax.random.key(1), CONFIG)


def test_shapes_follow_the_specs():
  config = dataclasses.replace(
    CONFIG, tie_embeddings=True, qkv_bias=True, qk_norm=True, mlp_bias=True
  )
  drawn = transformer.init_params(jax.random.key(0), config)
  specs = transformer.param_specs(config)
  chex.assert_trees_all_equal_structs(
    drawn,
    jax.tree.map(
      lambda s: 0, specs, is_leaf=lambda x: isinstance(x, transformer.ParamSpec)
    ),
  )
  assert drawn["layers"]["wq"].shape == (2, 16, 24)
  assert transformer.unembedding(drawn, config).shape == (16, 37)
  assert "unembed" not in drawn


def test_padding_on_either_side_changes_nothing(params):
  tokens, positions, segments = rows(0, 1, 9)
  plain = _forward(params, tokens, positions, segments, config=CONFIG)
  for left, right in ((0, 7), (7, 0), (3, 4)):
    pad = [(0, 0), (left, right)]
    padded = _forward(
      params,
      np.pad(tokens, pad, constant_values=5),
      np.pad(positions, pad),
      np.pad(segments, pad),
      config=CONFIG,
    )
    np.testing.assert_allclose(
      padded[:, left : left + 9], plain, atol=2e-6, err_msg=f"{left} {right}"
    )


def test_packed_rows_equal_rows_of_their_own(params):
  first, second = rows(1, 1, 5)[0], rows(2, 1, 8)[0]
  packed = _forward(
    params,
    np.concatenate([first, second, np.zeros((1, 3), np.int32)], axis=1),
    np.array([[*range(5), *range(8), 0, 0, 0]]),
    np.array([[1] * 5 + [2] * 8 + [0] * 3]),
    config=CONFIG,
  )
  for tokens, start in ((first, 0), (second, 5)):
    length = tokens.shape[1]
    alone = _forward(
      params,
      tokens,
      np.arange(length)[None],
      np.ones_like(tokens),
      config=CONFIG,
    )
    np.testing.assert_allclose(
      packed[:, start : start + length], alone, atol=2e-6
    )


def test_no_token_sees_a_later_one(params):
  tokens, positions, segments = rows(3, 1, 8)
  changed = tokens.copy()
  changed[0, 5] = (changed[0, 5] + 1) % 37
  before = _forward(params, tokens, positions, segments, config=CONFIG)
  after = _forward(params, changed, positions, segments, config=CONFIG)
  np.testing.assert_array_equal(before[:, :5], after[:, :5])
  assert np.abs(before[:, 5:] - after[:, 5:]).max() > 1e-3


@pytest.mark.parametrize(
  "change", [{"remat": "full"}, {"remat": "dots"}, {"scan_unroll": 2}]
)
def test_recomputing_and_unrolling_change_no_value(params, change):
  tokens, positions, segments = rows(4, 2, 6)

  def loss(params, config):
    hidden = transformer.forward(
      params, tokens, positions, segments, config=config
    )
    return jnp.sum(hidden[..., 0] ** 2)

  other = dataclasses.replace(CONFIG, **change)
  grad = jax.jit(jax.value_and_grad(loss), static_argnums=1)
  chex.assert_trees_all_close(
    grad(params, CONFIG), grad(params, other), rtol=1e-5, atol=1e-6
  )


def test_an_empty_row_is_finite(params):
  tokens, positions, segments = rows(5, 2, 4)
  segments = segments * 0
  grads = jax.grad(
    lambda p: jnp.sum(
      transformer.forward(p, tokens, positions, segments, config=CONFIG)
    )
  )(params)
  chex.assert_tree_all_finite(grads)


def test_bfloat16_keeps_norms_in_float32(params):
  tokens, positions, segments = rows(6, 1, 6)
  config = dataclasses.replace(CONFIG, dtype="bfloat16")
  low = _forward(params, tokens, positions, segments, config=config)
  high = _forward(params, tokens, positions, segments, config=CONFIG)
  assert low.dtype == jnp.bfloat16
  np.testing.assert_allclose(low.astype(np.float32), high, atol=0.15)


@pytest.mark.parametrize(
  ("change", "named"),
  [
    ({"num_kv_heads": 3}, "num_kv_heads"),
    ({"num_kv_heads": 0}, "num_kv_heads is 0; expected 1 or more"),
    ({"num_layers": -1}, "num_layers is -1; expected 1 or more"),
    ({"vocab_size": 0}, "vocab_size is 0; expected 1 or more"),
    ({"scan_unroll": 0}, "scan_unroll is 0; expected 1 or more"),
    ({"head_dim": 5}, "head_dim"),
    ({"remat": "some"}, "remat"),
    ({"num_frozen_layers": 3}, "num_frozen_layers"),
  ],
)
def test_impossible_shapes_name_the_field(change, named):
  with pytest.raises(ValueError, match=named):
    dataclasses.replace(CONFIG, **change)


def test_frozen_layers_get_no_gradient_and_change_no_value(params):
  tokens, positions, segments = rows(7, 2, 6)

  def loss(params, config):
    hidden = transformer.forward(
      params, tokens, positions, segments, config=config
    )
    return jnp.sum(hidden @ transformer.unembedding(params, config))

  frozen = dataclasses.replace(CONFIG, num_frozen_layers=1)
  plain_value, plain = jax.value_and_grad(loss)(params, CONFIG)
  value, grads = jax.value_and_grad(loss)(params, frozen)
  np.testing.assert_allclose(value, plain_value, rtol=1e-5)
  for name, grad in grads["layers"].items():
    np.testing.assert_array_equal(grad[0], 0.0, err_msg=name)
    np.testing.assert_allclose(
      grad[1], plain["layers"][name][1], rtol=1e-4, atol=1e-6
    )
  np.testing.assert_array_equal(grads["embed"], 0.0)
