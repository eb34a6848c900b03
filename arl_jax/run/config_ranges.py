"""What each number of a configuration may be, by its dotted key."""

from collections.abc import Iterator
import dataclasses
import math
from typing import Any, NamedTuple

from arl_jax import config as config_lib


class Range(NamedTuple):
  """An interval.

  Attributes:
    low: its lower end.
    high: its upper end.
    above: whether the lower end itself is outside.
    below: whether the upper end itself is outside.
  """

  low: float
  high: float = math.inf
  above: bool = False
  below: bool = False

  def __contains__(self, value: object) -> bool:
    assert isinstance(value, int | float)
    over = value > self.low if self.above else value >= self.low
    under = value < self.high if self.below else value <= self.high
    return over and under

  def __str__(self) -> str:
    low = f"more than {self.low}" if self.above else f"{self.low} or more"
    if self.high == math.inf:
      return low
    if not self.above and not self.below:
      return f"{self.low} to {self.high}"
    return f"{low} and {'less than' if self.below else 'at most'} {self.high}"


_COUNT = Range(1)
_FROM_ZERO = Range(0)
_POSITIVE = Range(0, above=True)
_SHARE = Range(0, 1)
_PART = Range(0, 1, above=True)
_DECAY = Range(0, 1, below=True)

_OPTIMIZER: dict[Range, str] = {
  _POSITIVE: "learning_rate eps",
  _FROM_ZERO: "warmup_steps total_steps weight_decay clip_norm",
  _SHARE: "final_fraction",
  _DECAY: "b1 b2 momentum",
}

# By section, then by range: names of numbers, or of tuples of them. None, where
# a key allows it, is in every range. Environments bring their own.
RANGES: dict[str, dict[Range, str]] = {
  "policy": {
    _COUNT: (
      "vocab_size num_layers model_dim num_heads num_kv_heads head_dim mlp_dim "
      "scan_unroll"
    ),
    _FROM_ZERO: "num_frozen_layers",
  },
  "warmup": {
    _COUNT: "batch_size logprob_chunk",
    _FROM_ZERO: "num_steps micro_batch_rows observation_weight",
    _SHARE: "careful_fraction",
  },
  "warmup.optimizer": _OPTIMIZER,
  "rollout": {
    _COUNT: (
      "tasks_per_step group_size max_turns max_tokens_per_turn max_length "
      "context_keep_turns max_rows_per_episode "
      "max_observation_chars"
    ),
    _FROM_ZERO: (
      "context_max_tokens context_max_turns num_extra_members top_k "
      "max_staleness max_concurrent_groups max_replaced_groups"
    ),
    _PART: "top_p",
    # At 0, greedy, the episodes of a group would not differ.
    _POSITIVE: (
      "temperature step_timeout_seconds episode_timeout_seconds "
      "group_timeout_seconds"
    ),
  },
  "engine": {
    _COUNT: (
      "num_slots chunk_size decode_rows prefill_rows prefill_lengths kv_lengths"
    ),
  },
  "shaping": {
    _COUNT: "overlong_length overlong_buffer repetition_ngram",
    _FROM_ZERO: "overlong_weight repetition_weight",
    _POSITIVE: "process_temperature",
  },
  "filters": {
    _COUNT: "repetition_ngram overlong_length",
    _PART: "keep_ratio",
    _SHARE: "max_repetition negative_keep_ratio",
    _FROM_ZERO: "ratio_lower ratio_upper max_age",
  },
  "advantage": {
    _COUNT: "history_levels",
    _FROM_ZERO: "step_weight turn_weight history_power",
    _SHARE: "discount negative_weight",
  },
  "loss": {
    _COUNT: "length logprob_chunk",
    _FROM_ZERO: "clip_high tau importance_lower kl_weight",
    _POSITIVE: "importance_upper",
    _SHARE: "clip_low",
    Range(1, above=True): "dual_clip",
  },
  "optimizer": _OPTIMIZER,
  "learner": {
    _COUNT: (
      "num_steps minibatches_per_step min_minibatch_rows micro_batch_rows "
      "packed_lengths rows_per_pack"
    ),
    _FROM_ZERO: "reference_reset_every",
  },
  "evaluation": {
    _COUNT: "num_tasks samples_per_task",
    _FROM_ZERO: "temperature every",
  },
  "checkpoint": {_COUNT: "every keep"},
  "store": {_FROM_ZERO: "max_gigabytes"},
  "failures": {_COUNT: "max_in_a_row", _FROM_ZERO: "watchdog_seconds"},
  "debug": {_FROM_ZERO: "learn_seconds"},
  "output": {_FROM_ZERO: "num_episodes_as_text"},
}


def check(settings: Any) -> None:
  """Raises a ConfigError that lists every number that is outside its range.

  Args:
    settings: all sections, by attribute; their keys and types are known to be
      right.
  """
  problems = list(_find_problems(settings))
  if problems:
    raise config_lib.ConfigError("\n".join(problems))


def ranges_of(settings: Any) -> dict[str, dict[Range, str]]:
  """Returns `RANGES` with those of the environment that is configured."""
  return {"environment": getattr(settings.environment, "RANGES", {}), **RANGES}


def _find_problems(settings: Any) -> Iterator[str]:
  if settings.seed < 0:
    yield f"config.seed is {settings.seed}; expected {_FROM_ZERO}."
  for key, value in _numbers(settings, "config"):
    if not math.isfinite(value):
      yield f"{key} is {value}; expected a finite number."
  for path, by_range in ranges_of(settings).items():
    section = settings
    for part in path.split("."):
      section = getattr(section, part)
    for allowed, names in by_range.items():
      for name in names.split():
        key = f"config.{path}.{name}"
        for full_key, value in _numbers(getattr(section, name), key):
          # What is not finite was named above.
          if math.isfinite(value) and value not in allowed:
            yield f"{full_key} is {value}; expected {allowed}."


def _numbers(value: Any, key: str) -> Iterator[tuple[str, float]]:
  """Yields every number at or below a key, with its own key."""
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    for field in dataclasses.fields(value):
      yield from _numbers(getattr(value, field.name), f"{key}.{field.name}")
  elif config_lib.is_section(value):
    for name, item in config_lib.items(value, key):
      yield from _numbers(item, f"{key}.{name}")
  elif isinstance(value, tuple | list):
    for index, item in enumerate(value):
      yield from _numbers(item, f"{key}[{index}]")
  elif isinstance(value, int | float) and not isinstance(value, bool):
    yield key, value
