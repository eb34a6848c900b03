"""Advantages of whole rows, from the returns of their group."""

import jax.numpy as jnp

from arl_jax.ops import checks
from arl_jax.ops import masking
from arl_jax.ops import returns as returns_ops
from arl_jax.ops import segments
from arl_jax.types import Array


def _group(
  returns: Array,
  group_ids: Array,
  row_mask: Array | None,
  num_groups: int,
  *,
  live: Array | None = None,
  ids_name: str = "group_ids",
  num_name: str = "num_groups",
) -> tuple[Array, segments.Members]:
  """Checks what a group-relative function takes; assigns rows to groups."""
  num_groups = checks.count(num_name, num_groups)
  returns = checks.floats("returns", returns, "[B]", (None,))
  group_ids = checks.ids(ids_name, group_ids, "[B]", returns.shape)
  if row_mask is not None:
    row_mask = checks.mask("row_mask", row_mask, "[B]", returns.shape)
  rows = segments.live_rows(returns, jnp.ones(returns.shape, bool), row_mask)
  if live is not None:
    rows = rows & live
  checks.ids_in_range(
    ids_name, group_ids, rows, num_name=num_name, num=num_groups
  )
  return returns, segments.assign(group_ids, rows, num_groups)


def group_relative_advantages(
  returns: Array,
  group_ids: Array,
  *,
  num_groups: int,
  scale: str = "std",
  ddof: int = 1,
  eps: float = 1e-6,
  row_mask: Array | None = None,
) -> Array:
  """Distance of each row from the mean of its group.

  A = (R - mean_g R) / (std_g R + eps), or without the division

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
  returns, members = _group(returns, group_ids, row_mask, num_groups)
  return segments.standardise(returns, members, scale=scale, ddof=ddof, eps=eps)


def leave_one_out_advantages(
  returns: Array,
  group_ids: Array,
  *,
  num_groups: int,
  row_mask: Array | None = None,
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
  returns, members = _group(returns, group_ids, row_mask, num_groups)
  num = segments.size(members)
  centred = segments.centre(returns, members)
  return centred * num / jnp.maximum(num - 1.0, 1.0)


def length_weighted_advantages(
  returns: Array,
  lengths: Array,
  group_ids: Array,
  *,
  num_groups: int,
  row_mask: Array | None = None,
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
  returns, members = _group(
    returns, group_ids, row_mask, num_groups, live=lengths > 0
  )
  shifted = segments.shift(returns, members)
  weights = jnp.where(members.live, lengths, 0.0)
  total = segments.total(weights, members)
  weighted = segments.total(weights * shifted, members)
  return shifted - weighted / jnp.where(total > 0, total, 1.0)


def group_policy_gradient_advantages(
  returns: Array,
  group_ids: Array,
  *,
  num_groups: int,
  row_mask: Array | None = None,
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
  returns, members = _group(returns, group_ids, row_mask, num_groups)
  varies = segments.highest(returns, members) > segments.lowest(
    returns, members
  )
  num_live = jnp.sum(members.live, dtype=jnp.float32)
  num_varied = jnp.sum(varies, dtype=jnp.float32)
  factor = num_live / jnp.maximum(num_varied, 1.0)
  return factor * segments.centre(returns, members)


def pass_at_k_advantages(
  returns: Array,
  group_ids: Array,
  *,
  num_groups: int,
  scale: str = "std",
  eps: float = 1e-6,
  row_mask: Array | None = None,
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
  returns, members = _group(returns, group_ids, row_mask, num_groups)
  top = segments.highest(returns, members)
  best = members.live & (returns == top)
  alone = segments.total(best.astype(jnp.float32), members) == 1.0
  leads = best & alone & (segments.size(members) > 1.0)
  # The best of the rest: the group's floor stands in for the best row.
  rest = jnp.where(best, segments.lowest(returns, members), returns)
  second = segments.highest(rest, members)
  lead = jnp.where(leads, top - second, 0.0)
  if scale == "none":
    return lead
  centred = segments.centre(returns, members)
  return lead / (segments.deviation(centred, members, ddof=1) + eps)


def reinforce_plus_plus_advantages(
  token_rewards: Array,
  action_mask: Array,
  *,
  discount: float = 1.0,
  row_mask: Array | None = None,
) -> Array:
  """Token returns, whitened over all action tokens of the batch.

  A = (G - mean G) / √(var G + 1e-8), G_t = r_t + γ G_{t'}

  Returns are carried across observations: an earlier turn keeps its credit.

  Reference: https://arxiv.org/abs/2501.03262

  Args:
    token_rewards: `[B, T]` reward of each token; never read where masked.
    action_mask: bool `[B, T]` 1 where the policy sampled the token.
    discount: γ per action token, in [0, 1].
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B, T]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ or a discount outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards, mask = jnp.array([[0.0, 7.0, 1.0]]), jnp.array([[1, 0, 1]])
    >>> advantages = arl.reinforce_plus_plus_advantages(
    ...   rewards, mask, discount=0.5
    ... )
    >>> print(advantages.round(3))
    [[-0.707  0.     0.707]]
  """
  rewards = checks.floats(
    "token_rewards", token_rewards, "[B, T]", (None, None)
  )
  mask = checks.mask("action_mask", action_mask, "[B, T]", rewards.shape)
  if row_mask is not None:
    row_mask = checks.mask("row_mask", row_mask, "[B]", mask.shape[:1])
  mask = mask & segments.live_rows(rewards, mask, row_mask)[:, None]
  returns = returns_ops.token_returns(rewards, mask, discount=discount)
  return masking.masked_whiten(returns, mask)


def reinforce_plus_plus_baseline_advantages(
  returns: Array,
  group_ids: Array,
  action_mask: Array,
  *,
  num_groups: int,
  row_mask: Array | None = None,
) -> Array:
  """Centred returns on every token, whitened over the batch.

  A_t = whiten(R - mean_g R), over all action tokens

  Whitening weighs rows by their length, so that a group without variance
  need not come out as 0.

  Reference: https://arxiv.org/abs/2501.03262

  Args:
    returns: `[B]` return of each row; NaN marks a row nobody could score.
    group_ids: int32 `[B]` rows of one task share an id.
    action_mask: bool `[B, T]` 1 where the policy sampled the token.
    num_groups: a static int above every group id.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B, T]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns, groups = jnp.array([1.0, 0.0]), jnp.array([0, 0])
    >>> advantages = arl.reinforce_plus_plus_baseline_advantages(
    ...   returns, groups, jnp.array([[1, 0], [1, 0]]), num_groups=1
    ... )
    >>> print(advantages.round(3))
    [[ 0.707  0.   ]
     [-0.707  0.   ]]
  """
  returns = checks.floats("returns", returns, "[B]", (None,))
  mask = checks.mask("action_mask", action_mask, "[B, T]", (returns.size, None))
  returns, members = _group(
    returns, group_ids, row_mask, num_groups, live=jnp.any(mask, axis=1)
  )
  mask = mask & members.live[:, None]
  centred = segments.centre(returns, members)[:, None]
  return masking.masked_whiten(jnp.where(mask, centred, 0.0), mask)


def tree_advantages(
  returns: Array,
  tree_ids: Array,
  group_ids: Array,
  *,
  num_trees: int,
  num_groups: int,
  eps: float = 1e-6,
  row_mask: Array | None = None,
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
  _, trees = _group(
    returns,
    tree_ids,
    row_mask,
    num_trees,
    ids_name="tree_ids",
    num_name="num_trees",
  )
  returns, groups = _group(returns, group_ids, row_mask, num_groups)
  return sum(
    segments.standardise(returns, members, scale="std", ddof=1, eps=eps)
    for members in (trees, groups)
  )
