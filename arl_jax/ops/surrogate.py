"""Pieces that the policy losses share."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks
from arl_jax.types import Array


def masked(name: str, x: ArrayLike, mask: Array) -> Array:
  """Checks a `[B, T]` array; 0 where masked."""
  return jnp.where(mask, checks.floats(name, x, "[B, T]", mask.shape), 0.0)


def costs(advantages: ArrayLike, mask: Array) -> Array:
  """Spreads `[B]`, `[B, 1]` or `[B, T]` advantages over tokens, negated."""
  advantages = checks.array("advantages", advantages)
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


def check_mask(mask: ArrayLike) -> Array:
  """Checks the mask that every loss takes."""
  return checks.mask("mask", mask, "[B, T]", (None, None))


def log_ratio(
  logprobs: ArrayLike, old_logprobs: ArrayLike, mask: Array, *, old: str
) -> Array:
  """The log-ratio of π to π_old, 0 where masked; π has the gradient."""
  new = masked("logprobs", logprobs, mask)
  return new - jax.lax.stop_gradient(masked(old, old_logprobs, mask))


def clip(
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
