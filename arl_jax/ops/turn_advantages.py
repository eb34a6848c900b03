"""Advantages of single turns, from their own rewards or values."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, members, segments
from arl_jax.ops import returns as returns_ops
from arl_jax.types import Array


def _rows(
  outcomes: ArrayLike, mask: Array, row_mask: ArrayLike | None
) -> tuple[Array, Array]:
  """Checks outcomes per row; returns them and the turns of scored rows."""
  outcomes = checks.floats("outcomes", outcomes, "[B]", mask.shape[:1])
  live = members.live_rows(outcomes, jnp.any(mask, axis=1), row_mask)
  mask = mask & live[:, None]
  return jnp.where(jnp.any(mask, axis=1), outcomes, 0.0), mask


def mt_grpo_advantages(
  turn_rewards: ArrayLike,
  outcomes: ArrayLike,
  group_ids: ArrayLike,
  turn_mask: ArrayLike,
  *,
  num_groups: int,
  turn_weight: float = 1.0,
  eps: float = 1e-4,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Outcome term on every turn plus a term for that turn's own reward.

  A_k = (O - mean_g O) / (std_g O + eps)
      + w · (r_k - mean_g r_k) / (std_g r_k + eps)

  Reference: https://arxiv.org/abs/2505.11821 (MT-GRPO)

  Args:
    turn_rewards: `[B, K]` reward of each turn; never read where masked.
    outcomes: `[B]` outcome of each row; NaN marks one nobody could score.
    group_ids: int32 `[B]` rows of one task share an id.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    num_groups: a static int above every group id.
    turn_weight: w of the turn term.
    eps: added to the sample deviation.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B, K]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards, outcomes = jnp.array([[1.0], [0.0]]), jnp.array([0.0, 1.0])
    >>> advantages = arl.mt_grpo_advantages(
    ...   rewards,
    ...   outcomes,
    ...   jnp.array([0, 0]),
    ...   jnp.ones((2, 1), bool),
    ...   num_groups=1,
    ...   turn_weight=2.0,
    ... )
    >>> print(advantages.round(2))
    [[ 0.71]
     [-0.71]]
  """
  rewards, mask = members.live_turns(
    "turn_rewards", turn_rewards, turn_mask, row_mask
  )
  outcomes, mask = _rows(outcomes, mask, row_mask)
  num_turns = mask.shape[1]
  groups = members.from_ids(
    "group_ids",
    group_ids,
    jnp.any(mask, axis=1),
    num_name="num_groups",
    num=num_groups,
  )
  outcome_term = segments.standardise(
    outcomes, groups, scale="std", ddof=1, eps=eps
  )
  # One group per task and turn: turn k is compared with turn k alone.
  cells = groups.buckets[:, None] * num_turns + jnp.arange(num_turns)
  same_turn = members.assign(
    cells, mask & groups.live[:, None], groups.num * num_turns
  )
  turn_term = segments.standardise(
    rewards, same_turn, scale="std", ddof=1, eps=eps
  )
  return jnp.where(mask, outcome_term[:, None] + turn_weight * turn_term, 0.0)


def igpo_advantages(
  answer_logprobs: ArrayLike,
  outcomes: ArrayLike,
  group_ids: ArrayLike,
  turn_mask: ArrayLike,
  *,
  num_groups: int,
  discount: float = 1.0,
  eps: float = 1e-6,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Rewards each turn by what it taught the policy about the answer.

  b_k = exp(mean log-prob of the gold answer before turn k)
  r_k = b_{k+1} - b_k, the last turn's is the outcome
  z = (r - mean_g r) / (std_g r + eps), over all turns of the group
  A_k = z_k + γ A_{k+1}

  Reference: https://arxiv.org/abs/2510.14967 (IGPO)

  Args:
    answer_logprobs: `[B, K + 1]` mean log-probability of the gold answer's
      tokens before each turn; carries no gradient.
    outcomes: `[B]` outcome of each row; NaN marks one nobody could score.
    group_ids: int32 `[B]` rows of one task share an id.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    num_groups: a static int above every group id.
    discount: γ per turn, in [0, 1], applied after the z-score.
    eps: added to the sample deviation.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B, K]` float32; 0 where masked and in a group of one row.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> beliefs, outcomes = jnp.zeros((2, 2)), jnp.array([1.0, 0.0])
    >>> groups, mask = jnp.array([0, 0]), jnp.ones((2, 1), bool)
    >>> advantages = arl.igpo_advantages(
    ...   beliefs, outcomes, groups, mask, num_groups=1
    ... )
    >>> print(advantages.round(2))
    [[ 0.71]
     [-0.71]]
  """
  checks.within("discount", discount, 0.0, 1.0)
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", (None, None))
  num_rows, num_turns = mask.shape
  answer_logprobs = checks.floats(
    "answer_logprobs",
    answer_logprobs,
    "[B, K + 1]",
    (num_rows, num_turns + 1),
  )
  before, mask = members.live_turns(
    "answer_logprobs", answer_logprobs[:, :num_turns], mask, row_mask
  )
  outcomes, mask = _rows(outcomes, mask, row_mask)
  beliefs = jax.lax.stop_gradient(jnp.exp(jnp.where(mask, before, 0.0)))
  nothing = jnp.zeros((num_rows, 1))
  goes_on = jnp.concatenate([mask, nothing.astype(bool)], axis=1)[:, 1:]
  after = jnp.concatenate([beliefs, nothing], axis=1)[:, 1:]
  gains = jnp.where(goes_on, after - beliefs, outcomes[:, None])
  rows = members.from_ids(
    "group_ids",
    group_ids,
    jnp.any(mask, axis=1),
    num_name="num_groups",
    num=num_groups,
  )
  has_peers = (segments.size(rows) > 1.0)[:, None]
  pooled = members.assign(rows.buckets[:, None] + 0 * mask, mask, rows.num)
  scores = segments.standardise(gains, pooled, scale="std", ddof=1, eps=eps)
  scores = jnp.where(has_peers & mask, scores, 0.0)
  return returns_ops.carried_returns(scores, mask, discount)


def state_value_advantages(
  values: ArrayLike,
  turn_rewards: ArrayLike,
  turn_mask: ArrayLike,
  *,
  discount: float = 1.0,
) -> Array:
  """Temporal difference of the values of states, from rollouts or a critic.

  A_k = r_k + γ V_{k+1} - V_k

  Reference: https://arxiv.org/abs/2410.01679 (VinePPO)

  Args:
    values: `[B, K + 1]` value before each turn and after the last; the value
      after the last turn is read: give 0 where the task ended.
    turn_rewards: `[B, K]` reward of each turn; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    discount: γ per turn, in [0, 1].

  Returns:
    `[B, K]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit or a discount outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> values, rewards = jnp.array([[0.5, 0.75, 0.0]]), jnp.array([[0.0, 1.0]])
    >>> mask = jnp.ones((1, 2), bool)
    >>> print(arl.state_value_advantages(values, rewards, mask))
    [[0.25 0.25]]
  """
  checks.within("discount", discount, 0.0, 1.0)
  rewards = checks.floats("turn_rewards", turn_rewards, "[B, K]", (None, None))
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", rewards.shape)
  rewards = jnp.where(mask, rewards, 0.0)
  num_rows, num_turns = mask.shape
  values = checks.floats(
    "values", values, "[B, K + 1]", (num_rows, num_turns + 1)
  )
  before = jnp.where(mask, values[:, :-1], 0.0)
  after = jnp.where(mask, values[:, 1:], 0.0)
  return rewards + discount * after - before
