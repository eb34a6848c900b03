"""Merges metrics, writing them as JSON lines and TensorBoard events."""

from collections.abc import Collection, Iterable, Mapping
import json
import logging
import math
import os
import pathlib
from typing import Any

# A metric is a (sum, count) pair, so that micro-batches, shards and steps merge
# exactly; or a plain number under a name that ends in `/max`.
Pair = tuple[float, float]
Metrics = Mapping[str, Pair | float]

_FILE_NAME = "metrics.jsonl"


def merge(parts: Iterable[Metrics]) -> dict[str, Pair | float]:
  """Adds pairs and takes the maximum of plain numbers, name by name.

  Args:
    parts: metrics of micro-batches, shards or steps.

  Returns:
    One metric per name that any part has.

  Raises:
    ValueError: if a plain number's name does not end in `/max`.
  """
  merged: dict[str, Pair | float] = {}
  for part in parts:
    for name, value in part.items():
      before = merged.get(name)
      if isinstance(value, tuple):
        total, count = before if isinstance(before, tuple) else (0.0, 0.0)
        merged[name] = (total + float(value[0]), count + float(value[1]))
      elif name.endswith("/max"):
        number = float(value)
        # Not max(): it forgets a NaN that comes first or last.
        keep = isinstance(before, float) and not number > before
        keep = keep and not math.isnan(number)
        merged[name] = before if keep and before is not None else number
      else:
        raise ValueError(
          f"metric {name!r} is {value!r}; expected a (sum, count) pair, or a "
          "name that ends in /max."
        )
  return merged


def means(metrics: Metrics) -> dict[str, float]:
  """Returns sum / count of every pair; one with count 0 is left out."""
  numbers: dict[str, float] = {}
  for name, value in metrics.items():
    if not isinstance(value, tuple):
      numbers[name] = float(value)
    elif value[1] != 0:
      numbers[name] = float(value[0]) / float(value[1])
  return numbers


class MetricWriter:
  """Writes one record per step into a run's folder.

  Records go to `metrics.jsonl`, and as scalars to TensorBoard event files
  where tensorboardX is installed.
  """

  def __init__(
    self,
    workdir: str | os.PathLike[str],
    *,
    resume_step: int | None = None,
    finished_phases: Collection[str] = ("warmup",),
  ) -> None:
    """Opens the files.

    Args:
      workdir: the run's folder; it is created.
      resume_step: of an earlier run's records, those of this step and later
        are dropped, because they are written again. None drops all.
      finished_phases: phases of which a resume keeps every record.
    """
    self._folder = pathlib.Path(workdir)
    self._resume_step = resume_step
    self._finished_phases = tuple(finished_phases)
    self._events: dict[str, Any] = {}
    self._folder.mkdir(parents=True, exist_ok=True)
    self.path = self._folder / _FILE_NAME
    kept = [record for record in self._earlier() if self._is_kept(record)]
    lines = "".join(json.dumps(record) + "\n" for record in kept)
    temporary = self.path.with_suffix(".tmp")
    temporary.write_text(lines, encoding="utf-8")
    temporary.replace(self.path)
    self._file = self.path.open("a", encoding="utf-8")
    self._writer_type = _writer_type()

  def write(
    self, step: int, values: Mapping[str, Any], *, phase: str = "train"
  ) -> None:
    """Writes one record.

    Args:
      step: the step that the values belong to.
      values: numbers, or (sum, count) pairs that are written as means.
      phase: which part of the run it belongs to; steps count within one.
    """
    numbers = means(values)
    record: dict[str, Any] = {"step": int(step), "phase": phase}
    for name, number in numbers.items():
      # JSON has no NaN and no infinity; null is a gap in a curve.
      record[name] = number if math.isfinite(number) else None
    self._file.write(json.dumps(record) + "\n")
    self._file.flush()
    if self._writer_type is not None:
      events = self._open_events(phase)
      for name, number in numbers.items():
        events.add_scalar(name, number, int(step))

  def close(self) -> None:
    """Closes the files."""
    self._file.close()
    for events in self._events.values():
      events.close()

  def __enter__(self) -> "MetricWriter":
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()

  def _earlier(self) -> list[dict[str, Any]]:
    return read_metrics(self.path) if self.path.exists() else []

  def _is_kept(self, record: Mapping[str, Any]) -> bool:
    if self._resume_step is None:
      return False
    finished = record.get("phase") in self._finished_phases
    return finished or record["step"] < self._resume_step

  def _open_events(self, phase: str) -> Any:
    """Returns the writer of a phase; TensorBoard overlays the phases."""
    if phase not in self._events:
      finished = phase in self._finished_phases
      # purge_step hides what an interrupted run wrote at later steps.
      purge = 0 if self._resume_step is None else self._resume_step
      self._events[phase] = self._writer_type(
        str(self._folder / "events" / phase),
        purge_step=None if finished and purge else purge,
      )
    return self._events[phase]


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
  """Returns the records of a JSONL file; a torn last line is left out."""
  lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
  records: list[dict[str, Any]] = []
  for number, line in enumerate(lines, start=1):
    try:
      records.append(json.loads(line))
    except ValueError as error:
      if number < len(lines):
        raise ValueError(
          f"{path}, line {number} is not JSON ({error}); restore the file or "
          "remove the line."
        ) from error
  return records


def _writer_type() -> Any:
  """Returns tensorboardX's writer, None where it is not installed."""
  try:
    from tensorboardX import SummaryWriter
  except ImportError:
    logging.getLogger(__name__).warning(
      "tensorboardX is not installed, so metrics go to %s alone.", _FILE_NAME
    )
    return None
  return SummaryWriter
