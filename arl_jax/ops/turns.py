"""Passage between one value per token and one value per turn."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks
from arl_jax.types import Array


def _turn_ids(turn_ids: ArrayLike, shape: tuple[int | None, ...]) -> Array:
  """Checks the layout of turn ids."""
  return checks.ids("turn_ids", turn_ids, "[B, T]", shape)


def sum_over_turns(
  values: ArrayLike, turn_ids: ArrayLike, *, num_turns: int
) -> Array:
  """Sums the tokens of each turn.

  S_k = Σ_{t: turn(t) = k} x_t

  Args:
    values: `[B, T]` a value per token; never read where `turn_ids` is -1.
    turn_ids: int32 `[B, T]` the turn of an action token, -1 elsewhere.
    num_turns: K, a static int above every turn id.

  Returns:
    `[B, K]` float32; 0 for a turn without tokens.

  Raises:
    ValueError: on a wrong shape or dtype, or a turn id outside `[-1, K)`.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> values = jnp.array([[1.0, 2.0, 9.0, 4.0]])
    >>> turn_ids = jnp.array([[0, 0, -1, 1]])
    >>> print(arl.sum_over_turns(values, turn_ids, num_turns=2))
    [[3. 4.]]
  """
  num_turns = checks.count("num_turns", num_turns)
  values = checks.floats("values", values, "[B, T]", (None, None))
  turn_ids = _turn_ids(turn_ids, values.shape)
  live = turn_ids >= 0
  checks.ids_in_range(
    "turn_ids",
    turn_ids,
    jnp.ones_like(live),
    num_name="num_turns",
    num=num_turns,
    lowest=-1,
  )
  buckets = jnp.where(live & (turn_ids < num_turns), turn_ids, num_turns)

  def sum_row(row: Array, ids: Array) -> Array:
    return jax.ops.segment_sum(row, ids, num_segments=num_turns + 1)

  # A sum within each row, not one over the flat batch: rows stay shardable.
  return jax.vmap(sum_row)(jnp.where(live, values, 0.0), buckets)[:, :-1]


def mean_over_turns(
  values: ArrayLike, turn_ids: ArrayLike, *, num_turns: int
) -> Array:
  """Averages the tokens of each turn.

  M_k = Σ_{t: turn(t) = k} x_t / |{t: turn(t) = k}|

  Args:
    values: `[B, T]` a value per token; never read where `turn_ids` is -1.
    turn_ids: int32 `[B, T]` the turn of an action token, -1 elsewhere.
    num_turns: K, a static int above every turn id.

  Returns:
    `[B, K]` float32; 0 for a turn without tokens.

  Raises:
    ValueError: on a wrong shape or dtype, or a turn id outside `[-1, K)`.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> values = jnp.array([[1.0, 2.0, 9.0, 4.0]])
    >>> turn_ids = jnp.array([[0, 0, -1, 1]])
    >>> print(arl.mean_over_turns(values, turn_ids, num_turns=2))
    [[1.5 4. ]]
  """
  totals = sum_over_turns(values, turn_ids, num_turns=num_turns)
  ones = jnp.ones(jnp.shape(turn_ids), jnp.float32)
  sizes = sum_over_turns(ones, turn_ids, num_turns=num_turns)
  return totals / jnp.maximum(sizes, 1.0)


def broadcast_turns(values: ArrayLike, turn_ids: ArrayLike) -> Array:
  """Gives every token the value of its turn.

  y_t = x_{turn(t)}

  Args:
    values: `[B, K]` a value per turn.
    turn_ids: int32 `[B, T]` the turn of an action token, -1 elsewhere.

  Returns:
    `[B, T]` float32; 0 where `turn_ids` is -1.

  Raises:
    ValueError: on a wrong shape or dtype, or a turn id outside `[-1, K)`.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> values = jnp.array([[3.0, 4.0]])
    >>> print(arl.broadcast_turns(values, jnp.array([[0, 0, -1, 1]])))
    [[3. 3. 0. 4.]]
  """
  values = checks.floats("values", values, "[B, K]", (None, None))
  num_rows, num_turns = values.shape
  turn_ids = _turn_ids(turn_ids, (num_rows, None))
  live = (turn_ids >= 0) & (turn_ids < num_turns)
  checks.ids_in_range(
    "turn_ids",
    turn_ids,
    jnp.ones_like(live),
    num_name="the number of turns in values",
    num=num_turns,
    lowest=-1,
  )
  if num_turns == 0:
    return jnp.zeros(turn_ids.shape, jnp.float32)
  spread = jnp.take_along_axis(values, jnp.where(live, turn_ids, 0), axis=1)
  return jnp.where(live, spread, 0.0)


def turn_end_mask(turn_ids: ArrayLike) -> Array:
  """Marks the last action token of each turn.

  e_t = 1 iff turn(t) ≥ 0 and the next action token is of another turn

  Args:
    turn_ids: int32 `[B, T]` the turn of an action token, -1 elsewhere; turns
      follow each other in a row.

  Returns:
    bool `[B, T]`; all False in a row without actions.

  Raises:
    ValueError: on a wrong shape or dtype.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> print(arl.turn_end_mask(jnp.array([[0, 0, -1, 1]])).astype(int))
    [[0 1 0 1]]
  """
  turn_ids = _turn_ids(turn_ids, (None, None))
  num_rows, num_tokens = turn_ids.shape
  live = turn_ids >= 0
  # Index of the first action token at or after each place, T if there is none.
  index = jnp.where(live, jnp.arange(num_tokens), num_tokens)
  upcoming = jax.lax.cummin(index, axis=1, reverse=True)
  end = jnp.full((num_rows, 1), num_tokens, index.dtype)
  following = jnp.concatenate([upcoming, end], axis=1)[:, 1:]
  nobody = jnp.full((num_rows, 1), -1, turn_ids.dtype)
  padded = jnp.concatenate([turn_ids, nobody], axis=1)
  return live & (jnp.take_along_axis(padded, following, axis=1) != turn_ids)
