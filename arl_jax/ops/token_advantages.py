"""Advantages of single tokens, whitened over the batch."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, masking, members, segments
from arl_jax.ops import returns as returns_ops
from arl_jax.types import Array


def reinforce_plus_plus_advantages(
  token_rewards: ArrayLike,
  action_mask: ArrayLike,
  *,
  discount: float = 1.0,
  row_mask: ArrayLike | None = None,
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
  mask = mask & members.live_rows(rewards, mask, row_mask)[:, None]
  returns = returns_ops.token_returns(rewards, mask, discount=discount)
  return masking.masked_whiten(returns, mask)


def reinforce_plus_plus_baseline_advantages(
  returns: ArrayLike,
  group_ids: ArrayLike,
  action_mask: ArrayLike,
  *,
  num_groups: int,
  row_mask: ArrayLike | None = None,
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
  # A row without action tokens is a rejected one.
  returns = jnp.where(jnp.any(mask, axis=1), returns, jnp.nan)
  returns, group = members.from_returns(
    returns, group_ids, row_mask, num=num_groups
  )
  mask = mask & group.live[:, None]
  centred = segments.centre(returns, group)[:, None]
  return masking.masked_whiten(jnp.where(mask, centred, 0.0), mask)
