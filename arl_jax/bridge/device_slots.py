"""The engine's arrays on the device, with the steps that change them."""

from collections.abc import Sequence
import itertools
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from arl_jax.bridge.engine_config import MAX_STOP_IDS, EngineConfig, EngineStats
from arl_jax.bridge.slots import Placement
from arl_jax.learner import sharding
from arl_jax.models import decode, kv_cache
from arl_jax.models.transformer import ModelConfig, unstack_layers

_unstack = jax.jit(unstack_layers)


class DeviceSlots:
  """Owns the key-value cache; every step donates it."""

  def __init__(
    self,
    model: ModelConfig,
    params: Any,
    config: EngineConfig,
    *,
    stats: EngineStats,
    cache_sharding: Any = None,
  ):
    """Allocates the cache.

    Args:
      model: shape of the transformer.
      params: weights; never donated.
      config: fixed shapes.
      stats: totals to add to.
      cache_sharding: NamedSharding of every cache array; by default each
        device of the weights holds all of it.
    """
    self._params: Any = None
    self.set_params(params)
    self._model = model
    self._config = config
    self._stats = stats
    self._cache = jax.jit(
      kv_cache.init_cache,
      static_argnames=("config", "num_slots", "max_length"),
      # A cache whose place is open would be compiled for twice.
      out_shardings=(
        cache_sharding
        or sharding.whole_beside(jax.tree.leaves(self._params)[0])
      ),
    )(model, num_slots=config.num_slots, max_length=config.max_length)

  def set_params(self, params: Any) -> None:
    """Takes weights, stacked or unstacked; unstacked ones need no copy."""
    stacked = not isinstance(params["layers"], tuple)
    self._params = _unstack(params) if stacked else params

  def warm_up(self) -> None:
    """Compiles every shape that `step` can meet; it changes no slot."""
    config = self._config
    largest = config.max_length
    kv_lengths = sorted(
      {min(n, largest) for n in (*config.kv_lengths, largest)}
    )
    filler = np.full(max(config.prefill_rows), config.num_slots, np.int32)
    nothing = np.zeros(max(config.prefill_rows), np.int32)
    for rows in set(config.prefill_rows):
      self._cache = decode.copy_prefix(
        self._cache, nothing[:rows], filler[:rows]
      )
      for width, kv_length in itertools.product(
        set(config.prefill_lengths), kv_lengths
      ):
        self._prefill_call(
          np.zeros((rows, width), np.int32),
          filler[:rows],
          nothing[:rows],
          nothing[:rows],
          kv_length,
        )
    decode_rows = {min(n, config.num_slots) for n in config.decode_rows}
    for rows, kv_length in itertools.product(
      decode_rows | {config.num_slots}, kv_lengths
    ):
      self._decode(idle_rows(rows, config.num_slots), kv_length)
    jax.block_until_ready(self._cache)

  def step(
    self,
    placements: Sequence[Placement],
    inputs: decode.RowInputs,
    kv_length: int,
  ) -> tuple[
    npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.int32]
  ]:
    """Fills slots, then decodes a chunk.

    Args:
      placements: rows to copy and prefill.
      inputs: what each row decodes next.
      kv_length: cells that attention reads.

    Returns:
      Sampled tokens `[chunk_size, num_rows]`, their log-probabilities, and
      how many tokens each row sampled, `[num_rows]`.
    """
    for follows in (False, True):
      chosen = [p for p in placements if p.follows == follows]
      self._copy([p for p in chosen if p.source != p.slot])
      self._prefill([p for p in chosen if len(p.tokens)])
    outputs = self._decode(inputs, kv_length)
    tokens, logprobs, counts = jax.device_get(outputs)
    self._stats.decode_steps += int(counts.max(initial=0))
    return tokens, logprobs, counts

  def _decode(
    self, inputs: decode.RowInputs, kv_length: int
  ) -> list[jax.Array]:
    self._cache, *outputs = decode.decode_chunk(
      self._params,
      self._cache,
      inputs,
      config=self._model,
      num_steps=self._config.chunk_size,
      kv_length=kv_length,
    )
    return outputs

  def _copy(self, placements: Sequence[Placement]) -> None:
    for batch, rows in _batches(placements, self._config.prefill_rows):
      filler = [self._config.num_slots] * (rows - len(batch))
      self._cache = decode.copy_prefix(
        self._cache,
        np.asarray([p.source for p in batch] + [0] * len(filler), np.int32),
        np.asarray([p.slot for p in batch] + filler, np.int32),
      )
    self._stats.shared_tokens += sum(p.start for p in placements)

  def _prefill(self, placements: Sequence[Placement]) -> None:
    longest = max(self._config.prefill_lengths)
    pieces: dict[tuple[int, int], list[tuple[int, int, Any]]] = {}
    for p in placements:
      self._stats.prefilled_tokens += len(p.tokens)
      for wave, offset in enumerate(range(0, len(p.tokens), longest)):
        piece = p.tokens[offset : offset + longest]
        width = bucket(len(piece), self._config.prefill_lengths, longest)
        key = (wave, width)
        pieces.setdefault(key, []).append((p.slot, p.start + offset, piece))
    for (_, width), rows in sorted(pieces.items(), key=lambda item: item[0]):
      for batch, num_rows in _batches(rows, self._config.prefill_rows):
        self._prefill_batch(batch, num_rows, width)

  def _prefill_batch(
    self, batch: Sequence[tuple[int, int, Any]], num_rows: int, width: int
  ) -> None:
    tokens = np.zeros((num_rows, width), np.int32)
    slot_ids = np.full(num_rows, self._config.num_slots, np.int32)
    starts = np.zeros(num_rows, np.int32)
    num_valid = np.zeros(num_rows, np.int32)
    for row, (slot, start, piece) in enumerate(batch):
      tokens[row, : len(piece)] = piece
      slot_ids[row], starts[row], num_valid[row] = slot, start, len(piece)
    kv_length = bucket(
      min(int((starts + num_valid).max()), self._config.max_length),
      self._config.kv_lengths,
      self._config.max_length,
    )
    self._prefill_call(tokens, slot_ids, starts, num_valid, kv_length)

  def _prefill_call(
    self,
    tokens: npt.NDArray[np.int32],
    slot_ids: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int32],
    num_valid: npt.NDArray[np.int32],
    kv_length: int,
  ) -> None:
    self._cache = decode.prefill_extend(
      self._params,
      self._cache,
      tokens,
      slot_ids,
      starts,
      num_valid,
      config=self._model,
      kv_length=kv_length,
    )


def idle_rows(num_rows: int, num_slots: int) -> decode.RowInputs:
  """Returns NumPy inputs of rows that decode nothing, to be filled in."""
  arrays: dict[str, Any] = {
    **{
      name: np.zeros(num_rows, np.int32)
      for name in ("tokens", "lengths", "budgets", "top_k")
    },
    "slot_ids": np.full(num_rows, num_slots, np.int32),
    "seeds": np.zeros(num_rows, np.uint32),
    "temperature": np.ones(num_rows, np.float32),
    "top_p": np.ones(num_rows, np.float32),
    "stop_ids": np.full((num_rows, MAX_STOP_IDS), -1, np.int32),
  }
  return decode.RowInputs(**arrays)


def bucket(size: int, buckets: Sequence[int], largest: int) -> int:
  """Returns the smallest bucket that holds `size`, else `largest`."""
  return min((b for b in buckets if size <= b <= largest), default=largest)


def _batches(
  items: Sequence[Any], sizes: Sequence[int]
) -> list[tuple[Sequence[Any], int]]:
  """Splits items into runs, each with the bucket of rows that it fills."""
  largest = max(sizes)
  return [
    (
      items[start : start + largest],
      bucket(len(items[start : start + largest]), sizes, largest),
    )
    for start in range(0, len(items), largest)
  ]
