"""A progress bar that shows the numbers one watches."""

from collections.abc import Mapping
import sys
import time
from typing import Any

# Metric and how the bar shows it.
_SHOWN = (
  ("success", "success", "{:.2f}"),
  ("reward/mean", "return", "{:.2f}"),
  ("num_turns/mean", "turns", "{:.1f}"),
  ("perf/tokens_per_second", "tok/s", "{:.0f}"),
  ("loss", "loss", "{:.3f}"),
)


# Without a terminal, every tenth of a second would be a line in a log.
_QUIET_SECONDS = 10.0


class ProgressBar:
  """Owns a line on stderr; without tqdm, one every ten seconds."""

  def __init__(self, label: str, *, total: int, initial: int = 0):
    self._label, self._total, self._count = label, total, initial
    self._bar: Any = None
    self._next_line = 0.0
    try:
      import tqdm
    except ImportError:
      return
    quiet = 0.1 if sys.stderr.isatty() else _QUIET_SECONDS
    self._bar = tqdm.tqdm(
      desc=label,
      total=total,
      initial=initial,
      mininterval=quiet,
      dynamic_ncols=True,
    )

  def advance(self, metrics: Mapping[str, float], *, count: int = 1) -> None:
    """Moves on by a step, or by several, and shows its metrics."""
    self._count += count
    shown = {
      label: form.format(metrics[name])
      for name, label, form in _SHOWN
      if name in metrics
    }
    if self._bar is not None:
      self._bar.set_postfix(shown, refresh=False)
      self._bar.update(count)
    elif self._is_due():
      text = " ".join(f"{label}={value}" for label, value in shown.items())
      line = f"{self._label} {self._count}/{self._total} {text}"
      print(line.rstrip(), file=sys.stderr, flush=True)

  def _is_due(self) -> bool:
    now = time.monotonic()
    is_due = now >= self._next_line or self._count >= self._total
    if is_due:
      self._next_line = now + _QUIET_SECONDS
    return is_due

  def close(self) -> None:
    """Leaves the line as it is."""
    if self._bar is not None:
      self._bar.close()

  def __enter__(self) -> "ProgressBar":
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()
