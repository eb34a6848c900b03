"""Advantages of whole rows, from the returns of their group."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, members, segments
from arl_jax.types import Array


def group_relative_advantages(
  returns: ArrayLike,
  group_ids: ArrayLike,
  *,
  num_groups: int,
  scale: str = "std",
  ddof: int = 1,
  eps: float = 1e-6,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Distance of each row from the mean of its group.

  A = (R - mean_g R) / (std_g R + eps), or without the division

  Groups may differ in size, so nothing has to be repeated or left out to
  make them equal, as M-GRPO (https://arxiv.org/abs/2511.13288) does.

  Reference: https://arxiv.org/abs/2402.03300, without the division
  https://arxiv.org/abs/2503.20783

  Args:
    returns: `[B]` return of each row; NaN marks a row nobody could score.
    group_ids: int32 `[B]` rows of one task share an id.
    num_groups: a static int above every group id.
    scale: "std" to divide by the deviation of the group, "none" not to.
    ddof: 1 for the sample deviation, 0 for the population's.
    eps: added to the deviation.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B]` float32; 0 for rejected rows, single members and equal returns.

  Raises:
    ValueError: on shapes that differ, ids out of range, an unknown scale.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns, groups = jnp.array([1.0, 0.0, 5.0]), jnp.array([0, 0, 1])
    >>> print(
    ...   arl.group_relative_advantages(
    ...     returns, groups, num_groups=2, scale="none"
    ...   )
    ... )
    [ 0.5 -0.5  0. ]
  """
  checks.choice("scale", scale, ("std", "none"))
  returns, group = members.from_returns(
    returns, group_ids, row_mask, num=num_groups
  )
  return segments.standardise(returns, group, scale=scale, ddof=ddof, eps=eps)


def leave_one_out_advantages(
  returns: ArrayLike,
  group_ids: ArrayLike,
  *,
  num_groups: int,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Distance of each row from the mean of the others in its group.

  A_i = R_i - mean_{j ≠ i} R_j = n / (n - 1) · (R_i - mean R)

  Reference: https://arxiv.org/abs/2402.14740 (RLOO),
  https://arxiv.org/abs/2502.01600 (LOOP)

  Args:
    returns: `[B]` return of each row; NaN marks a row nobody could score.
    group_ids: int32 `[B]` rows of one task share an id.
    num_groups: a static int above every group id.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B]` float32; 0 for rejected rows and single members.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns, groups = jnp.array([1.0, 0.0, 5.0]), jnp.array([0, 0, 1])
    >>> print(arl.leave_one_out_advantages(returns, groups, num_groups=2))
    [ 1. -1.  0.]
  """
  returns, group = members.from_returns(
    returns, group_ids, row_mask, num=num_groups
  )
  num = segments.size(group)
  centred = segments.centre(returns, group)
  return centred * num / jnp.maximum(num - 1.0, 1.0)


def length_weighted_advantages(
  returns: ArrayLike,
  lengths: ArrayLike,
  group_ids: ArrayLike,
  *,
  num_groups: int,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Distance of each row from the baseline of least gradient variance.

  A_i = R_i - Σ_j l_j R_j / Σ_j l_j

  Reference: https://arxiv.org/abs/2505.23585 (OPO)

  Args:
    returns: `[B]` return of each row; NaN marks a row nobody could score.
    lengths: `[B]` action tokens of each row; a row with 0 is a rejected one.
    group_ids: int32 `[B]` rows of one task share an id.
    num_groups: a static int above every group id.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B]` float32; 0 for rejected rows and single members.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns, lengths = jnp.array([1.0, 0.0]), jnp.array([3, 1])
    >>> groups = jnp.array([0, 0])
    >>> print(
    ...   arl.length_weighted_advantages(
    ...     returns, lengths, groups, num_groups=1
    ...   )
    ... )
    [ 0.25 -0.75]
  """
  returns = checks.floats("returns", returns, "[B]", (None,))
  lengths = checks.floats("lengths", lengths, "[B]", returns.shape)
  returns = jnp.where(lengths > 0, returns, jnp.nan)
  returns, group = members.from_returns(
    returns, group_ids, row_mask, num=num_groups
  )
  shifted = segments.shift(returns, group)
  weights = jnp.where(group.live, lengths, 0.0)
  total = segments.total(weights, group)
  weighted = segments.total(weights * shifted, group)
  return shifted - weighted / jnp.where(total > 0, total, 1.0)


def group_policy_gradient_advantages(
  returns: ArrayLike,
  group_ids: ArrayLike,
  *,
  num_groups: int,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Centred returns, scaled up for the groups that teach nothing.

  A = α (R - mean_g R), α = live rows / live rows in groups with variance

  Reference: https://arxiv.org/abs/2504.02546 (GPG)

  Args:
    returns: `[B]` return of each row; NaN marks a row nobody could score.
    group_ids: int32 `[B]` rows of one task share an id.
    num_groups: a static int above every group id.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B]` float32; 0 for rejected rows, single members and equal returns.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns = jnp.array([1.0, 0.0, 1.0, 1.0])
    >>> groups = jnp.array([0, 0, 1, 1])
    >>> print(
    ...   arl.group_policy_gradient_advantages(returns, groups, num_groups=2)
    ... )
    [ 1. -1.  0.  0.]
  """
  returns, group = members.from_returns(
    returns, group_ids, row_mask, num=num_groups
  )
  varies = segments.highest(returns, group) > segments.lowest(returns, group)
  num_live = jnp.sum(group.live, dtype=jnp.float32)
  num_varied = jnp.sum(varies, dtype=jnp.float32)
  factor = num_live / jnp.maximum(num_varied, 1.0)
  return factor * segments.centre(returns, group)


def pass_at_k_advantages(
  returns: ArrayLike,
  group_ids: ArrayLike,
  *,
  num_groups: int,
  scale: str = "std",
  eps: float = 1e-6,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Credit to the best row of a group alone, by its lead on the second.

  A_best = (R_best - R_second) / (std_g R + eps), 0 for all others

  Reference: https://arxiv.org/abs/2503.19595

  Args:
    returns: `[B]` return of each row; NaN marks a row nobody could score.
    group_ids: int32 `[B]` rows of one task share an id.
    num_groups: a static int above every group id.
    scale: "std" to divide by the sample deviation, "none" not to.
    eps: added to the deviation.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B]` float32; all 0 in a group whose best is shared or single.

  Raises:
    ValueError: on shapes that differ, ids out of range, an unknown scale.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns, groups = jnp.array([1.0, 0.5, 0.0]), jnp.array([0, 0, 0])
    >>> print(
    ...   arl.pass_at_k_advantages(returns, groups, num_groups=1, scale="none")
    ... )
    [0.5 0.  0. ]
  """
  checks.choice("scale", scale, ("std", "none"))
  returns, group = members.from_returns(
    returns, group_ids, row_mask, num=num_groups
  )
  top = segments.highest(returns, group)
  best = group.live & (returns == top)
  alone = segments.total(best.astype(jnp.float32), group) == 1.0
  leads = best & alone & (segments.size(group) > 1.0)
  # The best of the rest: the group's floor stands in for the best row.
  rest = jnp.where(best, segments.lowest(returns, group), returns)
  second = segments.highest(rest, group)
  lead = jnp.where(leads, top - second, 0.0)
  if scale == "none":
    return lead
  centred = segments.centre(returns, group)
  return lead / (segments.deviation(centred, group, ddof=1) + eps)


def tree_advantages(
  returns: ArrayLike,
  tree_ids: ArrayLike,
  group_ids: ArrayLike,
  *,
  num_trees: int,
  num_groups: int,
  eps: float = 1e-6,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Distance of each leaf from its tree's mean plus from its group's.

  A = (R - mean_tree R) / (std_tree R + eps)
    + (R - mean_g R) / (std_g R + eps)

  Reference: https://arxiv.org/abs/2509.21240 (Tree-GRPO)

  Args:
    returns: `[B]` return of each leaf; NaN marks one nobody could score.
    tree_ids: int32 `[B]` leaves of one tree share an id; a tree has one task.
    group_ids: int32 `[B]` rows of one task share an id.
    num_trees: a static int above every tree id.
    num_groups: a static int above every group id.
    eps: added to the sample deviation.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B]` float32; 0 for rejected rows.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns = jnp.array([1.0, 0.0, 1.0, 0.0])
    >>> trees, groups = jnp.array([0, 0, 1, 1]), jnp.zeros(4, int)
    >>> advantages = arl.tree_advantages(
    ...   returns, trees, groups, num_trees=2, num_groups=1
    ... )
    >>> print(advantages.round(1))
    [ 1.6 -1.6  1.6 -1.6]
  """
  _, trees = members.from_returns(
    returns, tree_ids, row_mask, num=num_trees, name="tree"
  )
  returns, groups = members.from_returns(
    returns, group_ids, row_mask, num=num_groups
  )
  intra, inter = (
    segments.standardise(returns, peers, scale="std", ddof=1, eps=eps)
    for peers in (trees, groups)
  )
  return intra + inter
