"""Policy losses with a ratio per token, to be minimised."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks, importance, masking, surrogate
from arl_jax.types import Array


def policy_gradient_loss(
  logprobs: ArrayLike, advantages: ArrayLike, mask: ArrayLike
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
  mask = surrogate.check_mask(mask)
  return surrogate.costs(advantages, mask) * surrogate.masked(
    "logprobs", logprobs, mask
  )


def clipped_surrogate_loss(
  logprobs: ArrayLike,
  old_logprobs: ArrayLike,
  advantages: ArrayLike,
  mask: ArrayLike,
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
    >>> one, mask = jnp.ones((1, 1)), jnp.ones((1, 1), bool)
    >>> print(arl.clipped_surrogate_loss(new, old, one, mask))
    [[-1.2]]
  """
  mask = surrogate.check_mask(mask)
  costs = surrogate.costs(advantages, mask)
  log_ratio = surrogate.log_ratio(
    logprobs, old_logprobs, mask, old="old_logprobs"
  )
  ratio = masking.exp_log_ratio(log_ratio)
  loss = surrogate.clip(ratio, costs, clip_low, clip_high)
  if dual_clip is None:
    return loss
  checks.within("dual_clip", dual_clip, 1.0)
  bounded = jnp.minimum(loss, costs * dual_clip)
  return jnp.where(costs > 0, bounded, loss)


def decoupled_surrogate_loss(
  logprobs: ArrayLike,
  proximal_logprobs: ArrayLike,
  behavior_logprobs: ArrayLike,
  advantages: ArrayLike,
  mask: ArrayLike,
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
    >>> one, mask = jnp.ones((1, 1)), jnp.ones((1, 1), bool)
    >>> print(arl.decoupled_surrogate_loss(new, new, old, one, mask))
    [[-2.]]
  """
  checks.choice("cap_mode", cap_mode, ("clamp", "mask"))
  mask = surrogate.check_mask(mask)
  loss = clipped_surrogate_loss(
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
  return weights * loss


def cispo_loss(
  logprobs: ArrayLike,
  old_logprobs: ArrayLike,
  advantages: ArrayLike,
  mask: ArrayLike,
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
    >>> print(arl.cispo_loss(new, old, jnp.ones(1), jnp.ones((1, 1), bool)))
    [[5.]]
  """
  checks.within("clip_low", clip_low, 0.0, 1.0)
  checks.within("clip_high", clip_high, 0.0)
  mask = surrogate.check_mask(mask)
  costs = surrogate.costs(advantages, mask)
  log_ratio = surrogate.log_ratio(
    logprobs, old_logprobs, mask, old="old_logprobs"
  )
  ratio = masking.exp_log_ratio(log_ratio)
  weights = jnp.clip(ratio, 1.0 - clip_low, 1.0 + clip_high)
  logprobs = surrogate.masked("logprobs", logprobs, mask)
  return jax.lax.stop_gradient(weights) * costs * logprobs


def sapo_loss(
  logprobs: ArrayLike,
  old_logprobs: ArrayLike,
  advantages: ArrayLike,
  mask: ArrayLike,
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
    >>> print(arl.sapo_loss(same, same, jnp.ones(1), jnp.ones((1, 1), bool)))
    [[-2.]]
  """
  checks.positive("tau_positive", tau_positive)
  checks.positive("tau_negative", tau_negative)
  mask = surrogate.check_mask(mask)
  costs = surrogate.costs(advantages, mask)
  log_ratio = surrogate.log_ratio(
    logprobs, old_logprobs, mask, old="old_logprobs"
  )
  ratio = masking.exp_log_ratio(log_ratio)
  tau = jnp.where(costs < 0, tau_positive, tau_negative)
  gate = 4.0 / tau * jax.nn.sigmoid(tau * (ratio - 1.0))
  return gate * costs


def masked_cross_entropy(logprobs: ArrayLike, mask: ArrayLike) -> Array:
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
  mask = surrogate.check_mask(mask)
  return jnp.where(mask, -surrogate.masked("logprobs", logprobs, mask), 0.0)
