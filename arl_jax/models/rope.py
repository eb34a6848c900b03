"""Rotary position embeddings in the half-rotated layout of Hugging Face."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True, kw_only=True)
class RopeScaling:
  """How rotary frequencies are stretched beyond the trained length.

  Attributes:
    kind: `linear`, `llama3`, `yarn` or `dynamic`.
    factor: how much longer the context becomes.
    low_freq_factor: llama3, below this many turns a frequency is stretched.
    high_freq_factor: llama3, above this many turns it is kept.
    original_max_position: the length that the model was trained on.
    beta_fast: yarn, turns above which a frequency is kept.
    beta_slow: yarn, turns below which a frequency is stretched.
    attention_factor: yarn, scale of cos and sin; None derives it.
  """

  kind: str
  factor: float = 1.0
  low_freq_factor: float = 1.0
  high_freq_factor: float = 4.0
  original_max_position: int = 0
  beta_fast: float = 32.0
  beta_slow: float = 1.0
  attention_factor: float | None = None


def rope_frequencies(
  head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[npt.NDArray[np.float32], float]:
  """Returns the inverse frequencies `[H/2]` and the scale of cos and sin."""
  frequencies = 1.0 / theta ** (
    np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
  )
  if scaling is not None:
    raise ValueError(f"rope scaling kind {scaling.kind!r} is not supported")
  return frequencies.astype(np.float32), 1.0


def apply_rope(
  x: jax.Array,
  positions: jax.Array,
  frequencies: npt.NDArray[np.float32],
  scale: float,
) -> jax.Array:
  """Rotates queries or keys by their positions.

  Args:
    x: `[B, T, N, H]` queries or keys.
    positions: `[B, T]` position of each token.
    frequencies: `[H/2]` inverse frequencies.
    scale: factor on cos and sin.

  Returns:
    `[B, T, N, H]` rotated, in the dtype of `x`.
  """
  angles = positions[..., None, None].astype(jnp.float32) * frequencies.reshape(
    1, 1, 1, -1
  )
  cos, sin = jnp.cos(angles) * scale, jnp.sin(angles) * scale
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  rotated = jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )
  return rotated.astype(x.dtype)
