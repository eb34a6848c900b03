"""Whole runs at toy size, and what they leave."""

import pathlib
import runpy

import jax

from arl_jax import train as train_lib
from arl_jax.learner.checkpoint import CheckpointStore
from arl_jax.reporting.metrics import read_metrics
from arl_jax.run.parts import assemble
from arl_jax.run.settings import read_settings

_CONFIG = pathlib.Path(__file__).parents[1] / "configs" / "flight_booking.py"


def make_config(**changes):
  """Returns the configuration of two tiny steps, `section__key` changed."""
  config = runpy.run_path(str(_CONFIG))["get_config"]("runlocal")
  # A toy policy never books; its turns and errors differ, so it can learn.
  weights = {"success": 1.0, "turns": -0.01, "tool_errors": -0.1}
  changes = {"environment__reward_weights": weights} | changes
  with config.unlocked():
    for key, value in changes.items():
      section, name = key.split("__")
      config[section][name] = value
  return config


def run(config, folder, *, num_devices=1):
  """Trains, or goes on."""
  return train_lib.train(
    config, str(folder), devices=jax.devices()[:num_devices]
  )


def restored(config, folder):
  """Returns what the newest checkpoint holds, the state on the host."""
  parts = assemble(
    read_settings(config),
    saved_tokenizer=pathlib.Path(folder) / "tokenizer",
    devices=jax.devices()[:1],
  )
  with CheckpointStore(f"{folder}/checkpoints", create=False) as store:
    found = store.restore(None, parts.abstract_state())
  return jax.device_get(found.state), found.extras


def records(folder, phase="train"):
  """Returns the metrics of a phase, a record per step."""
  found = read_metrics(pathlib.Path(folder) / "metrics.jsonl")
  return [record for record in found if record["phase"] == phase]
