"""The page of recipes: its keys are there, and its recipes can run."""

import ast
import pathlib
import re
import runpy

import pytest

from arl_jax import config as config_lib
from arl_jax.run import config_rules
from arl_jax.run.settings import read_settings

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = dict(
  re.findall(r"^`(\w+)`:.*?```ini\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
)


def make_config(variant=None):
  path = ROOT / "configs" / "search.py"
  return runpy.run_path(str(path))["get_config"](variant)


def changes(recipe):
  for line in RECIPES[recipe].splitlines():
    key, _, value = line.partition(" = ")
    yield *key.split("."), ast.literal_eval(value)


@pytest.mark.parametrize(
  "recipe", ["search_r1", "deep_researcher", "kimi_researcher"]
)
def test_a_recipe_is_a_variant_that_can_run(recipe):
  config = make_config(recipe)
  settings = read_settings(config)
  config_rules.check(settings)
  for section, name, value in changes(recipe):
    assert getattr(getattr(settings, section), name) == value
  # And it changes nothing else.
  with config.unlocked():
    for section, name, _ in changes(recipe):
      config[section][name] = make_config()[section][name]
  assert config.to_json() == make_config().to_json()


def test_every_key_of_the_table_is_one():
  config = make_config()
  rows = [line.split("|") for line in PAGE.splitlines() if line[:2] == "| "]
  keys = [key for row in rows for key in re.findall(r"`(\w+\.\w+)`", row[2])]
  assert len(keys) > 20
  for key in keys:
    section, name = key.split(".")
    assert config_lib.is_section(config[section])
    assert name in config[section], key
