"""Draws the learning curve of a run."""

from collections.abc import Mapping, Sequence
import os
import pathlib
from typing import Any

_PANELS_PER_ROW = 3
_PANEL_INCHES = (4.0, 2.8)

# Steps and values of one metric, by phase.
Curves = dict[str, tuple[list[int], list[float]]]


def write_learning_curve(
  records: Sequence[Mapping[str, Any]],
  path: str | os.PathLike[str],
  *,
  series: Sequence[str],
  title: str = "",
) -> pathlib.Path:
  """Writes a PNG with one panel per metric, over steps, a line per phase.

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
  panels = {name: _curves(records, name) for name in series}
  panels = {name: curves for name, curves in panels.items() if curves}
  if not panels:
    raise ValueError(
      f"series is {list(series)}; none of these metrics has been recorded."
    )
  try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
  except ImportError as error:
    raise ValueError(
      "a learning curve needs matplotlib; install arl-jax[train]."
    ) from error
  columns = min(_PANELS_PER_ROW, len(panels))
  rows = -(-len(panels) // columns)
  width, height = _PANEL_INCHES
  figure = Figure(
    figsize=(columns * width, rows * height), layout="constrained", dpi=120
  )
  FigureCanvasAgg(figure)
  axes = figure.subplots(rows, columns, squeeze=False).ravel()
  phases = sorted({phase for curves in panels.values() for phase in curves})
  for axis, (name, curves) in zip(axes, panels.items(), strict=False):
    _draw(axis, name, curves, phases=phases)
  for unused in axes[len(panels) :]:
    unused.set_axis_off()
  if title:
    figure.suptitle(title)
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path)
  return path


def _draw(
  axis: Any, name: str, curves: Curves, *, phases: Sequence[str]
) -> None:
  """Draws one panel; a phase has the same colour in all."""
  from matplotlib.ticker import MaxNLocator

  for phase, (steps, values) in curves.items():
    color = f"C{phases.index(phase)}"
    axis.plot(steps, values, color=color, marker=".", label=phase)
  axis.set_title(name, fontsize=10)
  axis.set_xlabel("step")
  axis.xaxis.set_major_locator(MaxNLocator(integer=True))
  axis.grid(alpha=0.3)
  if len(curves) > 1:
    axis.legend(fontsize=8)


def _curves(records: Sequence[Mapping[str, Any]], name: str) -> Curves:
  """Returns the points where the metric is a number."""
  curves: Curves = {}
  for record in records:
    if record.get(name) is not None:
      phase = str(record.get("phase", ""))
      steps, values = curves.setdefault(phase, ([], []))
      steps.append(record["step"])
      values.append(record[name])
  return curves
