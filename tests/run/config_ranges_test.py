"""Tests of what each number of a configuration may be."""

import dataclasses
import math
import re
import runpy
from typing import Any

import pytest

from arl_jax import config as config_lib
from arl_jax.run import config_ranges
from arl_jax.run.config_ranges import Range
from arl_jax.run.settings import Settings, read_settings
from arl_jax.run.suites import SUITES

_NAME = "configs/flight_booking.py"


def _config(changes: dict[str, Any]) -> Any:
  config = runpy.run_path(_NAME)["get_config"]()
  config.update_from_flattened_dict(changes)
  return config


def _refusal(key: str, value: Any) -> str:
  with pytest.raises(config_lib.ConfigError) as caught:
    read_settings(_config({key: value}))
  return str(caught.value)


@pytest.mark.parametrize(
  ("allowed", "inside", "outside", "words"),
  [
    (Range(1), [1, 9], [0], "1 or more"),
    (Range(0, above=True), [1e-9], [0, -1], "more than 0"),
    (Range(0, 1), [0, 1], [-0.1, 1.1], "0 to 1"),
    (Range(0, 1, above=True), [1], [0, 1.1], "more than 0 and at most 1"),
    (Range(0, 1, below=True), [0], [1, -0.1], "0 or more and less than 1"),
  ],
)
def test_a_range_knows_its_ends(allowed, inside, outside, words):
  assert all(value in allowed for value in inside)
  assert not any(value in allowed for value in outside)
  assert str(allowed) == words


@pytest.mark.parametrize(
  ("key", "value", "message"),
  [
    ("seed", -1, "config.seed is -1; expected 0 or more."),
    ("policy.model_dim", 0, "config.policy.model_dim is 0; expected 1 or"),
    ("policy.num_kv_heads", 0, "config.policy.num_kv_heads is 0; expected 1"),
    ("environment.levels", (1, 5), "config.environment.levels[1] is 5; exp"),
    ("environment.num_train_tasks", 0, "environment.num_train_tasks is 0"),
    ("warmup.num_steps", -1, "config.warmup.num_steps is -1; expected 0 or"),
    ("warmup.observation_weight", -0.1, "observation_weight is -0.1; expected"),
    ("warmup.careful_fraction", 1.5, "careful_fraction is 1.5; expected 0 to"),
    ("warmup.optimizer.b1", 1.0, "config.warmup.optimizer.b1 is 1.0; expected"),
    ("optimizer.learning_rate", 0.0, "config.optimizer.learning_rate is 0.0"),
    ("optimizer.b2", 1.0, "is 1.0; expected 0 or more and less than 1."),
    ("optimizer.eps", 0.0, "config.optimizer.eps is 0.0; expected more than 0"),
    ("optimizer.clip_norm", -1.0, "config.optimizer.clip_norm is -1.0"),
    ("rollout.max_length", 0, "config.rollout.max_length is 0; expected 1 or"),
    ("rollout.temperature", 0.0, "config.rollout.temperature is 0.0; expect"),
    ("rollout.max_concurrent_groups", -1, "max_concurrent_groups is -1"),
    ("engine.decode_rows", (0, 8), "config.engine.decode_rows[0] is 0; expec"),
    ("loss.clip_low", 1.5, "config.loss.clip_low is 1.5; expected 0 to 1."),
    ("loss.clip_low", -0.2, "config.loss.clip_low is -0.2; expected 0 to 1."),
    ("loss.clip_high", -0.1, "config.loss.clip_high is -0.1; expected 0 or"),
    ("loss.dual_clip", 1.0, "config.loss.dual_clip is 1.0; expected more"),
    ("loss.importance_upper", 0.0, "config.loss.importance_upper is 0.0"),
    ("loss.length", 0, "config.loss.length is 0; expected 1 or more."),
    ("learner.min_minibatch_rows", 0, "config.learner.min_minibatch_rows is 0"),
    ("filters.keep_ratio", 0.0, "keep_ratio is 0.0; expected 0 < ratio <= 1"),
    ("advantage.discount", 1.1, "config.advantage.discount is 1.1; expected"),
    ("output.num_episodes_as_text", -1, "num_episodes_as_text is -1; expected"),
  ],
)
def test_a_number_out_of_range_is_named(key, value, message):
  assert message in _refusal(key, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
  "key",
  ["loss.clip_high", "loss.entropy_weight", "warmup.optimizer.learning_rate"],
)
def test_what_is_not_finite_is_refused_once(key, value):
  expected = f"config.{key} is {value}; expected a finite number."
  assert _refusal(key, value) == expected


def test_a_reward_weight_is_finite():
  config = _config({})
  config.environment.reward_weights.success = math.nan
  with pytest.raises(config_lib.ConfigError, match="reward_weights.success is"):
    read_settings(config)


def test_every_key_of_the_table_is_a_setting():
  settings = read_settings(_config({}))
  named = set()
  for path, by_range in config_ranges.ranges_of(settings).items():
    for name in " ".join(by_range.values()).split():
      key = f"{path}.{name}"
      assert key not in named, key
      named.add(key)
      value: Any = settings
      for part in key.split("."):
        value = getattr(value, part)  # an unknown one raises
  assert len(named) > 60


def test_every_number_has_a_range_or_a_rule():
  # Judged by a rule of their own, or free.
  elsewhere = {
    "seed",
    "environment.num_flights",
    "environment.reward_weights",
    "engine.max_length",
    "warmup.length_buckets",
    "learner.length_buckets",
    "loss.temperature",
    "loss.entropy_weight",
    *(f"mesh.{axis}" for axis in ("data", "fsdp", "seq", "tensor")),
  }

  def numbers(record: Any, prefix: str = ""):
    for field in dataclasses.fields(record):
      value, key = getattr(record, field.name), prefix + field.name
      if dataclasses.is_dataclass(value):
        yield from numbers(value, key + ".")
      elif re.search(r"\b(int|float)\b", str(field.type)):
        yield key

  settings: Settings = read_settings(_config({}))
  named = {
    f"{path}.{name}"
    for path, by_range in config_ranges.ranges_of(settings).items()
    for name in " ".join(by_range.values()).split()
  }
  assert set(numbers(settings)) - named == elsewhere


@pytest.mark.parametrize("name", sorted(SUITES))
def test_every_number_of_an_environment_has_a_range(name):
  record = SUITES[name].settings
  numbers = {
    field.name
    for field in dataclasses.fields(record)
    if re.search(r"\b(int|float)\b", str(field.type))
  }
  named = set(" ".join(record.RANGES.values()).split())
  assert named <= numbers
  assert numbers - named <= {"num_flights", "reward_weights"}


@pytest.mark.parametrize(
  ("surrogate", "low", "high"),
  [("gspo", 3e-4, 4e-4), ("cispo", 1.0, 4.0), ("sapo", 0.2, 0.28)],
)
def test_clips_of_each_surrogate_pass(surrogate, low, high):
  changes = {
    "loss.surrogate": surrogate,
    "loss.clip_low": low,
    "loss.clip_high": high,
  }
  read_settings(_config(changes))
