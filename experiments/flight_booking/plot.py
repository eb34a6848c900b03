"""Draws a finished run's curves: `python plot.py RUN_FOLDER FILE.png`."""

import pathlib
import sys

from arl_jax.reporting.metrics import read_metrics
from arl_jax.reporting.plots import write_learning_curve
from arl_jax.run.report import CURVES


def main(folder: str, target: str) -> None:
  """Writes one PNG."""
  records = read_metrics(pathlib.Path(folder) / "metrics.jsonl")
  shown = [record for record in records if record["phase"] != "warmup"]
  write_learning_curve(shown, target, series=CURVES, title="")


if __name__ == "__main__":
  main(*sys.argv[1:])
