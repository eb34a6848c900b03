"""Which rows to learn from, which lengths to discourage."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from arl_jax.ops import checks, members, segments
from arl_jax.types import Array


def overlong_penalty(
  lengths: ArrayLike, *, max_length: int, buffer: int
) -> Array:
  """Penalty that grows over the last part of the length allowed.

  0 up to max - buffer, then (max - buffer - l) / buffer, down to -1

  Reference: https://arxiv.org/abs/2503.14476 (DAPO)

  Args:
    lengths: `[B]` action tokens of each row; observations do not count.
    max_length: length at which the penalty is -1.
    buffer: tokens before `max_length` over which it grows.

  Returns:
    `[B]` float32 in [-1, 0].

  Raises:
    ValueError: on a wrong shape or a buffer outside (0, max_length].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> lengths = jnp.array([6, 9, 12])
    >>> print(arl.overlong_penalty(lengths, max_length=10, buffer=4))
    [ 0.   -0.75 -1.  ]
  """
  checks.positive("buffer", buffer)
  if checks.is_concrete(buffer, max_length):
    checks.within("max_length", max_length, buffer)
  lengths = checks.floats("lengths", lengths, "[B]", (None,))
  return jnp.clip((max_length - buffer - lengths) / buffer, -1.0, 0.0)


def informative_groups(
  returns: ArrayLike,
  group_ids: ArrayLike,
  *,
  num_groups: int,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Rows of groups that have something to tell apart.

  keep iff max_g R > min_g R

  Reference: dynamic sampling of https://arxiv.org/abs/2503.14476 (DAPO)

  Args:
    returns: `[B]` return of each row; NaN marks a row nobody could score.
    group_ids: int32 `[B]` rows of one task share an id.
    num_groups: a static int above every group id.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    bool `[B]`; False for rejected rows and where all returns are equal.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns = jnp.array([1.0, 0.0, 1.0, 1.0])
    >>> groups = jnp.array([0, 0, 1, 1])
    >>> print(arl.informative_groups(returns, groups, num_groups=2))
    [ True  True False False]
  """
  returns, group = members.from_returns(
    returns, group_ids, row_mask, num=num_groups
  )
  low = segments.lowest(returns, group)
  return group.live & (segments.highest(returns, group) > low)


def void_turn_keep_mask(turn_is_void: ArrayLike, turn_mask: ArrayLike) -> Array:
  """Rows none of whose turns is void.

  A void turn has neither a complete tool call nor a final answer.

  Reference: https://arxiv.org/abs/2509.02479 (SimpleTIR)

  Args:
    turn_is_void: bool `[B, K]`; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.

  Returns:
    bool `[B]`; True for a row without turns.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> void = jnp.array([[0, 1], [0, 1]])
    >>> print(arl.void_turn_keep_mask(void, jnp.array([[1, 1], [1, 0]])))
    [False  True]
  """
  void = checks.mask("turn_is_void", turn_is_void, "[B, K]", (None, None))
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", void.shape)
  return ~jnp.any(void & mask, axis=1)


def truncation_keep_mask(
  truncated: ArrayLike, advantages: ArrayLike, *, drop: str = "none"
) -> Array:
  """Rows to learn from, given that a limit and not the task ended some.

  none: all rows    negative: drop a truncated row with A < 0
  all: drop every truncated row

  Apply it to the loss mask, after the advantages: a row that is dropped here
  stays in the baseline of its group.

  Reference: overlong filtering of https://arxiv.org/abs/2503.14476 (DAPO)

  Args:
    truncated: bool `[B]` True where a limit ended the episode.
    advantages: `[B]` advantage of each row.
    drop: "none", "negative" or "all".

  Returns:
    bool `[B]`.

  Raises:
    ValueError: on shapes that differ or an unknown word.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> truncated, signs = jnp.array([1, 1, 0]), jnp.array([1.0, -1.0, -1.0])
    >>> print(arl.truncation_keep_mask(truncated, signs, drop="negative"))
    [ True False  True]
  """
  checks.choice("drop", drop, ("none", "negative", "all"))
  truncated = checks.mask("truncated", truncated, "[B]", (None,))
  advantages = checks.floats("advantages", advantages, "[B]", truncated.shape)
  if drop == "none":
    return jnp.ones_like(truncated)
  if drop == "all":
    return ~truncated
  return ~(truncated & (advantages < 0))


def top_variance_groups(
  returns: ArrayLike,
  group_ids: ArrayLike,
  *,
  num_groups: int,
  keep_ratio: float,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Rows of the groups whose returns vary most.

  keep the ⌈keep_ratio · groups present⌉ groups of largest std_g R

  Equal deviations go by the lower group id.

  Reference: https://arxiv.org/abs/2504.20073 (StarPO-S)

  Args:
    returns: `[B]` return of each row; NaN marks a row nobody could score.
    group_ids: int32 `[B]` rows of one task share an id.
    num_groups: a static int above every group id.
    keep_ratio: share of the groups to keep, in (0, 1].
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    bool `[B]`; False for rejected rows.

  Raises:
    ValueError: on shapes that differ, ids or a ratio out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns = jnp.array([1.0, 0.0, 1.0, 1.0])
    >>> groups = jnp.array([0, 0, 1, 1])
    >>> print(
    ...   arl.top_variance_groups(
    ...     returns, groups, num_groups=2, keep_ratio=0.5
    ...   )
    ... )
    [ True  True False False]
  """
  if not checks.is_concrete(keep_ratio):
    raise ValueError("keep_ratio is traced; expected a Python float")
  checks.positive("keep_ratio", keep_ratio)
  checks.within("keep_ratio", keep_ratio, 0.0, 1.0)
  returns, group = members.from_returns(
    returns, group_ids, row_mask, num=num_groups
  )
  # Sums in sorted order do not depend on the order of rows: groups with the
  # same returns tie exactly, and a shuffle of the batch keeps the same ones.
  safe = jnp.where(group.live, returns, 0.0)
  order = jnp.lexsort((safe, group.buckets))
  ordered = members.Members(group.buckets[order], group.live[order], group.num)
  centred = segments.centre(safe[order], ordered)
  spread = segments.deviation(centred, ordered, ddof=1)
  per_group = segments.per_group(jax.ops.segment_max, spread, ordered, -1.0)[
    :-1
  ]
  present = per_group >= 0.0
  by_spread = jnp.argsort(jnp.where(present, -per_group, 1.0), stable=True)
  rank = (
    jnp.zeros(num_groups, jnp.int32)
    .at[by_spread]
    .set(jnp.arange(num_groups, dtype=jnp.int32))
  )
  # Rounded before the ceiling: 0.1 of 30 groups is 3 of them, not 4.
  quotas = np.ceil(np.round(keep_ratio * np.arange(num_groups + 1), 6))
  kept = present & (rank < jnp.asarray(quotas)[jnp.sum(present)])
  return group.live & kept[jnp.where(group.live, group.buckets, 0)]
