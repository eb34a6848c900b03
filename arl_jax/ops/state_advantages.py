"""Advantages of single turns, from others that met the same state."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, members, segments
from arl_jax.ops import returns as returns_ops
from arl_jax.types import Array

_SCALES = ("std", "none")


def step_baseline_advantages(
  returns: ArrayLike,
  state_ids: ArrayLike,
  turn_mask: ArrayLike,
  *,
  num_states: int,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Distance of each turn's return from the mean over its state.

  A_k = G_k - mean {G : same state}

  Reference: https://arxiv.org/abs/2505.10978, its step term without scale.

  Args:
    returns: `[B, K]` return of each turn; never read where masked.
    state_ids: int32 `[B, K]` the state before each turn, -1 is none.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    num_states: a static int above every state id.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B, K]` float32; 0 where masked and where nobody shares the state.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns, states = jnp.array([[1.0, 5.0], [0.0, 7.0]]), [[0, -1], [0, 1]]
    >>> print(
    ...   arl.step_baseline_advantages(
    ...     returns, states, jnp.ones((2, 2), bool), num_states=2
    ...   )
    ... )
    [[ 0.5  0. ]
     [-0.5  0. ]]
  """
  returns, mask = members.live_turns("returns", returns, turn_mask, row_mask)
  peers = members.from_ids(
    "state_ids",
    state_ids,
    mask,
    num_name="num_states",
    num=num_states,
    lowest=-1,
  )
  return segments.centre(returns, peers)


def gigpo_advantages(
  turn_rewards: ArrayLike,
  state_ids: ArrayLike,
  group_ids: ArrayLike,
  turn_mask: ArrayLike,
  *,
  num_groups: int,
  num_states: int,
  discount: float = 0.95,
  step_weight: float = 1.0,
  scale: str = "std",
  eps: float = 1e-6,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Episode term over the group plus step term over shared states.

  A_k = (R - mean_g R) / F_g + w · (G_k - mean_s G) / F_s
  R = Σ r, G_k = Σ_{j ≥ k} γ^(j - k) r_j, F = std + eps, or 1

  Reference: https://arxiv.org/abs/2505.10978 (GiGPO)

  Args:
    turn_rewards: `[B, K]` reward of each turn; never read where masked. One
      row is one episode.
    state_ids: int32 `[B, K]` anchor state before each turn, -1 is none.
    group_ids: int32 `[B]` rows of one task share an id.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    num_groups: a static int above every group id.
    num_states: a static int above every state id.
    discount: γ of the step term, in [0, 1].
    step_weight: w of the step term.
    scale: "std" to divide by the sample deviation, "none" not to.
    eps: added to the deviation.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B, K]` float32; 0 where masked. A single member has an episode term of
    0, a state met once a step term of 0.

  Raises:
    ValueError: on shapes that differ, ids out of range, an unknown scale.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards = jnp.array([[0.0, 1.0], [0.0, 0.0]])
    >>> mask = jnp.ones((2, 2), bool)
    >>> states, groups = jnp.array([[0, 1], [0, 2]]), jnp.array([0, 0])
    >>> print(
    ...   arl.gigpo_advantages(
    ...     rewards,
    ...     states,
    ...     groups,
    ...     mask,
    ...     num_groups=1,
    ...     num_states=3,
    ...     discount=0.5,
    ...     scale="none",
    ...   )
    ... )
    [[ 0.75  0.5 ]
     [-0.75 -0.5 ]]
  """
  checks.choice("scale", scale, _SCALES)
  checks.within("discount", discount, 0.0, 1.0)
  rewards, mask = members.live_turns(
    "turn_rewards", turn_rewards, turn_mask, row_mask
  )
  groups = members.from_ids(
    "group_ids",
    group_ids,
    jnp.any(mask, axis=1),
    num_name="num_groups",
    num=num_groups,
  )
  states = members.from_ids(
    "state_ids",
    state_ids,
    mask,
    num_name="num_states",
    num=num_states,
    lowest=-1,
  )
  episode = segments.standardise(
    jnp.sum(rewards, axis=1), groups, scale=scale, ddof=1, eps=eps
  )
  following = returns_ops.carried_returns(rewards, mask, discount)
  step = segments.standardise(following, states, scale=scale, ddof=1, eps=eps)
  return jnp.where(mask, episode[:, None] + step_weight * step, 0.0)


def hgpo_advantages(
  returns: ArrayLike,
  context_ids: ArrayLike,
  turn_mask: ArrayLike,
  *,
  num_contexts: int,
  alpha: float = 1.0,
  scale: str = "none",
  eps: float = 1e-6,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Baselines over ever longer shared histories, averaged.

  A_k = Σ_c w_c A_c / Σ_c w_c, w_c = (c + 1)^alpha, over the levels c at
  which two or more turns share the context

  Reference: https://arxiv.org/abs/2602.22817 (HGPO)

  Args:
    returns: `[B, K]` return of each turn; never read where masked.
    context_ids: int32 `[C, B, K]` level c tells apart the state and the c
      states before it, -1 is none; see `history_context_ids`.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    num_contexts: a static int above every context id.
    alpha: how much more a longer history weighs.
    scale: "std" to divide by the population deviation, "none" not to.
    eps: added to the deviation.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B, K]` float32; 0 where masked and where no level is shared.

  Raises:
    ValueError: on shapes that differ, ids out of range, an unknown scale.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> returns, contexts = jnp.array([[1.0], [0.0]]), jnp.array([[[0], [0]]])
    >>> print(
    ...   arl.hgpo_advantages(
    ...     returns, contexts, jnp.ones((2, 1), bool), num_contexts=1
    ...   )
    ... )
    [[ 0.5]
     [-0.5]]
  """
  checks.choice("scale", scale, _SCALES)
  num_contexts = checks.count("num_contexts", num_contexts)
  returns, mask = members.live_turns("returns", returns, turn_mask, row_mask)
  context_ids = checks.ids(
    "context_ids", context_ids, "[C, B, K]", (None, *mask.shape)
  )
  checks.ids_in_range(
    "context_ids",
    context_ids,
    jnp.broadcast_to(mask, context_ids.shape),
    num_name="num_contexts",
    num=num_contexts,
    lowest=-1,
  )

  def level(ids: Array) -> tuple[Array, Array]:
    peers = members.assign(ids, mask, num_contexts)
    advantages = segments.standardise(
      returns, peers, scale=scale, ddof=0, eps=eps
    )
    return advantages, segments.size(peers) > 1.0

  advantages, shared = jax.vmap(level)(context_ids)
  weights = (1.0 + jnp.arange(context_ids.shape[0])) ** alpha
  weights = jnp.where(shared, weights[:, None, None], 0.0)
  total = jnp.sum(weights, axis=0)
  weighted = jnp.sum(weights * advantages, axis=0)
  return weighted / jnp.where(total > 0, total, 1.0)


def salt_advantages(
  advantages: ArrayLike,
  edge_ids: ArrayLike,
  turn_mask: ArrayLike,
  *,
  num_edges: int,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Averages the advantage over the episodes that take the same step.

  A_k = mean {A of the row : same edge}, over occurrences

  Episodes that branch from a shared prefix are a special case: the prefix
  gets the mean of its branches, which ARPO (https://arxiv.org/abs/2507.19849)
  calls the hard estimate.

  Reference: https://arxiv.org/abs/2510.20022 (SALT)

  Args:
    advantages: `[B]` advantage of each row.
    edge_ids: int32 `[B, K]` names (state, action, next state), -1 is none;
      see `salt_edge_ids`.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    num_edges: a static int above every edge id.
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B, K]` float32; 0 where masked, the row's own advantage where the edge
    is none or taken once.

  Raises:
    ValueError: on shapes that differ or ids out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> advantages, edges = jnp.array([1.0, -1.0]), jnp.array([[0, -1], [0, 1]])
    >>> mask = jnp.ones((2, 2), bool)
    >>> print(arl.salt_advantages(advantages, edges, mask, num_edges=2))
    [[ 0.  1.]
     [ 0. -1.]]
  """
  advantages = checks.floats("advantages", advantages, "[B]", (None,))
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", (advantages.size, None))
  spread = jnp.broadcast_to(advantages[:, None], mask.shape)
  spread, mask = members.live_turns("advantages", spread, mask, row_mask)
  peers = members.from_ids(
    "edge_ids",
    edge_ids,
    mask,
    num_name="num_edges",
    num=num_edges,
    lowest=-1,
  )
  merged = segments.size(peers) > 1.0
  return jnp.where(merged, segments.mean(spread, peers), spread)
