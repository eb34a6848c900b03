"""Tests of the configuration that others start from."""

import runpy

import pytest

from arl_jax import config as config_lib
from arl_jax.default_config import default_config, shrink
from arl_jax.run import config_rules
from arl_jax.run.settings import read_settings
from arl_jax.run.suites import SUITES


def keys(config):
  for name, value in config_lib.items(config):
    if config_lib.is_section(value) and name != "reward_weights":
      yield from (f"{name}.{key}" for key in keys(value))
    else:
      yield name


def test_the_commented_configuration_has_every_key():
  commented = runpy.run_path("configs/flight_booking.py")["get_config"]()
  assert sorted(keys(commented)) == sorted(
    keys(default_config("flight_booking"))
  )


@pytest.mark.parametrize("name", sorted(SUITES))
def test_defaults_are_settings(name):
  config = default_config(name)
  settings = read_settings(config)
  assert isinstance(settings.environment, SUITES[name].settings)
  shrink(config)
  config_rules.check(read_settings(config))


def test_a_key_without_a_value_can_be_set_on_the_command_line():
  config = default_config("flight_booking").lock()
  config.update_from_flattened_dict(
    {"loss.dual_clip": 3.0, "filters.max_age": 2, "loss.length": 64}
  )
  assert config.loss.dual_clip == 3.0
  with pytest.raises(TypeError):
    config.filters.max_age = "old"


def test_the_decay_of_the_warm_start_follows_its_length():
  config = default_config("flight_booking")
  config.warmup.num_steps = 7
  assert config.warmup.optimizer.total_steps == 7
