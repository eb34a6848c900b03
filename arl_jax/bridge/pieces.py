"""Cuts a step's batch into pieces that fit on the device at once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arl_jax.learner.objective import Packing
from arl_jax.ops.packing import pack_rows
from arl_jax.types import TrajectoryBatch

_TOKEN_FIELDS = (
  "tokens",
  "action_mask",
  "turn_ids",
  "segment_ids",
  "positions",
  "behavior_logprobs",
  "policy_versions",
)


class Piece(NamedTuple):
  """Rows that are trained or scored in one call.

  Attributes:
    rows: int64 `[n]` their indices in the step.
    batch: `[b, t]` arrays, of which the first n rows are real.
    per_token: further arrays by name, each `[b, t]`.
    packing: how the rows are laid behind each other, None if they are not.
  """

  rows: npt.NDArray[np.int64]
  batch: TrajectoryBatch
  per_token: dict[str, npt.NDArray[np.float32]]
  packing: Packing | None = None

  @property
  def num_computed(self) -> int:
    """Tokens that the model runs on, padding included."""
    source = self.batch if self.packing is None else self.packing
    return int(np.size(source.tokens))


def micro_batches(
  batch: TrajectoryBatch,
  rows: npt.NDArray[np.int64],
  *,
  micro_batch_rows: int,
  lengths: Sequence[int] = (),
  packed_lengths: Sequence[int] = (),
  rows_per_pack: int = 8,
  per_token: Mapping[str, npt.NDArray[np.float32]] | None = None,
) -> Iterator[Piece]:
  """Cuts a minibatch into pieces of equal rows and the fewest columns.

  Rows are sorted by length, so that short ones are not padded to long ones;
  or they are packed, so that hardly any are padded.

  Args:
    batch: NumPy arrays of the whole step.
    rows: which rows belong to the minibatch.
    micro_batch_rows: rows in each piece, packed ones if there are any; the
      last piece is filled up.
    lengths: allowed numbers of columns; T is always allowed.
    packed_lengths: allowed numbers of columns of packed rows; the one that
      computes fewest tokens is taken. Empty packs nothing.
    rows_per_pack: most rows that share a packed one.
    per_token: further arrays `[B, T]`, such as the advantages.

  Raises:
    ValueError: if a row fits none of `packed_lengths`.
  """
  per_token = per_token or {}
  sizes = np.asarray(batch.segment_ids > 0).sum(axis=1)
  if packed_lengths:
    bins, length = _fewest_tokens(
      sizes[rows],
      packed_lengths,
      num_packs=micro_batch_rows,
      rows_per_pack=rows_per_pack,
    )
    for start in range(0, len(bins), micro_batch_rows):
      packs = [rows[b] for b in bins[start : start + micro_batch_rows]]
      yield _packed_piece(
        batch,
        packs,
        num_packs=micro_batch_rows,
        length=length,
        num_rows=micro_batch_rows * rows_per_pack,
        per_token=per_token,
      )
    return
  ordered = rows[np.argsort(sizes[rows], kind="stable")]
  total = batch.tokens.shape[1]
  for start in range(0, len(ordered), micro_batch_rows):
    chosen = ordered[start : start + micro_batch_rows]
    longest = int(sizes[chosen].max())
    width = min((n for n in lengths if longest <= n < total), default=total)
    # Filler repeats a real row but counts nowhere: no action, no row.
    filler = np.repeat(chosen[:1], micro_batch_rows - len(chosen))
    index = np.concatenate([chosen, filler])
    yield Piece(
      rows=chosen,
      batch=_take(batch, index, len(chosen), width),
      per_token={
        name: values[index][:, :width] for name, values in per_token.items()
      },
    )


def _fewest_tokens(
  sizes: npt.NDArray[np.int64],
  lengths: Sequence[int],
  *,
  num_packs: int,
  rows_per_pack: int,
) -> tuple[list[list[int]], int]:
  """Returns the bins and their length that make the fewest tokens in all."""
  longest = int(sizes.max(initial=0))
  fitting = [length for length in lengths if length >= longest]
  if not fitting:
    raise ValueError(
      f"a row has {longest} tokens; packed_lengths are {tuple(lengths)}"
    )
  choices = []
  for length in fitting:
    bins = pack_rows(sizes.tolist(), max_length=length, max_rows=rows_per_pack)
    num_calls = -(-len(bins) // num_packs)
    choices.append((num_calls * length, length, bins))
  _, length, bins = min(choices, key=lambda choice: choice[:2])
  return bins, length


def _packed_piece(
  batch: TrajectoryBatch,
  packs: Sequence[npt.NDArray[np.int64]],
  *,
  num_packs: int,
  length: int,
  num_rows: int,
  per_token: Mapping[str, npt.NDArray[np.float32]],
) -> Piece:
  chosen = np.concatenate(packs)
  filler = np.repeat(chosen[:1], num_rows - len(chosen))
  index = np.concatenate([chosen, filler])
  width = batch.tokens.shape[1]
  arrays = {
    name: np.zeros((num_packs, length), np.int32)
    for name in ("tokens", "positions", "segment_ids")
  }
  action_mask = np.zeros((num_packs, length), bool)
  places = np.full((num_rows, width), num_packs * length, np.int32)
  row = 0
  for p, members in enumerate(packs):
    start = 0
    for segment, b in enumerate(members, 1):
      n = int((batch.segment_ids[b] > 0).sum())
      end = start + n
      arrays["tokens"][p, start:end] = batch.tokens[b, :n]
      arrays["positions"][p, start:end] = batch.positions[b, :n]
      arrays["segment_ids"][p, start:end] = segment
      action_mask[p, start:end] = batch.action_mask[b, :n]
      places[row, :n] = p * length + np.arange(start, end)
      row, start = row + 1, end
  return Piece(
    rows=chosen,
    batch=_take(batch, index, len(chosen), width),
    per_token={name: values[index] for name, values in per_token.items()},
    packing=Packing(
      **arrays, scored=scored_columns(action_mask, multiple=64), index=places
    ),
  )


def scored_columns(
  action_mask: npt.ArrayLike, *, multiple: int = 32
) -> npt.NDArray[np.int32]:
  """Lists the columns of each row's action tokens.

  Args:
    action_mask: bool `[B, T]`.
    multiple: A is rounded up to it, so that few shapes are compiled.

  Returns:
    int32 `[B, A]`, in ascending order, padded with T.
  """
  mask = np.asarray(action_mask)
  num_rows, length = mask.shape
  longest = int(mask.sum(axis=1).max(initial=1))
  width = min(-(-longest // multiple) * multiple, length)
  columns = np.full((num_rows, width), length, np.int32)
  for b in range(num_rows):
    found = np.flatnonzero(mask[b])
    columns[b, : len(found)] = found
  return columns


def _take(
  batch: TrajectoryBatch,
  index: npt.NDArray[np.int64],
  num_real: int,
  width: int,
) -> TrajectoryBatch:
  fields: dict[str, Any] = {
    name: getattr(batch, name)[index]
    for name in TrajectoryBatch.__annotations__
  }
  for name in _TOKEN_FIELDS:
    fields[name] = fields[name][:, :width]
  fields["row_mask"][num_real:] = False
  fields["action_mask"][num_real:] = False
  return TrajectoryBatch(**fields)
