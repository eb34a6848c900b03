"""Keys and values of fixed slots, kept between the turns of an episode."""

from flax import struct
import jax
import jax.numpy as jnp

from arl_jax.models.transformer import ModelConfig

# Logical axes of both arrays, for sharding.
CACHE_AXES = ("layers", "batch", "kv_heads", None, None)


@struct.dataclass(kw_only=True)
class KVCache:
  """Keys and values of every layer, slot and position."""

  keys: jax.Array  # [L, slots, K, S, H]
  values: jax.Array  # [L, slots, K, S, H]


def init_cache(
  config: ModelConfig, *, num_slots: int, max_length: int
) -> KVCache:
  """Returns an empty cache in the dtype of the activations."""
  shape = (
    config.num_layers,
    num_slots,
    config.num_kv_heads,
    max_length,
    config.head_dim,
  )
  return KVCache(
    keys=jnp.zeros(shape, config.dtype), values=jnp.zeros(shape, config.dtype)
  )


def write(
  cache: KVCache,
  layer: jax.Array,
  slot_ids: jax.Array,
  positions: jax.Array,
  k: jax.Array,
  v: jax.Array,
) -> KVCache:
  """Writes new keys and values in place; out-of-range ones are dropped.

  Args:
    cache: the cache to update.
    layer: int32 `[]` layer to write.
    slot_ids: int32 `[B]` slot of each row; `num_slots` drops the row.
    positions: int32 `[B, T]` cell of each token; `S` or more drops the token.
    k: `[B, T, K, H]` keys.
    v: `[B, T, K, H]` values.
  """
  index = (layer, slot_ids[:, None], slice(None), positions)
  return KVCache(
    keys=cache.keys.at[index].set(k.astype(cache.keys.dtype), mode="drop"),
    values=cache.values.at[index].set(
      v.astype(cache.values.dtype), mode="drop"
    ),
  )


def attend_cached(
  q: jax.Array, keys: jax.Array, values: jax.Array, positions: jax.Array
) -> jax.Array:
  """Attends to every cell at or before a query's own position.

  Args:
    q: `[B, T, N, H]` queries.
    keys: `[B, K, S, H]` cached keys, the queries' own included.
    values: `[B, K, S, H]` cached values.
    positions: int32 `[B, T]` position of each query.

  Returns:
    `[B, T, N, H]` outputs; the softmax runs in float32.
  """
  num_rows, num_tokens, num_heads, head_dim = q.shape
  num_kv_heads, length = keys.shape[1:3]
  grouped = q.reshape(
    num_rows, num_tokens, num_kv_heads, num_heads // num_kv_heads, head_dim
  )
  scores = jnp.einsum(
    "btkgh,bksh->bkgts", grouped, keys, preferred_element_type=jnp.float32
  ) * (head_dim**-0.5)
  visible = jnp.arange(length)[None, None] <= positions[:, :, None]
  scores = jnp.where(visible[:, None, None], scores, -jnp.inf)
  weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
  out = jnp.einsum("bkgts,bksh->btkgh", weights, values)
  return out.reshape(num_rows, num_tokens, num_heads, head_dim)


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
    lambda a: a.at[:, target_ids].set(a[:, source_ids], mode="drop"), cache
  )
