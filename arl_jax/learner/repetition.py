"""How much the actions of a batch repeat themselves."""

import functools

import jax
import jax.numpy as jnp

from arl_jax.types import Array, TrajectoryBatch


@functools.partial(jax.jit, static_argnames=("size",))
def repeated_ngrams(batch: TrajectoryBatch, *, size: int) -> Array:
  """Share of an action's n-grams that stood in the same action before.

  1 - |distinct n-grams of the turn| / |n-grams of the turn|

  Args:
    batch: rows that are not packed; tokens of one action stand side by side.
    size: n, in tokens.

  Returns:
    float32 `[B, K]`; 0 for an action of fewer than n tokens.
  """
  num_turns = batch.turn_mask.shape[1]
  share = functools.partial(_of_row, size=size, num_turns=num_turns)
  return jax.vmap(share)(jnp.asarray(batch.tokens), jnp.asarray(batch.turn_ids))


def _of_row(
  tokens: Array, turn_ids: Array, *, size: int, num_turns: int
) -> Array:
  # The turn, then the n tokens from each place on; -1 beyond the row's end.
  padded = jnp.pad(jnp.stack([turn_ids, tokens]), ((0, 0), (0, size)))
  padded = padded.at[0, -size:].set(-1)
  length = tokens.shape[0]
  turns, grams = jnp.stack(
    [padded[:, i : i + length] for i in range(size)], axis=1
  )
  whole = jnp.all(turns == turn_ids, axis=0) & (turn_ids >= 0)
  keys = jnp.concatenate([jnp.where(whole, turn_ids, -1)[None], grams])
  # Equal n-grams of a turn come to stand next to each other: O(T log T).
  ordered = keys[:, jnp.lexsort(keys[::-1])]
  again = jnp.all(ordered[:, 1:] == ordered[:, :-1], axis=0)
  repeated = jnp.pad(again, (1, 0)).astype(jnp.float32)
  buckets = jnp.where(ordered[0] >= 0, ordered[0], num_turns)
  total = functools.partial(
    jax.ops.segment_sum, segment_ids=buckets, num_segments=num_turns + 1
  )
  counts = total(jnp.ones_like(repeated))
  return (total(repeated) / jnp.maximum(counts, 1.0))[:-1]
