"""Keys and values of fixed slots, kept between the turns of an episode."""

from flax import struct
import jax
import jax.numpy as jnp

from arl_jax.models.transformer import ModelConfig

# Logical axes of a layer's arrays, for sharding.
CACHE_AXES = ("batch", "kv_heads", None, None)


@struct.dataclass(kw_only=True)
class LayerCache:
  """Keys and values of one layer, by slot and position."""

  keys: jax.Array  # [slots, K, S, H]
  values: jax.Array  # [slots, K, S, H]


# One for each layer: apart, so that a write touches no other layer.
KVCache = tuple[LayerCache, ...]


def cache_shape(
  config: ModelConfig, *, num_slots: int, max_length: int
) -> tuple[int, int, int, int]:
  """Returns the shape of a layer's keys, and of its values."""
  return num_slots, config.num_kv_heads, max_length, config.head_dim


def init_cache(
  config: ModelConfig, *, num_slots: int, max_length: int
) -> KVCache:
  """Returns an empty cache in the dtype of the activations."""
  shape = cache_shape(config, num_slots=num_slots, max_length=max_length)
  return tuple(
    LayerCache(
      keys=jnp.zeros(shape, config.dtype), values=jnp.zeros(shape, config.dtype)
    )
    for _ in range(config.num_layers)
  )


def write(
  cache: LayerCache,
  slot_ids: jax.Array,
  positions: jax.Array,
  k: jax.Array,
  v: jax.Array,
) -> LayerCache:
  """Writes new keys and values in place; out-of-range ones are dropped.

  Args:
    cache: of the layer.
    slot_ids: int32 `[B]` slot of each row; `num_slots` drops the row.
    positions: int32 `[B, T]` cell of each token; `S` or more drops the token.
    k: `[B, T, K, H]` keys.
    v: `[B, T, K, H]` values.
  """
  index = (slot_ids[:, None], slice(None), positions)
  return LayerCache(
    keys=cache.keys.at[index].set(k.astype(cache.keys.dtype), mode="drop"),
    values=cache.values.at[index].set(
      v.astype(cache.values.dtype), mode="drop"
    ),
  )


def copy_slots(
  cache: KVCache, source_ids: jax.Array, target_ids: jax.Array
) -> KVCache:
  """Copies whole slots; all sources are read before any target is written.

  Args:
    cache: the cache to update.
    source_ids: int32 `[n]` slots to read.
    target_ids: int32 `[n]` slots to write; `num_slots` drops the copy.
  """
  return jax.tree.map(
    lambda a: a.at[target_ids].set(a[source_ids], mode="drop"), cache
  )
