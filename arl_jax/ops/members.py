"""Who belongs to which group."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks
from arl_jax.types import Array


class Members(NamedTuple):
  """Who belongs to which group; whoever does not count belongs to none.

  Attributes:
    buckets: int32 `[...]` the group, `num` for those that do not count.
    live: bool `[...]` who counts.
    num: how many groups there are.
  """

  buckets: Array
  live: Array
  num: int


def assign(ids: Array, live: Array, num: int) -> Members:
  """Assigns the live to their groups; an id outside `[0, num)` is none."""
  live = live & (ids >= 0) & (ids < num)
  return Members(jnp.where(live, ids, num), live, num)


def check_row_mask(row_mask: ArrayLike | None, num_rows: int) -> Array:
  """Returns the rows that were not rejected; None rejects none."""
  if row_mask is None:
    return jnp.ones(num_rows, bool)
  return checks.mask("row_mask", row_mask, "[B]", (num_rows,))


def live_rows(values: Array, live: Array, row_mask: ArrayLike | None) -> Array:
  """Rows that count: accepted, with a live entry, all of them finite.

  A row that nobody could score (its return is NaN) is a rejected row: it must
  neither learn nor spoil the baseline of its peers.

  Args:
    values: `[B, ...]` what the row is judged by.
    live: bool `[B, ...]` the entries of `values` that count.
    row_mask: bool `[B]`, or None to reject none.

  Returns:
    bool `[B]`.
  """
  axes = tuple(range(1, values.ndim))
  scored = jnp.all(jnp.isfinite(values) | ~live, axis=axes)
  accepted = check_row_mask(row_mask, values.shape[0])
  return accepted & scored & jnp.any(live, axis=axes)


def live_turns(
  name: str, values: ArrayLike, turn_mask: ArrayLike, row_mask: ArrayLike | None
) -> tuple[Array, Array]:
  """Checks values per turn; returns them, 0 where masked, and who counts."""
  values = checks.floats(name, values, "[B, K]", (None, None))
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", values.shape)
  mask = mask & live_rows(values, mask, row_mask)[:, None]
  return jnp.where(mask, values, 0.0), mask


def from_ids(
  name: str,
  ids: ArrayLike,
  live: Array,
  *,
  num_name: str,
  num: int,
  lowest: int = 0,
) -> Members:
  """Checks ids, of rows or of turns; assigns the live to their groups."""
  num = checks.count(num_name, num)
  layout = "[B]" if live.ndim == 1 else "[B, K]"
  ids = checks.ids(name, ids, layout, live.shape)
  checks.ids_in_range(
    name, ids, live, num_name=num_name, num=num, lowest=lowest
  )
  return assign(ids, live, num)


def from_returns(
  returns: ArrayLike,
  group_ids: ArrayLike,
  row_mask: ArrayLike | None,
  *,
  num: int,
  name: str = "group",
) -> tuple[Array, Members]:
  """Checks a return per row; assigns the scored rows to their groups."""
  returns = checks.floats("returns", returns, "[B]", (None,))
  live = live_rows(returns, jnp.ones(returns.shape, bool), row_mask)
  members = from_ids(
    f"{name}_ids", group_ids, live, num_name=f"num_{name}s", num=num
  )
  return returns, members
