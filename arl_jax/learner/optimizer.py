"""From a frozen record to an optax transformation."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from arl_jax.types import PyTree

_NAMES = ("adamw", "muon", "sgd")
_SCHEDULES = ("constant", "cosine", "linear")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
  """Settings of the optimizer.

  Attributes:
    name: `adamw`, `muon` (AdamW for norms and biases) or `sgd`.
    learning_rate: its peak.
    schedule: what follows the warm-up: `constant`, `cosine` or `linear`.
    warmup_steps: updates that rise to the peak; the first is already above 0.
    total_steps: updates until the decay ends, warm-up included; more than
      `warmup_steps` where there is a decay.
    final_fraction: of the peak, where the decay ends.
    b1: AdamW's decay of the first moment.
    b2: AdamW's decay of the second moment.
    momentum: Muon's decay of the first moment.
    eps: added to the denominator.
    weight_decay: decoupled, on matrices only.
    clip_norm: global norm that a gradient is scaled down to; 0 is off.
  """

  name: str = "adamw"
  learning_rate: float = 1e-4
  schedule: str = "constant"
  warmup_steps: int = 0
  total_steps: int = 0
  final_fraction: float = 0.0
  b1: float = 0.9
  b2: float = 0.95
  momentum: float = 0.95
  eps: float = 1e-8
  weight_decay: float = 0.0
  clip_norm: float = 1.0

  def __post_init__(self) -> None:
    if self.name not in _NAMES:
      raise ValueError(
        f"optimizer name is {self.name!r}; expected one of {_NAMES}"
      )
    if self.schedule not in _SCHEDULES:
      raise ValueError(
        f"schedule is {self.schedule!r}; expected one of {_SCHEDULES}"
      )


def make_schedule(config: OptimizerConfig) -> optax.Schedule:
  """Returns the learning rate as a function of updates already made."""
  if (
    config.schedule != "constant" and config.total_steps <= config.warmup_steps
  ):
    raise ValueError(
      f"schedule {config.schedule!r} needs total_steps, the updates until its"
      f" decay ends, above warmup_steps; found {config.total_steps} and"
      f" {config.warmup_steps}"
    )
  final = config.final_fraction

  def learning_rate(step: jax.typing.ArrayLike) -> jax.Array:
    done_steps = jnp.asarray(step)
    warmup = jnp.minimum(1.0, (done_steps + 1) / max(1, config.warmup_steps))
    decay_steps = max(1, config.total_steps - config.warmup_steps)
    progress = jnp.clip(
      (done_steps - config.warmup_steps) / decay_steps, 0.0, 1.0
    )
    if config.schedule == "cosine":
      decay = final + (1 - final) * 0.5 * (1 + jnp.cos(jnp.pi * progress))
    elif config.schedule == "linear":
      decay = 1 - (1 - final) * progress
    else:
      decay = 1.0
    return config.learning_rate * warmup * decay

  return learning_rate


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
  """Returns the optimizer, behind a clip of the gradient's global norm."""
  schedule = make_schedule(config)
  if config.name == "adamw":
    inner = optax.adamw(
      schedule,
      b1=config.b1,
      b2=config.b2,
      eps=config.eps,
      weight_decay=config.weight_decay,
      mask=matrix_mask,
    )
  elif config.name == "muon":
    inner = optax.contrib.muon(
      schedule,
      beta=config.momentum,
      eps=config.eps,
      weight_decay=config.weight_decay,
      adam_b1=config.b1,
      adam_b2=config.b2,
      muon_weight_dimension_numbers=_muon_dimensions,
    )
  else:
    inner = optax.chain(
      optax.add_decayed_weights(config.weight_decay, mask=matrix_mask),
      optax.sgd(schedule),
    )
  if config.clip_norm <= 0:
    return inner
  return optax.chain(_clip_by_global_norm(config.clip_norm), inner)


def _clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
  """The same as optax's, but it multiplies where that one divides.

  A compiler works a product out again wherever it is read. The quotients it
  keeps, and they take the memory of another gradient.
  """

  def clip(
    updates: PyTree, state: optax.OptState, params: PyTree | None = None
  ) -> tuple[PyTree, optax.OptState]:
    del params
    norm = optax.tree.norm(updates)
    scale = jnp.where(norm < max_norm, 1.0, max_norm / norm)
    return jax.tree.map(lambda g: g * scale.astype(g.dtype), updates), state

  return optax.GradientTransformation(lambda params: optax.EmptyState(), clip)


def matrix_mask(params: PyTree) -> PyTree:
  """Tells matrices from norms and biases: a tree of bool like `params`.

  Weights below a `layers` key are stacked on a leading axis, so there a norm
  has two dimensions and a matrix three.
  """

  def is_matrix(path, leaf):
    stacked = any(getattr(key, "key", None) == "layers" for key in path)
    return leaf.ndim - stacked >= 2

  return jax.tree_util.tree_map_with_path(is_matrix, params)


def _muon_dimensions(params: PyTree) -> PyTree:
  # Each layer is orthogonalised on its own; None leaves a weight to AdamW.
  last_two = optax.contrib.MuonDimensionNumbers(-2, -1)
  return jax.tree.map(lambda m: last_two if m else None, matrix_mask(params))
