"""Rotary position embeddings in the half-rotated layout of Hugging Face."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

ROPE_KINDS = ("linear", "llama3", "yarn", "dynamic")


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
    truncate: yarn, round the bounds of its ramp to whole dimensions.
  """

  kind: str
  factor: float = 1.0
  low_freq_factor: float = 1.0
  high_freq_factor: float = 4.0
  original_max_position: int = 0
  beta_fast: float = 32.0
  beta_slow: float = 1.0
  attention_factor: float | None = None
  truncate: bool = True

  def __post_init__(self) -> None:
    if self.kind not in ROPE_KINDS:
      raise ValueError(
        f"rope scaling kind is {self.kind!r}; expected one of"
        f" {', '.join(ROPE_KINDS)}"
      )
    if self.factor <= 0:
      raise ValueError(f"rope scaling factor is {self.factor}; it must be > 0")
    if self.kind == "llama3" and self.high_freq_factor <= self.low_freq_factor:
      raise ValueError(
        f"rope scaling high_freq_factor is {self.high_freq_factor}; it must be"
        f" more than low_freq_factor, {self.low_freq_factor}"
      )
    if self.kind in ("llama3", "yarn") and self.original_max_position <= 0:
      raise ValueError(
        f"rope scaling of kind {self.kind!r} needs original_max_position, the"
        f" trained length; found {self.original_max_position}"
      )


def rope_frequencies(
  head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[npt.NDArray[np.float32], float]:
  """Returns the inverse frequencies `[H/2]` and the scale of cos and sin.

  The kind `dynamic` stretches only beyond the trained length, by an amount
  that changes as a row grows; cached keys would go stale with it. Up to the
  trained length it is the unscaled rotation, which is what it gives here.

  Args:
    head_dim: H, even.
    theta: base of the frequencies, theta^(-2i/H).
    scaling: how they are stretched, if at all.
  """
  frequencies = theta ** (
    -np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
  )
  scale = 1.0
  if scaling is not None:
    if scaling.kind == "linear":
      frequencies = frequencies / scaling.factor
    elif scaling.kind == "llama3":
      frequencies = _llama3_frequencies(frequencies, scaling)
    elif scaling.kind == "yarn":
      frequencies = _yarn_frequencies(frequencies, theta, scaling)
      scale = _yarn_scale(scaling)
  return frequencies.astype(np.float32), scale


def _llama3_frequencies(
  frequencies: npt.NDArray[np.float64], scaling: RopeScaling
) -> npt.NDArray[np.float64]:
  """Stretches the slow frequencies and blends those in between."""
  turns = scaling.original_max_position * frequencies / (2 * np.pi)
  low, high = scaling.low_freq_factor, scaling.high_freq_factor
  keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
  return keep * frequencies + (1.0 - keep) * frequencies / scaling.factor


def _yarn_frequencies(
  frequencies: npt.NDArray[np.float64], theta: float, scaling: RopeScaling
) -> npt.NDArray[np.float64]:
  """Blends kept and stretched frequencies along a ramp over dimensions.

  Reference: Peng et al., YaRN, arXiv 2309.00071, section 3.2.
  """
  half = len(frequencies)

  def dimension(turns: float) -> float:
    """The dimension that makes so many turns within the trained length."""
    wavelength = scaling.original_max_position / turns
    return half * math.log(wavelength / (2 * math.pi)) / math.log(theta)

  low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
  if scaling.truncate:
    low, high = math.floor(low), math.ceil(high)
  low, high = max(low, 0), min(high, 2 * half - 1)
  if low == high:
    high += 0.001
  stretch = np.clip((np.arange(half) - low) / (high - low), 0.0, 1.0)
  return (1.0 - stretch) * frequencies + stretch * frequencies / scaling.factor


def _yarn_scale(scaling: RopeScaling) -> float:
  if scaling.attention_factor is not None:
    return scaling.attention_factor
  return yarn_attention_scale(scaling.factor)


def yarn_attention_scale(factor: float, weight: float = 1.0) -> float:
  """Returns 0.1 * weight * ln(factor) + 1, which is 1 without a stretch."""
  return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def rotations(
  positions: jax.Array, frequencies: npt.NDArray[np.float32], scale: float
) -> tuple[jax.Array, jax.Array]:
  """Returns the cosines and sines that every layer rotates by.

  Args:
    positions: `[B, T]` position of each token.
    frequencies: `[H/2]` inverse frequencies.
    scale: factor on both.

  Returns:
    Two float32 arrays `[B, T, 1, H/2]`.
  """
  angles = positions[..., None, None].astype(jnp.float32) * frequencies.reshape(
    1, 1, 1, -1
  )
  return jnp.cos(angles) * scale, jnp.sin(angles) * scale


def apply_rope(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
  """Rotates queries or keys by their positions.

  Args:
    x: `[B, T, N, H]` queries or keys.
    cos: `[B, T, 1, H/2]`, see `rotations`.
    sin: `[B, T, 1, H/2]`.

  Returns:
    `[B, T, N, H]` rotated, in the dtype of `x`.
  """
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  rotated = jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )
  return rotated.astype(x.dtype)
