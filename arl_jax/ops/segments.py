"""Statistics over the members of a group, read back by each member."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable

import jax
import jax.numpy as jnp

from arl_jax.ops.members import Members
from arl_jax.types import Array


def per_group(
  reduction: Callable[..., Array], x: Array, members: Members, fill: float
) -> Array:
  """Reduces `x` within groups to `[num + 1]`, the last for none of them."""
  x = jnp.where(members.live, x, fill)
  return reduction(
    x.reshape(-1),
    members.buckets.reshape(-1),
    num_segments=members.num + 1,
  )


def _reduce(
  reduction: Callable[..., Array], x: Array, members: Members, fill: float
) -> Array:
  """Reduces within groups; 0 for those that do not count."""
  reduced = per_group(reduction, x, members, fill)
  return jnp.where(members.live, reduced[members.buckets], 0.0)


def total(x: Array, members: Members) -> Array:
  """Sum over the group of each member."""
  return _reduce(jax.ops.segment_sum, x, members, 0.0)


def highest(x: Array, members: Members) -> Array:
  """Maximum over the group of each member."""
  return _reduce(jax.ops.segment_max, x, members, -float("inf"))


def lowest(x: Array, members: Members) -> Array:
  """Minimum over the group of each member."""
  return _reduce(jax.ops.segment_min, x, members, float("inf"))


def size(members: Members) -> Array:
  """Number of members of the group of each member, float32."""
  return total(jnp.ones(members.live.shape, jnp.float32), members)


def mean(x: Array, members: Members) -> Array:
  """Average over the group of each member."""
  return total(x, members) / jnp.maximum(size(members), 1.0)


def shift(x: Array, members: Members) -> Array:
  """Subtracts the lowest of the group; 0 for those that do not count.

  Differences within a group do not care about the shift, but rounding does:
  equal members become exact zeros, and stay so through means and products.
  """
  low = jax.lax.stop_gradient(lowest(x, members))
  return jnp.where(members.live, x, 0.0) - low


def centre(x: Array, members: Members) -> Array:
  """Subtracts the mean of the group; 0 for those that do not count."""
  shifted = shift(x, members)
  return shifted - mean(shifted, members)


def deviation(centred: Array, members: Members, *, ddof: int) -> Array:
  """Standard deviation over the group, 0 where it has one member or none."""
  freedom = jnp.maximum(size(members) - ddof, 1.0)
  variance = total(centred**2, members) / freedom
  varies = variance > 0.0
  # The slope of sqrt at 0 is infinite: its input is masked, not its result.
  return jnp.where(varies, jnp.sqrt(jnp.where(varies, variance, 1.0)), 0.0)


def standardise(
  x: Array, members: Members, *, scale: str, ddof: int, eps: float
) -> Array:
  """Centres, then divides by the deviation plus `eps` if scale is "std"."""
  centred = centre(x, members)
  if scale == "none":
    return centred
  return centred / (deviation(centred, members, ddof=ddof) + eps)
