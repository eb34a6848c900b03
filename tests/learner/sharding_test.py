import jax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from arl_jax.learner import sharding
from arl_jax.learner.sharding import MeshConfig
from arl_jax.models import transformer


def mesh_of(**sizes):
  return sharding.make_mesh(MeshConfig(**{"data": 1, **sizes}), jax.devices())


def test_minus_one_fills_the_mesh():
  mesh = sharding.make_mesh(MeshConfig(data=-1, tensor=2))
  assert dict(mesh.shape) == {"data": 2, "fsdp": 1, "seq": 1, "tensor": 2}
  assert mesh.axis_types == (AxisType.Auto,) * 4


@pytest.mark.parametrize(
  "config",
  [
    MeshConfig(data=3),
    MeshConfig(data=2),
    MeshConfig(data=-1, fsdp=3),
    MeshConfig(data=-1, fsdp=-1),
    MeshConfig(data=-1, tensor=0),
    MeshConfig(data=8),
  ],
)
def test_sizes_that_do_not_fit_are_named(config):
  with pytest.raises(ValueError, match=r"mesh axes .*'fsdp'"):
    sharding.make_mesh(config)


def test_axis_that_does_not_divide_is_dropped():
  mesh = mesh_of(fsdp=2, tensor=2)

  def spec(axes, shape):
    return sharding.sharding_for(mesh, axes, shape).spec

  assert spec(("embed", "heads"), (8, 6)) == P(("fsdp",), ("tensor",))
  assert spec(("embed", "heads"), (8, 9)) == P(("fsdp",), None)
  assert spec(("layers", "norm"), (2, 8)) == P(None, None)
  assert spec(("heads", "vocab"), (8, 8)) == P(("tensor",), None)
  assert spec((None, "mlp"), (3, 4)) == P(None, ("tensor",))


def test_batch_axis_keeps_what_divides():
  mesh = sharding.make_mesh(MeshConfig(data=2, fsdp=2))

  def spec(rows):
    return sharding.sharding_for(mesh, ("batch",), (rows,)).spec

  assert spec(8) == P(("data", "fsdp"))
  assert spec(6) == P(("data",))
  assert spec(3) == P(None)


def test_unknown_axis_and_wrong_rank_are_named():
  mesh = mesh_of(fsdp=4)
  with pytest.raises(ValueError, match="'experts'"):
    sharding.sharding_for(mesh, ("experts",), (4,))
  with pytest.raises(ValueError, match="name 1 dimensions"):
    sharding.sharding_for(mesh, ("embed",), (4, 4))


def test_rules_can_be_changed():
  mesh = mesh_of(fsdp=2, tensor=2)
  rules = sharding.ShardingRules(embed=(), mlp=("fsdp", "tensor"))
  place = sharding.sharding_for(mesh, ("embed", "mlp"), (4, 8), rules)
  assert place.spec == P(None, ("fsdp", "tensor"))


def test_params_follow_their_specs():
  config = transformer.ModelConfig(
    vocab_size=6,
    num_layers=2,
    model_dim=4,
    num_heads=2,
    num_kv_heads=1,
    head_dim=2,
    mlp_dim=8,
  )
  mesh = mesh_of(fsdp=2, tensor=2)
  places = sharding.param_shardings(mesh, transformer.param_specs(config))
  assert places["layers"]["w_up"].spec == P(None, ("fsdp",), ("tensor",))
  # The 6 rows of the table divide by fsdp, not by fsdp and tensor.
  assert places["embed"].spec == P(("fsdp",), None)
  params = transformer.init_params(jax.random.key(0), config)
  chunks = jax.device_put(params, places)["layers"]["w_up"].addressable_shards
  assert {shard.data.shape for shard in chunks} == {(2, 2, 4)}


def test_batch_is_split_by_rows_then_tokens(make_batch):
  mesh = mesh_of(data=2, seq=2)
  batch = make_batch(num_rows=4, num_tokens=16, num_turns=4)
  placed = sharding.shard_batch(mesh, batch)
  assert placed.tokens.sharding.spec == P(("data",), ("seq",))
  assert placed.turn_rewards.sharding.spec == P(("data",), None)
  assert placed.row_mask.sharding.spec == P(("data",))
  np.testing.assert_array_equal(placed.tokens, batch.tokens)
  advantages = sharding.shard_batch(mesh, np.zeros((4, 16), np.float32))
  assert advantages.sharding == placed.tokens.sharding
