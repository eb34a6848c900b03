"""Where every array of a learner step lives on the mesh.

This is the only place with PartitionSpecs. Arrays name their axes by meaning
(`embed`, `heads`, `batch`, ...); `ShardingRules` says which mesh axes carry
each meaning. The mesh always has the axes data, fsdp, seq, tensor; size 1 is
allowed, so one device and many run the same code.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from arl_jax.models.transformer import ParamSpec
from arl_jax.types import PyTree, TrajectoryBatch

MESH_AXES = ("data", "fsdp", "seq", "tensor")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
  """Size of each mesh axis; at most one is -1 and takes what is left.

  Attributes:
    data: copies of the parameters that see different rows.
    fsdp: shards of the parameters that see different rows.
    seq: shards of the token axis.
    tensor: shards of heads, MLP width and vocabulary.
  """

  data: int = -1
  fsdp: int = 1
  seq: int = 1
  tensor: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardingRules:
  """Mesh axes that carry each logical axis; `()` leaves an axis whole."""

  embed: tuple[str, ...] = ("fsdp",)
  heads: tuple[str, ...] = ("tensor",)
  kv_heads: tuple[str, ...] = ("tensor",)
  mlp: tuple[str, ...] = ("tensor",)
  vocab: tuple[str, ...] = ("tensor",)
  rows: tuple[str, ...] = ("fsdp", "tensor")
  layers: tuple[str, ...] = ()
  norm: tuple[str, ...] = ()
  batch: tuple[str, ...] = ("data", "fsdp")
  length: tuple[str, ...] = ("seq",)
  turns: tuple[str, ...] = ()

  def mesh_axes(self, axis: str | None) -> tuple[str, ...]:
    """Returns the mesh axes of a logical axis, none for None."""
    if axis is None:
      return ()
    known = [field.name for field in dataclasses.fields(self)]
    if axis not in known:
      raise ValueError(
        f"a weight or batch names the axis {axis!r}; expected one of {known}."
        " Rename the axis in its spec or add a rule for it"
      )
    return getattr(self, axis)


DEFAULT_RULES = ShardingRules()

# Fields of `TrajectoryBatch` by their axes; a new field must be put here.
_BATCH_AXES: Mapping[str, tuple[str, ...]] = {
  "tokens": ("batch", "length"),
  "action_mask": ("batch", "length"),
  "turn_ids": ("batch", "length"),
  "segment_ids": ("batch", "length"),
  "positions": ("batch", "length"),
  "behavior_logprobs": ("batch", "length"),
  "policy_versions": ("batch", "length"),
  "turn_rewards": ("batch", "turns"),
  "turn_mask": ("batch", "turns"),
  "state_ids": ("batch", "turns"),
  "edge_ids": ("batch", "turns"),
  "group_ids": ("batch",),
  "episode_ids": ("batch",),
  "agent_ids": ("batch",),
  "row_mask": ("batch",),
}


def make_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
  """Lays devices out as a mesh with the axes data, fsdp, seq, tensor.

  Args:
    config: size of each axis.
    devices: the devices to use, all that JAX sees by default.

  Returns:
    A mesh whose axes are of the Auto type: XLA places what has no sharding.

  Raises:
    ValueError: if the sizes do not multiply to the number of devices.
  """
  devices = jax.devices() if devices is None else list(devices)
  sizes = [getattr(config, axis) for axis in MESH_AXES]
  described = dict(zip(MESH_AXES, sizes, strict=True))
  if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
    raise ValueError(
      f"mesh axes are {described}; expected positive sizes, at most one -1"
    )
  fixed = math.prod(size for size in sizes if size != -1)
  if len(devices) % fixed or (-1 not in sizes and fixed != len(devices)):
    raise ValueError(
      f"mesh axes {described} do not fit {len(devices)} devices; the sizes"
      " must multiply to that number, and -1 fills one axis"
    )
  shape = tuple(len(devices) // fixed if s == -1 else s for s in sizes)
  return jax.make_mesh(
    shape, MESH_AXES, axis_types=(AxisType.Auto,) * 4, devices=devices
  )


def sharding_for(
  mesh: Mesh,
  axes: Sequence[str | None],
  shape: Sequence[int],
  rules: ShardingRules = DEFAULT_RULES,
) -> NamedSharding:
  """Shards an array by the meaning of its axes.

  A mesh axis that does not divide the dimension, or that an earlier dimension
  of the same array took, is left out: the array is then held whole along it.

  Args:
    mesh: the devices.
    axes: logical name of each dimension, None for one that stays whole.
    shape: size of each dimension.
    rules: mesh axes of each logical axis.

  Returns:
    The sharding of the array.
  """
  if len(axes) != len(shape):
    raise ValueError(
      f"axes {tuple(axes)} name {len(axes)} dimensions but the array has shape"
      f" {tuple(shape)}; name each dimension once"
    )
  taken: set[str] = set()
  spec: list[tuple[str, ...] | None] = []
  for axis, size in zip(axes, shape, strict=True):
    chosen: list[str] = []
    for name in rules.mesh_axes(axis):
      parts = math.prod(mesh.shape[n] for n in [*chosen, name])
      if mesh.shape[name] > 1 and name not in taken and size % parts == 0:
        chosen.append(name)
        taken.add(name)
    spec.append(tuple(chosen) or None)
  return NamedSharding(mesh, PartitionSpec(*spec))


def constrain_rows(
  mesh: Mesh, x: jax.Array, rules: ShardingRules = DEFAULT_RULES
) -> jax.Array:
  """Keeps activations `[B, T, ...]` split by rows and tokens, inside a jit.

  Its transpose does the same to their gradient. Without it the compiler may
  split them as a weight is, and then move every token to another device.
  """
  axes = ("batch", "length", *[None] * (x.ndim - 2))
  return jax.lax.with_sharding_constraint(
    x, sharding_for(mesh, axes, x.shape, rules)
  )


def replicated(mesh: Mesh) -> NamedSharding:
  """The sharding of an array that every device holds whole."""
  return NamedSharding(mesh, PartitionSpec())


def whole_beside(array: jax.Array) -> Any:
  """Returns where each device of an array holds something else whole.

  Args:
    array: any array; one that JAX may still move gives None.
  """
  if not getattr(array, "committed", False):
    return None
  place = array.sharding
  if not isinstance(place, NamedSharding):
    return place
  return NamedSharding(place.mesh, PartitionSpec())


def param_shardings(
  mesh: Mesh, specs: PyTree, rules: ShardingRules = DEFAULT_RULES
) -> PyTree:
  """Maps a tree of `ParamSpec` to the shardings of its parameters."""
  return jax.tree.map(
    lambda spec: sharding_for(mesh, spec.axes, spec.shape, rules),
    specs,
    is_leaf=lambda leaf: isinstance(leaf, ParamSpec),
  )


def unstack_shardings(shardings: PyTree, num_layers: int) -> PyTree:
  """Gives each layer's weights the sharding that they have in the stack.

  Args:
    shardings: as `param_shardings` returns them.
    num_layers: L.

  Returns:
    The shardings of what `transformer.unstack_layers` returns.
  """
  one = jax.tree.map(
    lambda place: NamedSharding(place.mesh, PartitionSpec(*place.spec[1:])),
    shardings["layers"],
  )
  return {**shardings, "layers": (one,) * num_layers}


def batch_shardings(
  mesh: Mesh, batch: Any, rules: ShardingRules = DEFAULT_RULES
) -> Any:
  """Maps a batch to shardings by rows, then by tokens.

  Args:
    mesh: the devices.
    batch: a `TrajectoryBatch`, or one array `[B]` or `[B, T]`.
    rules: mesh axes of each logical axis.

  Returns:
    Shardings of the same structure.
  """
  if not isinstance(batch, TrajectoryBatch):
    axes = ("batch", "length")[: batch.ndim]
    return sharding_for(mesh, axes, batch.shape, rules)
  places: dict[str, Any] = {
    field: sharding_for(mesh, axes, getattr(batch, field).shape, rules)
    for field, axes in _BATCH_AXES.items()
  }
  return TrajectoryBatch(**places)


def shard_batch(
  mesh: Mesh, batch: Any, rules: ShardingRules = DEFAULT_RULES
) -> Any:
  """Puts a batch, or one array `[B]` or `[B, T]`, on the mesh."""
  return jax.device_put(batch, batch_shardings(mesh, batch, rules))
