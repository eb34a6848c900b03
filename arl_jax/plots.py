"""Draws the learning curve of a run."""

from collections.abc import Mapping, Sequence
import os
import pathlib
from typing import Any


def write_learning_curve(
  records: Sequence[Mapping[str, Any]],
  path: str | os.PathLike[str],
  *,
  series: Sequence[str],
  title: str = "",
) -> pathlib.Path:
  """Writes a PNG with one panel per metric, over steps.

  Args:
    records: what `metrics.read_metrics` returns.
    path: the PNG to write; its folder is created.
    series: names of metrics, one panel each; those that no record has are
      left out.
    title: headline.

  Returns:
    The path.

  Raises:
    ValueError: if no record has any of the metrics, or matplotlib is missing.
  """
  curves = {name: _curve(records, name) for name in series}
  curves = {name: curve for name, curve in curves.items() if curve[0]}
  if not curves:
    raise ValueError(
      f"series is {list(series)}; none of these metrics has been recorded."
    )
  try:
    from matplotlib.backends import backend_agg
    from matplotlib.figure import Figure
  except ImportError as error:
    raise ValueError(
      "a learning curve needs matplotlib; install arl-jax[train]."
    ) from error
  figure = Figure(
    figsize=(4.5 * len(curves), 3.2), layout="constrained", dpi=120
  )
  backend_agg.FigureCanvasAgg(figure)
  panels = figure.subplots(1, len(curves), squeeze=False)[0]
  for panel, (name, (steps, values)) in zip(
    panels, curves.items(), strict=True
  ):
    panel.plot(steps, values, marker=".", linewidth=1.5)
    panel.set_title(name, fontsize=10)
    panel.set_xlabel("step")
    panel.grid(alpha=0.3)
  if title:
    figure.suptitle(title)
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path)
  return path


def _curve(
  records: Sequence[Mapping[str, Any]], name: str
) -> tuple[list[int], list[float]]:
  """Returns steps and values where the metric is a number."""
  points = [
    (record["step"], record[name])
    for record in records
    if record.get(name) is not None
  ]
  return [step for step, _ in points], [value for _, value in points]
