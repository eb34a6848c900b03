"""Assignment of short rows to few long ones."""

from collections.abc import Sequence


def pack_rows(
  lengths: Sequence[int], *, max_length: int, max_rows: int | None = None
) -> list[list[int]]:
  """Packs rows into as few bins of a fixed length as a greedy pass finds.

  First-fit decreasing: the longest row first, each into the first bin with
  room. It needs at most 11/9 of the fewest bins possible, plus one.

  Reference: Johnson, "Near-optimal bin packing algorithms", 1973.

  Args:
    lengths: tokens of each row.
    max_length: tokens of a bin.
    max_rows: rows of a bin; None for as many as fit.

  Returns:
    The bins, each the ascending indices of its rows; every row is in exactly
    one bin and no row is split.

  Raises:
    ValueError: if a row is longer than a bin or its length is below 0, or a
      limit is below 1.

  Example:
    >>> import arl_jax as arl
    >>> arl.pack_rows([3, 6, 5, 2], max_length=8)
    [[1, 3], [0, 2]]
  """
  if max_length < 1:
    raise ValueError(f"max_length is {max_length}; expected at least 1")
  if max_rows is not None and max_rows < 1:
    raise ValueError(f"max_rows is {max_rows}; expected at least 1 or None")
  for index, length in enumerate(lengths):
    if not 0 <= length <= max_length:
      raise ValueError(
        f"lengths[{index}] is {length}; expected it in [0, {max_length}]. "
        "Truncate the row or raise max_length."
      )
  bins: list[list[int]] = []
  room: list[int] = []
  for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
    length = int(lengths[index])
    fits = (b for b, free in enumerate(room) if free >= length)
    place = next(fits, None)
    if place is None:
      bins.append([index])
      room.append(-1 if max_rows == 1 else max_length - length)
    else:
      bins[place].append(index)
      full = len(bins[place]) == max_rows
      room[place] = -1 if full else room[place] - length
  return [sorted(rows) for rows in bins]
