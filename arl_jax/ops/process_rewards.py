"""Rewards of single turns, from judges or from log-probabilities."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, masking, members, returns, segments
from arl_jax.types import Array

_MODES = ("sum", "mean", "min", "prod", "last")


def _scores(
  name: str, scores: ArrayLike, turn_mask: ArrayLike
) -> tuple[Array, Array]:
  """Checks scores per turn; 0 where masked."""
  scores = checks.floats(name, scores, "[B, K]", (None, None))
  mask = checks.mask("turn_mask", turn_mask, "[B, K]", scores.shape)
  return jnp.where(mask, scores, 0.0), mask


def aggregate_process_rewards(
  scores: ArrayLike, turn_mask: ArrayLike, *, mode: str = "sum"
) -> Array:
  """Reduces the scores of a row's turns to one.

  sum, mean, min or prod over the turns, or the last turn's score

  Reference: https://arxiv.org/abs/2305.20050 (prod),
  https://arxiv.org/abs/2504.15275 (min against sum)

  Args:
    scores: `[B, K]` score of each turn; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    mode: "sum", "mean", "min", "prod" or "last".

  Returns:
    `[B]` float32; 0 for a row without turns.

  Raises:
    ValueError: on shapes that differ or an unknown mode.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> scores, mask = jnp.array([[0.5, 0.25, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.aggregate_process_rewards(scores, mask, mode="min"))
    [0.25]
  """
  checks.choice("mode", mode, _MODES)
  scores, mask = _scores("scores", scores, turn_mask)
  if mode == "sum":
    return jnp.sum(scores, axis=1)
  if mode == "mean":
    return masking.masked_mean(scores, mask, axis=1)
  live = jnp.any(mask, axis=1)
  if mode == "min":
    lowest = jnp.min(scores, axis=1, where=mask, initial=float("inf"))
    return jnp.where(live, lowest, 0.0)
  if mode == "prod":
    product = jnp.prod(jnp.where(mask, scores, 1.0), axis=1)
    return jnp.where(live, product, 0.0)
  place = jnp.arange(mask.shape[1])
  is_last = mask & (place == jnp.sum(mask, axis=1, keepdims=True) - 1)
  return jnp.sum(jnp.where(is_last, scores, 0.0), axis=1)


def soft_min_process_rewards(
  scores: ArrayLike, turn_mask: ArrayLike, *, temperature: float = 0.1
) -> Array:
  """Rewards whose sum is close to the lowest score of the row.

  r*_k = r_k · softmax(-r / temperature)_k

  Reference: https://arxiv.org/abs/2504.15275 (PURE)

  Args:
    scores: `[B, K]` score of each turn; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    temperature: the lower, the closer to the minimum; above 0.

  Returns:
    `[B, K]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ or a temperature of 0 or less.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> scores, mask = jnp.array([[0.5, 0.5, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.soft_min_process_rewards(scores, mask))
    [[0.25 0.25 0.  ]]
  """
  checks.positive("temperature", temperature)
  scores, mask = _scores("scores", scores, turn_mask)
  logits = -scores / temperature
  highest = jnp.max(
    logits, axis=1, keepdims=True, where=mask, initial=-float("inf")
  )
  offset = jax.lax.stop_gradient(jnp.where(mask, highest, 0.0))
  powers = jnp.where(mask, jnp.exp(logits - offset), 0.0)
  total = jnp.sum(powers, axis=1, keepdims=True)
  return scores * powers / jnp.where(total > 0, total, 1.0)


def implicit_process_rewards(
  logprobs: ArrayLike,
  ref_logprobs: ArrayLike,
  mask: ArrayLike,
  *,
  beta: float = 0.05,
) -> Array:
  """Rewards per token that a reward model trained on outcomes implies.

  r_t = β (log π_φ - log π_ref)

  Reference: https://arxiv.org/abs/2502.01456 (PRIME)

  Args:
    logprobs: `[B, T]` log-probability of each token under the reward model.
    ref_logprobs: `[B, T]` the same under its frozen reference.
    mask: bool `[B, T]` 1 where a token counts.
    beta: β.

  Returns:
    `[B, T]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logprobs, ref = jnp.array([[-1.0, 3.0]]), jnp.array([[-2.0, 0.0]])
    >>> print(
    ...   arl.implicit_process_rewards(
    ...     logprobs, ref, jnp.array([[1, 0]]), beta=0.5
    ...   )
    ... )
    [[0.5 0. ]]
  """
  logprobs = checks.floats("logprobs", logprobs, "[B, T]", (None, None))
  shape = logprobs.shape
  ref = checks.floats("ref_logprobs", ref_logprobs, "[B, T]", shape)
  mask = checks.mask("mask", mask, "[B, T]", shape)
  return beta * (jnp.where(mask, logprobs, 0.0) - jnp.where(mask, ref, 0.0))


def progress_loss(
  contributions: ArrayLike, turn_mask: ArrayLike, returns: ArrayLike
) -> Array:
  """Trains a head whose contributions per turn add up to the return.

  ℓ = (Σ_k c_k - R)²

  Reference: https://arxiv.org/abs/2505.20732 (SPA-RL)

  Args:
    contributions: `[B, K]` predicted share of each turn.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    returns: `[B]` return of each row; carries no gradient.

  Returns:
    `[B]` float32; 0 for a row without turns.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> shares, mask = jnp.array([[0.25, 0.25, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.progress_loss(shares, mask, jnp.array([1.0])))
    [0.25]
  """
  contributions, mask = _scores("contributions", contributions, turn_mask)
  total = checks.floats("returns", returns, "[B]", mask.shape[:1])
  total = jnp.where(jnp.any(mask, axis=1), total, 0.0)
  predicted = jnp.sum(contributions, axis=1)
  return (predicted - jax.lax.stop_gradient(total)) ** 2


def monte_carlo_targets(
  turn_rewards: ArrayLike,
  state_ids: ArrayLike,
  turn_mask: ArrayLike,
  *,
  num_states: int,
  discount: float = 1.0,
  row_mask: ArrayLike | None = None,
) -> Array:
  """Soft labels of turns: how well episodes went from there on.

  y_k = mean {clip(G, 0, 1) : same state}, G_k = r_k + γ G_{k+1}

  With an outcome of 0 or 1 and γ = 1 this is the share of the episodes through
  a state that succeeded. A turn without a state has its own return.

  Reference: https://arxiv.org/abs/2312.08935 (Math-Shepherd, soft estimate),
  https://arxiv.org/abs/2502.10325 (AgentPRM, with turns and a discount)

  Args:
    turn_rewards: `[B, K]` reward of each turn; never read where masked.
    state_ids: int32 `[B, K]` the state before each turn, -1 is none.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    num_states: a static int above every state id.
    discount: γ per turn, in [0, 1].
    row_mask: bool `[B]` False for a row that counts for nothing, None for
      none of them.

  Returns:
    `[B, K]` float32 in [0, 1]; 0 where masked.

  Raises:
    ValueError: on shapes that differ, ids or a discount out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> rewards, states = jnp.array([[0.0, 1.0], [0.0, 0.0]]), [[0, -1], [0, 1]]
    >>> print(
    ...   arl.monte_carlo_targets(
    ...     rewards, states, jnp.ones((2, 2), bool), num_states=2
    ...   )
    ... )
    [[0.5 1. ]
     [0.5 0. ]]
  """
  own = returns.turn_returns(turn_rewards, turn_mask, discount=discount)
  own, mask = members.live_turns("turn_rewards", own, turn_mask, row_mask)
  own = jnp.clip(own, 0.0, 1.0)
  peers = members.from_ids(
    "state_ids",
    state_ids,
    mask,
    num_name="num_states",
    num=num_states,
    lowest=-1,
  )
  shared = segments.mean(own, peers)
  return jnp.where(peers.live, shared, jnp.where(mask, own, 0.0))


def process_score_loss(
  logits: ArrayLike, targets: ArrayLike, turn_mask: ArrayLike
) -> Array:
  """Trains a score of each turn on soft labels.

  ℓ_k = -y log σ(z) - (1 - y) log(1 - σ(z)) = max(z, 0) - z y + log(1 + e^-|z|)

  Reference: https://arxiv.org/abs/2312.08935 (Math-Shepherd),
  https://arxiv.org/abs/2502.10325 (AgentPRM)

  Args:
    logits: `[B, K]` z, the score before the sigmoid.
    targets: `[B, K]` y in [0, 1]; carry no gradient.
    turn_mask: bool `[B, K]` the turns that count.

  Returns:
    `[B, K]` float32; 0 where masked. At best the entropy of y, not 0.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logits, mask = jnp.array([[0.0, 9.0]]), jnp.array([[1, 0]])
    >>> print(arl.process_score_loss(logits, jnp.array([[0.75, 9.0]]), mask))
    [[0.6931472 0.       ]]
  """
  logits, mask = _scores("logits", logits, turn_mask)
  targets = checks.floats("targets", targets, "[B, K]", mask.shape)
  targets = jax.lax.stop_gradient(jnp.where(mask, targets, 0.0))
  # softplus(z) - z y is the same and as stable: its input is masked already.
  return jnp.where(mask, jax.nn.softplus(logits) - logits * targets, 0.0)


def potential_rewards(
  values: ArrayLike, turn_mask: ArrayLike, *, discount: float = 1.0
) -> Array:
  """Rewards for progress that leave every return but the start's as it was.

  F_k = γ V_{k+1} - V_k, V = 0 after the last turn

  Σ_k γᵏ F_k = -V_0: episodes from the same start are ranked as before.

  Reference: Ng, Harada and Russell, "Policy invariance under reward
  transformations" (ICML 1999)

  Args:
    values: `[B, K]` V of the state before each turn; never read where masked.
    turn_mask: bool `[B, K]` the turns that took place, a prefix of each row.
    discount: γ per turn, in [0, 1], that of the advantage.

  Returns:
    `[B, K]` float32; 0 where masked.

  Raises:
    ValueError: on shapes that differ or a discount outside [0, 1].

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> values, mask = jnp.array([[0.25, 0.75, 9.0]]), jnp.array([[1, 1, 0]])
    >>> print(arl.potential_rewards(values, mask))
    [[ 0.5  -0.75  0.  ]]
  """
  checks.within("discount", discount, 0.0, 1.0)
  values, mask = _scores("values", values, turn_mask)
  following = jnp.pad(values, ((0, 0), (0, 1)))[:, 1:]
  return jnp.where(mask, discount * following - values, 0.0)
