"""Turn rewards of a step, reshaped before anything is credited.

A shaping changes returns, and so baselines as well as advantages. Metrics
report the rewards as the environment gave them.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from arl_jax.learner import repetition
from arl_jax.ops import filters, process_rewards
from arl_jax.types import Array, TrajectoryBatch

_PROCESS_MODES = ("sum", "mean", "min", "prod", "last")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShapingConfig:
  """Settings of the reward shaping.

  Attributes:
    names: keys of `SHAPINGS`, or functions `(batch, config) -> [B, K]`; each
      sees the turn rewards that those before it left.
    overlong_length: action tokens at which `overlong_penalty` is full.
    overlong_buffer: tokens before that over which it grows.
    overlong_weight: the full penalty.
    repetition_ngram: n of the n-grams that `repetition_penalty` looks at, in
      tokens.
    repetition_weight: penalty of an action that says but one thing.
    process_mode: how `process_return` joins scores: `sum`, `mean`, `min`,
      `prod` or `last`.
    process_temperature: of `soft_min`; the lower, the closer to a minimum.
  """

  names: "tuple[str | Shaping, ...]" = ()
  overlong_length: int | None = None
  overlong_buffer: int | None = None
  overlong_weight: float = 1.0
  repetition_ngram: int = 4
  repetition_weight: float = 1.0
  process_mode: str = "min"
  process_temperature: float = 0.1

  def __post_init__(self) -> None:
    for name in self.names:
      if not callable(name) and name not in SHAPINGS:
        raise ValueError(
          f"shaping names has {name!r}; expected some of {sorted(SHAPINGS)} or"
          " functions (batch, config) -> [B, K]"
        )
    length, buffer = self.overlong_length, self.overlong_buffer
    if "overlong_penalty" in self.names and not (
      length is not None and buffer is not None and 0 < buffer <= length
    ):
      raise ValueError(
        "shaping 'overlong_penalty' needs overlong_length and"
        " overlong_buffer, with 0 < buffer <= length; found length"
        f" {length} and buffer {buffer}"
      )
    if self.process_mode not in _PROCESS_MODES:
      raise ValueError(
        f"shaping process_mode is {self.process_mode!r}; expected one of"
        f" {_PROCESS_MODES}"
      )
    if self.process_temperature <= 0:
      raise ValueError(
        f"shaping process_temperature is {self.process_temperature}; expected"
        " more than 0"
      )


Shaping = Callable[[TrajectoryBatch, ShapingConfig], Array]


class Shaped(NamedTuple):
  """Turn rewards with what was done to them.

  Attributes:
    turn_rewards: float32 `[B, K]`, 0 outside turns.
    changes: float32 `[S]` what each shaping added to the return of a row, on
      average over those that were not rejected.
  """

  turn_rewards: Array
  changes: Array


@functools.partial(jax.jit, static_argnames=("config",))
def shape_rewards(batch: TrajectoryBatch, *, config: ShapingConfig) -> Shaped:
  """Reshapes the turn rewards of a step.

  Args:
    batch: all rows of the step.
    config: which shapings, in which order.

  Returns:
    The new rewards, and how far each shaping moved them.
  """
  rewards = _masked(batch.turn_rewards, batch)
  live = jnp.asarray(batch.row_mask)
  means = [_mean_return(rewards, live)]
  for name in config.names:
    shaping = name if callable(name) else SHAPINGS[name]
    batch = dataclasses.replace(batch, turn_rewards=rewards)
    rewards = _masked(shaping(batch, config), batch)
    means.append(_mean_return(rewards, live))
  return Shaped(rewards, jnp.diff(jnp.stack(means)))


def _mean_return(rewards: Array, live: Array) -> Array:
  total = jnp.sum(jnp.where(live, jnp.sum(rewards, axis=1), 0.0))
  return total / jnp.maximum(jnp.sum(live), 1)


def _masked(rewards: Array, batch: TrajectoryBatch) -> Array:
  return jnp.where(batch.turn_mask, rewards, 0.0).astype(jnp.float32)


def _at_the_end(values: Array, batch: TrajectoryBatch) -> Array:
  """Puts one value per row on the row's last turn."""
  turns = jnp.arange(batch.turn_mask.shape[1])
  last = jnp.sum(batch.turn_mask, axis=1, keepdims=True) - 1
  return jnp.where(turns == last, values[:, None], 0.0)


def _overlong_penalty(batch: TrajectoryBatch, config: ShapingConfig) -> Array:
  assert config.overlong_length is not None
  assert config.overlong_buffer is not None
  penalty = filters.overlong_penalty(
    jnp.sum(batch.action_mask, axis=1),
    max_length=config.overlong_length,
    buffer=config.overlong_buffer,
  )
  added = _at_the_end(config.overlong_weight * penalty, batch)
  return batch.turn_rewards + added


def _repetition_penalty(batch: TrajectoryBatch, config: ShapingConfig) -> Array:
  shares = repetition.repeated_ngrams(batch, size=config.repetition_ngram)
  return batch.turn_rewards - config.repetition_weight * shares


def _process_return(batch: TrajectoryBatch, config: ShapingConfig) -> Array:
  joined = process_rewards.aggregate_process_rewards(
    batch.turn_rewards, batch.turn_mask, mode=config.process_mode
  )
  return _at_the_end(joined, batch)


def _soft_min(batch: TrajectoryBatch, config: ShapingConfig) -> Array:
  return process_rewards.soft_min_process_rewards(
    batch.turn_rewards,
    batch.turn_mask,
    temperature=config.process_temperature,
  )


SHAPINGS: Mapping[str, Shaping] = {
  # Less for an episode of many action tokens.
  "overlong_penalty": _overlong_penalty,
  # Less for an action that goes in circles.
  "repetition_penalty": _repetition_penalty,
  # Turn rewards are scores of the process: a row is worth what joins them.
  "process_return": _process_return,
  # The same with the minimum, spread over the turns that cause it.
  "soft_min": _soft_min,
}
