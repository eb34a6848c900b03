"""`import arl_jax` brings in the numerics, nothing heavier."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEAVY = {
  "gguf",
  "matplotlib",
  "ml_collections",
  "optax",
  "orbax",
  "safetensors",
  "tensorboardX",
  "tensorflow",
  "tokenizers",
  "torch",
  "tqdm",
  "transformers",
}


@pytest.fixture(scope="module")
def modules() -> set[str]:
  code = "import arl_jax, json, sys; print(json.dumps(sorted(sys.modules)))"
  done = subprocess.run(
    [sys.executable, "-c", code],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  return set(json.loads(done.stdout))


def test_the_numerics_are_there(modules):
  assert {"jax", "flax.struct", "arl_jax.ops.losses"} <= modules


def test_nothing_heavy_is_there(modules):
  assert {module.split(".")[0] for module in modules} & HEAVY == set()


def test_no_other_room_is_there(modules):
  rooms = {
    module.split(".")[1] for module in modules if module.startswith("arl_jax.")
  }
  assert rooms == {"episode", "ops", "types"}
