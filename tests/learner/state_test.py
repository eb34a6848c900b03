import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arl_jax.learner import sharding
from arl_jax.learner.optimizer import OptimizerConfig, make_optimizer
from arl_jax.learner.state import abstract_state, init_state

AXES = {
  "embed": ("vocab", "embed"),
  "layers": {"wq": ("layers", "embed", "heads")},
}


def toy(mesh):
  params = {"embed": jnp.ones((6, 4)), "layers": {"wq": jnp.ones((2, 4, 6))}}
  places = {
    "embed": sharding.sharding_for(mesh, AXES["embed"], (6, 4)),
    "layers": {
      "wq": sharding.sharding_for(mesh, AXES["layers"]["wq"], (2, 4, 6))
    },
  }
  return params, places


@pytest.mark.parametrize("name", ["adamw", "muon", "sgd"])
def test_moments_live_with_their_parameters(name):
  config = sharding.MeshConfig(data=1, fsdp=2, tensor=2)
  mesh = sharding.make_mesh(config)
  params, places = toy(mesh)
  optimizer = make_optimizer(OptimizerConfig(name=name))
  state = init_state(params, optimizer, shardings=places)
  whole = sharding.replicated(mesh)
  by_shape = {
    (6, 4): places["embed"],
    (2, 4, 6): places["layers"]["wq"],
  }
  moments = 0
  for leaf in jax.tree.leaves(state.opt_state):
    assert leaf.sharding == by_shape.get(leaf.shape, whole)
    moments += leaf.shape in by_shape
  assert moments == {"adamw": 4, "muon": 2, "sgd": 0}[name]
  assert state.params["embed"].sharding == places["embed"]
  assert state.step.sharding == whole
  assert int(state.step) == 0


def test_state_owns_its_arrays():
  mesh = sharding.make_mesh(sharding.MeshConfig(), jax.devices()[:1])
  params, places = toy(mesh)
  params = jax.device_put(params, places)
  optimizer = make_optimizer(OptimizerConfig())
  state = init_state(params, optimizer, shardings=places)
  jax.jit(lambda s: s, donate_argnums=0)(state)
  jax.tree.map(lambda x: x.delete(), state)
  np.testing.assert_array_equal(params["embed"], np.ones((6, 4)))


def test_abstract_state_describes_the_state():
  mesh = sharding.make_mesh(sharding.MeshConfig(data=2, fsdp=2))
  params, places = toy(mesh)
  optimizer = make_optimizer(OptimizerConfig(name="muon"))
  state = init_state(params, optimizer, shardings=places)
  abstract = abstract_state(params, optimizer, shardings=places)
  chex.assert_trees_all_equal_shapes_and_dtypes(abstract, state)
  for wanted, leaf in zip(
    jax.tree.leaves(abstract), jax.tree.leaves(state), strict=True
  ):
    assert leaf.sharding == wanted.sharding
