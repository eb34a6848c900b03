"""Jitted steps of the engine: extend a prompt, decode a chunk, copy a prefix.

A slot holds the keys and values of `length` tokens plus one pending token,
the last of its row, which the next decode step feeds. So a prompt's prefill
needs no output head, and a copied prompt needs no prefill at all.
"""

from collections.abc import Callable
import functools
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from arl_jax.models import kv_cache, sampling, transformer
from arl_jax.models.kv_cache import KVCache
from arl_jax.models.transformer import ModelConfig


@struct.dataclass(kw_only=True)
class RowInputs:
  """What each row decodes next; all of it traced, so nothing recompiles."""

  slot_ids: jax.Array  # int32 [rows], where it lives; `num_slots` is filler
  tokens: jax.Array  # int32 [rows], the pending token
  lengths: jax.Array  # int32 [rows], cells filled, its position
  budgets: jax.Array  # int32 [rows], tokens it may still sample, 0 is idle
  seeds: jax.Array  # uint32 [rows]
  temperature: jax.Array  # float32 [rows]
  top_k: jax.Array  # int32 [rows]
  top_p: jax.Array  # float32 [rows]
  stop_ids: jax.Array  # int32 [rows, n], -1 pads


@functools.partial(
  jax.jit, static_argnames=("config", "kv_length"), donate_argnames=("cache",)
)
def prefill_extend(
  params: Any,
  cache: KVCache,
  tokens: jax.Array,
  slot_ids: jax.Array,
  starts: jax.Array,
  num_valid: jax.Array,
  *,
  config: ModelConfig,
  kv_length: int,
) -> KVCache:
  """Writes the keys and values of new tokens behind what slots hold.

  Args:
    params: weights, their layers unstacked, in the dtype of the activations.
    cache: the cache, donated.
    tokens: int32 `[B, T]` new tokens, padded at the right.
    slot_ids: int32 `[B]` slot of each row; `num_slots` marks a filler row.
    starts: int32 `[B]` cells already filled.
    num_valid: int32 `[B]` new tokens that are not padding.
    config: shape of the transformer.
    kv_length: cells that attention reads; all rows must fit.

  Returns:
    The cache with the cells `starts .. starts + num_valid` filled.
  """
  offsets = jnp.arange(tokens.shape[1])[None]
  positions = starts[:, None] + offsets
  valid = offsets < num_valid[:, None]
  # Padding is written out of range, where it is dropped.
  cells = jnp.where(valid, positions, cache[0].keys.shape[2])
  visible = jnp.arange(kv_length)[None, None] <= positions[:, :, None]

  def attend(cache, q, k, v):
    cache = kv_cache.write(cache, slot_ids, cells, k, v)
    keys = cache.keys[slot_ids, :, :kv_length]
    values = cache.values[slot_ids, :, :kv_length]
    return transformer.attend(q, keys, values, visible), cache

  _, cache = transformer.run_layers(
    params, tokens, positions, cache, attend, config=config
  )
  return cache


@functools.partial(
  jax.jit,
  static_argnames=("config", "num_steps", "kv_length"),
  donate_argnames=("cache",),
)
def decode_chunk(
  params: Any,
  cache: KVCache,
  inputs: RowInputs,
  *,
  config: ModelConfig,
  num_steps: int,
  kv_length: int,
) -> tuple[KVCache, jax.Array, jax.Array, jax.Array]:
  """Samples up to `num_steps` tokens in each row.

  A row stops when it samples one of its stop ids or spends its budget; the
  chunk ends early when every row has stopped. Busy slots are scattered, so
  their keys and values are brought together once, and put back at the end. As
  many rows as slots need none of that: then row i must be slot i.

  Args:
    params: weights, their layers unstacked, in the dtype of the activations.
    cache: the cache, donated.
    inputs: what each row decodes next.
    config: shape of the transformer.
    num_steps: most tokens a row samples.
    kv_length: cells that attention reads; all live rows must fit.

  Returns:
    The cache; sampled tokens int32 `[num_steps, num_rows]`; their
    log-probabilities float32 `[num_steps, num_rows]`; how many tokens each
    row sampled, int32 `[num_rows]`.
  """
  slots = cache
  num_rows, num_slots = len(inputs.slot_ids), cache[0].keys.shape[0]
  cells_of = (inputs.slot_ids, slice(None), slice(kv_length))
  if num_rows < num_slots:
    cache = jax.tree.map(lambda a: a.at[cells_of].get(mode="clip"), slots)
  num_cells = cache[0].keys.shape[2]
  rows = jnp.arange(num_rows)
  # A live row has sampled as many tokens as there were steps.
  counters = inputs.lengths + jnp.arange(num_steps)[:, None]
  uniforms = sampling.draw_uniforms(inputs.seeds, counters)

  def decode_step(carry):
    step, cache, tokens, counts, live, out_tokens, out_logprobs = carry
    positions = inputs.lengths + counts
    cells = jnp.where(live, positions, num_cells)[:, None]
    visible = jnp.arange(kv_length) <= positions[:, None, None]

    def attend(cache, q, k, v):
      cache = kv_cache.write(cache, rows, cells, k, v)
      keys = cache.keys[:, :, :kv_length]
      values = cache.values[:, :, :kv_length]
      return transformer.attend(q, keys, values, visible), cache

    hidden, cache = transformer.run_layers(
      params,
      tokens[:, None],
      positions[:, None],
      cache,
      attend,
      config=config,
    )
    # A tied head is transposed here, in the product, where it needs no copy.
    head = transformer.unembedding(params, config)
    logits = jnp.matmul(hidden[:, 0], head, preferred_element_type=jnp.float32)
    sampled, logprobs = sampling.sample_tokens(
      logits,
      uniforms[step],
      temperature=inputs.temperature,
      top_k=inputs.top_k,
      top_p=inputs.top_p,
    )
    out_tokens = out_tokens.at[step].set(jnp.where(live, sampled, -1))
    out_logprobs = out_logprobs.at[step].set(jnp.where(live, logprobs, 0.0))
    counts = counts + live
    stopped = jnp.any(sampled[:, None] == inputs.stop_ids, axis=-1)
    tokens = jnp.where(live, sampled, tokens)
    live = live & ~stopped & (counts < inputs.budgets)
    return step + 1, cache, tokens, counts, live, out_tokens, out_logprobs

  def unfinished(carry):
    step, live = carry[0], carry[4]
    return (step < num_steps) & jnp.any(live)

  _, cache, _, counts, _, out_tokens, out_logprobs = jax.lax.while_loop(
    unfinished,
    decode_step,
    (
      jnp.int32(0),
      cache,
      inputs.tokens,
      jnp.zeros(num_rows, jnp.int32),
      inputs.budgets > 0,
      jnp.full((num_steps, num_rows), -1, jnp.int32),
      jnp.zeros((num_steps, num_rows), jnp.float32),
    ),
  )
  if num_rows < num_slots:
    cache = jax.tree.map(
      lambda a, b: a.at[cells_of].set(b, mode="drop"), slots, cache
    )
  return cache, out_tokens, out_logprobs, counts


copy_prefix: Callable[..., KVCache] = jax.jit(
  kv_cache.copy_slots, donate_argnames=("cache",)
)
