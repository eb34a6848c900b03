"""Policy losses, one number per token, to be minimised."""

import jax
import jax.numpy as jnp

from arl_jax.ops import checks
from arl_jax.ops import importance
from arl_jax.ops import masking
from arl_jax.ops import turns
from arl_jax.types import Array


def _masked(name: str, x: Array, mask: Array) -> Array:
  """Checks a `[B, T]` array; 0 where masked."""
  return jnp.where(mask, checks.floats(name, x, "[B, T]", mask.shape), 0.0)


def _costs(advantages: Array, mask: Array) -> Array:
  """Spreads `[B]`, `[B, 1]` or `[B, T]` advantages over tokens, negated."""
  advantages = jnp.asarray(advantages)
  num_rows, num_tokens = mask.shape
  allowed = ((num_rows,), (num_rows, 1), (num_rows, num_tokens))
  if advantages.shape not in allowed:
    raise ValueError(
      f"advantages has shape {advantages.shape}; expected [B], [B, 1] or "
      f"[B, T], here one of {allowed}"
    )
  if advantages.ndim == 1:
    advantages = advantages[:, None]
  costs = jnp.where(mask, -advantages.astype(jnp.float32), 0.0)
  return jax.lax.stop_gradient(costs)


def _mask(mask: Array) -> Array:
  """Checks the mask that every loss takes."""
  return checks.mask("mask", mask, "[B, T]", (None, None))


def _log_ratio(
  logprobs: Array, old_logprobs: Array, mask: Array, *, old: str
) -> Array:
  """log π - log π_old, 0 where masked; only π carries a gradient."""
  new = _masked("logprobs", logprobs, mask)
  return new - jax.lax.stop_gradient(_masked(old, old_logprobs, mask))


def _clip(
  ratio: Array,
  costs: Array,
  clip_low: float,
  clip_high: float,
) -> Array:
  """The pessimistic of the clipped and the plain surrogate, as a loss."""
  checks.within("clip_low", clip_low, 0.0, 1.0)
  checks.within("clip_high", clip_high, 0.0)
  clipped = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
  return jnp.maximum(costs * ratio, costs * clipped)


def policy_gradient_loss(
  logprobs: Array, advantages: Array, mask: Array
) -> Array:
  """The score-function loss, for samples of the current policy.

  ℓ = -A log π

  Reference: Williams, "Simple statistical gradient-following algorithms for
  connectionist reinforcement learning", 1992.

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    advantages: `[B]`, `[B, 1]` or `[B, T]`; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.

  Returns:
    `[B, T]` float32, unreduced; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logprobs, mask = jnp.array([[-0.5, -9.0]]), jnp.array([[1, 0]])
    >>> print(arl.policy_gradient_loss(logprobs, jnp.array([2.0]), mask))
    [[1. 0.]]
  """
  mask = _mask(mask)
  return _costs(advantages, mask) * _masked("logprobs", logprobs, mask)


def clipped_surrogate_loss(
  logprobs: Array,
  old_logprobs: Array,
  advantages: Array,
  mask: Array,
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  dual_clip: float | None = None,
) -> Array:
  """The clipped surrogate of PPO, GRPO and DAPO.

  ℓ = max(-A ρ, -A clip(ρ, 1 - low, 1 + high)), ρ = π / π_old
  and with dual_clip c, where A < 0: min(ℓ, -A c)

  Reference: https://arxiv.org/abs/1707.06347, clip-higher
  https://arxiv.org/abs/2503.14476, dual clip https://arxiv.org/abs/1912.09729

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    old_logprobs: `[B, T]` the same before this batch's first update.
    advantages: `[B]`, `[B, 1]` or `[B, T]`; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    clip_low: how far the ratio may fall below 1.
    clip_high: how far the ratio may rise above 1.
    dual_clip: bound above 1 on the ratio where A < 0, none if None.

  Returns:
    `[B, T]` float32, unreduced; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit or a clip out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new, old = jnp.log(jnp.array([[0.6]])), jnp.log(jnp.array([[0.4]]))
    >>> print(arl.clipped_surrogate_loss(new, old, jnp.array([1.0]), jnp.ones((1, 1))))
    [[-1.2]]
  """
  mask = _mask(mask)
  costs = _costs(advantages, mask)
  log_ratio = _log_ratio(logprobs, old_logprobs, mask, old="old_logprobs")
  ratio = masking.exp_log_ratio(log_ratio)
  loss = _clip(ratio, costs, clip_low, clip_high)
  if dual_clip is None:
    return loss
  checks.within("dual_clip", dual_clip, 1.0)
  bounded = jnp.minimum(loss, costs * dual_clip)
  return jnp.where(costs > 0, bounded, loss)


def decoupled_surrogate_loss(
  logprobs: Array,
  proximal_logprobs: Array,
  behavior_logprobs: Array,
  advantages: Array,
  mask: Array,
  *,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  behavior_cap: float | None = None,
  cap_mode: str = "clamp",
) -> Array:
  """The clipped surrogate whose centre is not the policy that sampled.

  ℓ = w · max(-A ρ, -A clip(ρ, 1 - low, 1 + high))
  ρ = π / π_proximal, w = π_proximal / π_behavior without gradient

  Reference: https://arxiv.org/abs/2110.00641, https://arxiv.org/abs/2505.24298

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    proximal_logprobs: `[B, T]` the same before this batch's first update.
    behavior_logprobs: `[B, T]` the same when it was sampled; NaN is a missing
      one, its weight is 1.
    advantages: `[B]`, `[B, 1]` or `[B, T]`; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    clip_low: how far the ratio may fall below 1.
    clip_high: how far the ratio may rise above 1.
    behavior_cap: bound on w, none if None.
    cap_mode: "clamp" to the cap, or "mask" the tokens above it.

  Returns:
    `[B, T]` float32, unreduced; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit or an unknown cap_mode.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new, old = jnp.log(jnp.array([[0.5]])), jnp.log(jnp.array([[0.25]]))
    >>> one = jnp.ones((1, 1))
    >>> print(arl.decoupled_surrogate_loss(new, new, old, one, one))
    [[-2.]]
  """
  checks.choice("cap_mode", cap_mode, ("clamp", "mask"))
  mask = _mask(mask)
  surrogate = clipped_surrogate_loss(
    logprobs,
    checks.floats("proximal_logprobs", proximal_logprobs, "[B, T]", mask.shape),
    advantages,
    mask,
    clip_low=clip_low,
    clip_high=clip_high,
  )
  weights = importance.token_importance_weights(
    proximal_logprobs,
    behavior_logprobs,
    mask,
    mode="truncate" if cap_mode == "clamp" else "mask",
    upper=behavior_cap,
  )
  return weights * surrogate


def gspo_loss(
  logprobs: Array,
  old_logprobs: Array,
  advantages: Array,
  mask: Array,
  *,
  clip_low: float = 3e-4,
  clip_high: float = 4e-4,
) -> Array:
  """The clipped surrogate on the ratio of a whole row.

  s = exp(mean_t log ρ_t); token t reads s · π_t / sg[π_t], so that each of
  n tokens carries 1 / n of the row's gradient

  Reference: https://arxiv.org/abs/2507.18071

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    old_logprobs: `[B, T]` the same before this batch's first update.
    advantages: `[B]`, `[B, 1]` or `[B, T]`; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    clip_low: how far the row's ratio may fall below 1.
    clip_high: how far the row's ratio may rise above 1.

  Returns:
    `[B, T]` float32, unreduced, for mode "sequence_mean"; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit or a clip out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logprobs, mask = jnp.array([[-1.0, -2.0]]), jnp.ones((1, 2))
    >>> print(arl.gspo_loss(logprobs, logprobs, jnp.array([1.0]), mask))
    [[-1. -1.]]
  """
  mask = _mask(mask)
  costs = _costs(advantages, mask)
  log_ratio = _log_ratio(logprobs, old_logprobs, mask, old="old_logprobs")
  row = jnp.where(
    mask, masking.masked_mean(log_ratio, mask, axis=1)[:, None], 0.0
  )
  own = log_ratio - jax.lax.stop_gradient(log_ratio)
  ratio = masking.exp_log_ratio(jax.lax.stop_gradient(row) + own)
  return _clip(ratio, costs, clip_low, clip_high)


def turn_surrogate_loss(
  logprobs: Array,
  old_logprobs: Array,
  advantages: Array,
  mask: Array,
  turn_ids: Array,
  *,
  num_turns: int,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
) -> Array:
  """The clipped surrogate on one ratio per turn.

  ρ_k = exp(mean_{t in turn k} log π_t / π_old,t), read by each of its tokens

  Reference: https://arxiv.org/abs/2512.17008

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    old_logprobs: `[B, T]` the same before this batch's first update.
    advantages: `[B]`, `[B, 1]` or `[B, T]`; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    turn_ids: int32 `[B, T]` the turn of an action token, -1 elsewhere.
    num_turns: K, a static int above every turn id.
    clip_low: how far a turn's ratio may fall below 1.
    clip_high: how far a turn's ratio may rise above 1.

  Returns:
    `[B, T]` float32, unreduced; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit, a clip or a turn id out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new, old = jnp.log(jnp.array([[0.3, 0.3]])), jnp.log(jnp.array([[0.2, 0.45]]))
    >>> one, turn_ids = jnp.ones((1, 2)), jnp.array([[0, 0]])
    >>> loss = arl.turn_surrogate_loss(new, old, one, one, turn_ids, num_turns=1)
    >>> print(loss.round(4))
    [[-1. -1.]]
  """
  mask = _mask(mask)
  turn_ids = checks.ids("turn_ids", turn_ids, "[B, T]", mask.shape)
  turn_ids = jnp.where(mask, turn_ids, -1)
  mask = mask & (turn_ids >= 0)
  costs = _costs(advantages, mask)
  log_ratio = _log_ratio(logprobs, old_logprobs, mask, old="old_logprobs")
  per_turn = turns.mean_over_turns(log_ratio, turn_ids, num_turns=num_turns)
  ratio = masking.exp_log_ratio(turns.broadcast_turns(per_turn, turn_ids))
  return _clip(ratio, costs, clip_low, clip_high)


def cispo_loss(
  logprobs: Array,
  old_logprobs: Array,
  advantages: Array,
  mask: Array,
  *,
  clip_low: float = 1.0,
  clip_high: float = 4.0,
) -> Array:
  """The score-function loss under a clipped weight: no token is silenced.

  ℓ = -sg[clip(ρ, 1 - low, 1 + high)] A log π, ρ = π / π_old

  Reference: https://arxiv.org/abs/2506.13585

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    old_logprobs: `[B, T]` the same before this batch's first update.
    advantages: `[B]`, `[B, 1]` or `[B, T]`; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    clip_low: how far the weight may fall below 1; 1 is no bound.
    clip_high: how far the weight may rise above 1.

  Returns:
    `[B, T]` float32, unreduced; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit or a clip out of range.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new, old = jnp.array([[-1.0]]), jnp.array([[-4.0]])
    >>> print(arl.cispo_loss(new, old, jnp.ones(1), jnp.ones((1, 1))))
    [[5.]]
  """
  checks.within("clip_low", clip_low, 0.0, 1.0)
  checks.within("clip_high", clip_high, 0.0)
  mask = _mask(mask)
  costs = _costs(advantages, mask)
  log_ratio = _log_ratio(logprobs, old_logprobs, mask, old="old_logprobs")
  ratio = masking.exp_log_ratio(log_ratio)
  weights = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
  logprobs = _masked("logprobs", logprobs, mask)
  return jax.lax.stop_gradient(weights) * costs * logprobs


def sapo_loss(
  logprobs: Array,
  old_logprobs: Array,
  advantages: Array,
  mask: Array,
  *,
  tau_positive: float = 1.0,
  tau_negative: float = 1.05,
) -> Array:
  """The surrogate behind a soft gate instead of a clip.

  ℓ = -(4 / τ) σ(τ (ρ - 1)) A, τ chosen by the sign of A

  Reference: https://arxiv.org/abs/2511.20347

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    old_logprobs: `[B, T]` the same before this batch's first update.
    advantages: `[B]`, `[B, 1]` or `[B, T]`; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    tau_positive: sharpness of the gate where A > 0.
    tau_negative: sharpness of the gate elsewhere.

  Returns:
    `[B, T]` float32, unreduced; 0 where masked.

  Raises:
    ValueError: on shapes that do not fit or a τ of 0 or less.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> same = jnp.array([[-1.0]])
    >>> print(arl.sapo_loss(same, same, jnp.ones(1), jnp.ones((1, 1))))
    [[-2.]]
  """
  checks.positive("tau_positive", tau_positive)
  checks.positive("tau_negative", tau_negative)
  mask = _mask(mask)
  costs = _costs(advantages, mask)
  log_ratio = _log_ratio(logprobs, old_logprobs, mask, old="old_logprobs")
  ratio = masking.exp_log_ratio(log_ratio)
  tau = jnp.where(costs < 0, tau_positive, tau_negative)
  gate = 4.0 / tau * jax.nn.sigmoid(tau * (ratio - 1.0))
  return gate * costs


def mirror_descent_loss(
  logprobs: Array,
  old_logprobs: Array,
  advantages: Array,
  mask: Array,
  *,
  tau: float,
) -> Array:
  """Squared distance of each row from its mirror-descent optimum.

  ℓ = (A - τ Σ_t log π / π_old)²

  Reference: https://arxiv.org/abs/2501.12599

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    old_logprobs: `[B, T]` the same before this batch's first update.
    advantages: `[B]` return minus baseline; carries no gradient.
    mask: bool `[B, T]` 1 where a token counts.
    tau: strength of the pull to the old policy.

  Returns:
    `[B]` float32; 0 for a row without live tokens.

  Raises:
    ValueError: on shapes that do not fit or a negative τ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> new, old, mask = jnp.array([[-1.0]]), jnp.array([[-2.0]]), jnp.ones((1, 1))
    >>> print(arl.mirror_descent_loss(new, old, jnp.array([1.0]), mask, tau=0.5))
    [0.25]
  """
  checks.within("tau", tau, 0.0)
  mask = _mask(mask)
  live = jnp.any(mask, axis=1)
  advantages = checks.floats("advantages", advantages, "[B]", live.shape)
  advantages = jax.lax.stop_gradient(jnp.where(live, advantages, 0.0))
  log_ratio = _log_ratio(logprobs, old_logprobs, mask, old="old_logprobs")
  return (advantages - tau * jnp.sum(log_ratio, axis=1)) ** 2


def masked_cross_entropy(logprobs: Array, mask: Array) -> Array:
  """Supervised loss on the tokens that the mask names.

  ℓ = -log π

  Args:
    logprobs: `[B, T]` log-probability of each token under the current policy.
    mask: bool `[B, T]` 1 on actions to imitate them, or on observations to
      predict them.

  Returns:
    `[B, T]` float32, unreduced; 0 where masked.

  Raises:
    ValueError: on shapes that differ.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logprobs = jnp.array([[0.0, -0.5, -2.0]])
    >>> print(arl.masked_cross_entropy(logprobs, jnp.array([[0, 1, 1]])))
    [[0.  0.5 2. ]]
  """
  mask = _mask(mask)
  return jnp.where(mask, -_masked("logprobs", logprobs, mask), 0.0)
