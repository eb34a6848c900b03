"""What is published survives the learner's donation."""

import jax
import jax.numpy as jnp
import numpy as np

from arl_jax.bridge import weights
from arl_jax.learner import sharding


def test_the_copy_outlives_the_original():
  params = {"w": jnp.arange(4.0)}
  published = weights.make_publish("float32")(params)
  donate = jax.jit(lambda p: jax.tree.map(lambda a: a + 1, p), donate_argnums=0)
  donate(params)
  assert params["w"].is_deleted()
  np.testing.assert_array_equal(published["w"], np.arange(4.0))


def test_the_copy_is_cast():
  published = weights.make_publish("bfloat16")({"w": jnp.ones(3)})
  assert published["w"].dtype == jnp.bfloat16


def test_the_copy_goes_where_it_is_told():
  mesh = sharding.make_mesh(sharding.MeshConfig(data=4), jax.devices()[:4])
  place = sharding.sharding_for(mesh, ("batch",), (8,))
  published = weights.make_publish("float32", place)({"w": jnp.arange(8.0)})
  assert published["w"].sharding == place
