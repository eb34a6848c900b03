from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.learner.optimizer import (
  OptimizerConfig,
  make_optimizer,
  make_schedule,
  matrix_mask,
)


def step_once(config, params, gradients) -> Any:
  optimizer = make_optimizer(config)
  updates, _ = optimizer.update(gradients, optimizer.init(params), params)
  return updates


def stacked_params():
  keys = iter(jax.random.split(jax.random.key(0), 4))
  return {
    "embed": jax.random.normal(next(keys), (6, 4)),
    "layers": {
      "attn_norm": jax.random.normal(next(keys), (2, 4)),
      "wq": jax.random.normal(next(keys), (2, 4, 6)),
    },
    "final_norm": jax.random.normal(next(keys), (4,)),
  }


@pytest.mark.parametrize(
  ("schedule", "expected"),
  [
    ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ("linear", [0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2]),
    ("cosine", [0.5, 1.0, 1.0, 0.8828427, 0.6, 0.3171573, 0.2]),
  ],
)
def test_schedule_rises_then_decays(schedule, expected):
  config = OptimizerConfig(
    learning_rate=2.0,
    schedule=schedule,
    warmup_steps=2,
    total_steps=6,
    final_fraction=0.2,
  )
  values = make_schedule(config)(jnp.arange(7.0))
  np.testing.assert_allclose(values, 2 * np.array(expected), rtol=1e-6)


def test_matrices_are_told_from_stacked_norms():
  assert matrix_mask(stacked_params()) == {
    "embed": True,
    "layers": {"attn_norm": False, "wq": True},
    "final_norm": False,
  }


def test_muon_orthogonalises_every_layer_on_its_own():
  params = stacked_params()
  gradients = jax.tree.map(lambda p: p + 1.0, params)
  config = OptimizerConfig(name="muon", learning_rate=0.1, clip_norm=0.0)
  updates = step_once(config, params, gradients)
  for layer in range(2):
    expected: Any
    alone = optax.contrib.muon(0.1).init({"w": params["layers"]["wq"][layer]})
    expected, _ = optax.contrib.muon(0.1).update(
      {"w": gradients["layers"]["wq"][layer]},
      alone,
      {"w": params["layers"]["wq"][layer]},
    )
    np.testing.assert_allclose(
      updates["layers"]["wq"][layer], expected["w"], rtol=1e-4, atol=1e-6
    )
  # Near-orthogonal: all singular values within the iteration's band, times
  # the width factor sqrt(6 / 4).
  values = jnp.linalg.svd(updates["layers"]["wq"] / 0.1, compute_uv=False)
  assert jnp.all((values > 0.6 * 1.5**0.5) & (values < 1.3 * 1.5**0.5))


def test_muon_leaves_norms_to_adam():
  params = stacked_params()
  gradients = jax.tree.map(lambda p: p + 1.0, params)
  config = OptimizerConfig(name="muon", learning_rate=0.1, clip_norm=0.0)

  def norms(tree):
    return tree["layers"]["attn_norm"], tree["final_norm"]

  adam = optax.adamw(0.1, b1=0.9, b2=0.95, nesterov=True, weight_decay=0.0)
  kept = norms(params)
  expected, _ = adam.update(norms(gradients), adam.init(kept), kept)
  found = norms(step_once(config, params, gradients))
  chex.assert_trees_all_close(found, expected, rtol=1e-5)


def test_weight_decay_spares_norms():
  params = stacked_params()
  zeros = jax.tree.map(jnp.zeros_like, params)
  for name in ("adamw", "sgd", "muon"):
    config = OptimizerConfig(name=name, learning_rate=0.1, weight_decay=0.5)
    updates = step_once(config, params, zeros)
    np.testing.assert_array_equal(updates["layers"]["attn_norm"], 0.0)
    np.testing.assert_allclose(
      updates["embed"], -0.05 * params["embed"], rtol=1e-5
    )


def test_gradient_is_clipped_by_its_global_norm():
  params = {"a": jnp.zeros(1), "b": jnp.zeros(1)}
  gradients = {"a": jnp.array([30.0]), "b": jnp.array([40.0])}
  config = OptimizerConfig(name="sgd", learning_rate=1.0, clip_norm=5.0)
  updates = step_once(config, params, gradients)
  chex.assert_trees_all_close(
    updates, {"a": jnp.array([-3.0]), "b": jnp.array([-4.0])}
  )
  unclipped = OptimizerConfig(name="sgd", learning_rate=1.0, clip_norm=0.0)
  updates = step_once(unclipped, params, gradients)
  np.testing.assert_allclose(updates["b"], [-40.0])


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"name": "adam"}, "optimizer name is 'adam'"),
    ({"schedule": "step"}, "schedule is 'step'"),
  ],
)
def test_mistakes_are_named(fields, message):
  with pytest.raises(ValueError, match=message):
    OptimizerConfig(**fields)


@pytest.mark.parametrize(("total", "warmup"), [(0, 0), (2, 3), (3, 3)])
def test_a_decay_over_no_steps_is_refused_where_it_is_used(total, warmup):
  # A section for updates that never run may say so; a schedule may not.
  config = OptimizerConfig(
    schedule="linear", total_steps=total, warmup_steps=warmup
  )
  found = f"above warmup_steps; found {total} and {warmup}"
  with pytest.raises(ValueError, match=found):
    make_schedule(config)
