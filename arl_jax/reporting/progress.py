"""A progress bar that shows the numbers one watches."""

from collections.abc import Mapping
import sys
from typing import Any

# Metric and how the bar shows it.
_SHOWN = (
  ("success", "success", "{:.2f}"),
  ("reward/mean", "return", "{:.2f}"),
  ("num_turns/mean", "turns", "{:.1f}"),
  ("perf/tokens_per_second", "tok/s", "{:.0f}"),
  ("loss", "loss", "{:.3f}"),
)


class ProgressBar:
  """Owns a line on stderr; a plain one without tqdm."""

  def __init__(self, label: str, *, total: int, initial: int = 0):
    self._label, self._total, self._count = label, total, initial
    self._bar: Any = None
    try:
      import tqdm
    except ImportError:
      return
    # Without a terminal, every tenth of a second would be a line in a log.
    quiet = 0.1 if sys.stderr.isatty() else 10.0
    self._bar = tqdm.tqdm(
      desc=label,
      total=total,
      initial=initial,
      mininterval=quiet,
      dynamic_ncols=True,
    )

  def advance(self, metrics: Mapping[str, float]) -> None:
    """Moves on by one step and shows its metrics."""
    self._count += 1
    shown = {
      label: form.format(metrics[name])
      for name, label, form in _SHOWN
      if name in metrics
    }
    if self._bar is not None:
      self._bar.set_postfix(shown, refresh=False)
      self._bar.update()
    else:
      text = " ".join(f"{label}={value}" for label, value in shown.items())
      line = f"{self._label} {self._count}/{self._total} {text}"
      print(line, file=sys.stderr)

  def close(self) -> None:
    """Leaves the line as it is."""
    if self._bar is not None:
      self._bar.close()

  def __enter__(self) -> "ProgressBar":
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()
