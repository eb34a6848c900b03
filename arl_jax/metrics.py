"""Merges metrics, writing them as JSON lines and TensorBoard events."""

from collections.abc import Iterable, Mapping
import json
import logging
import math
import os
import pathlib
from typing import Any

# A metric is a (sum, count) pair, so that micro-batches, shards and steps merge
# exactly; or a plain number under a name that ends in `_max`.
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
    ValueError: if a plain number's name does not end in `_max`.
  """
  merged: dict[str, Pair | float] = {}
  for part in parts:
    for name, value in part.items():
      before = merged.get(name)
      if isinstance(value, tuple):
        total, count = before if isinstance(before, tuple) else (0.0, 0.0)
        merged[name] = (total + float(value[0]), count + float(value[1]))
      elif name.endswith("_max"):
        number = float(value)
        # Not max(): it forgets a NaN that comes first or last.
        keep = isinstance(before, float) and not number > before
        keep = keep and not math.isnan(number)
        merged[name] = before if keep and before is not None else number
      else:
        raise ValueError(
          f"metric {name!r} is {value!r}; expected a (sum, count) pair, or a "
          "name that ends in _max."
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
    self, workdir: str | os.PathLike[str], *, resume_step: int | None = None
  ) -> None:
    """Opens the files.

    Args:
      workdir: the run's folder; it is created.
      resume_step: records of this step and later are dropped, because the
        resumed run writes them again. None keeps all.
    """
    folder = pathlib.Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    self.path = folder / _FILE_NAME
    if self.path.exists():
      _keep_until(self.path, resume_step)
    self._file = self.path.open("a", encoding="utf-8")
    self._events = _open_events(folder, resume_step)

  def write(self, step: int, values: Mapping[str, Any], **labels: str) -> None:
    """Writes one record.

    Args:
      step: the step that the values belong to.
      values: numbers, or (sum, count) pairs that are written as means.
      **labels: strings that tell records apart, such as `phase="warmup"`.
    """
    numbers = means(values)
    record: dict[str, Any] = {"step": int(step), **labels}
    for name, number in numbers.items():
      # JSON has no NaN and no infinity; null is a gap in a curve.
      record[name] = number if math.isfinite(number) else None
    self._file.write(json.dumps(record) + "\n")
    self._file.flush()
    if self._events is not None:
      prefix = "".join(f"{label}/" for label in labels.values())
      for name, number in numbers.items():
        self._events.add_scalar(f"{prefix}{name}", number, int(step))

  def close(self) -> None:
    """Closes the files."""
    self._file.close()
    if self._events is not None:
      self._events.close()

  def __enter__(self) -> "MetricWriter":
    return self

  def __exit__(self, *unused: object) -> None:
    self.close()


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


def _keep_until(path: pathlib.Path, resume_step: int | None) -> None:
  """Drops a torn last line, with the records that will be written again."""
  kept = [
    json.dumps(record) + "\n"
    for record in read_metrics(path)
    if resume_step is None or record["step"] < resume_step
  ]
  temporary = path.with_suffix(".tmp")
  temporary.write_text("".join(kept), encoding="utf-8")
  temporary.replace(path)


def _open_events(folder: pathlib.Path, resume_step: int | None) -> Any:
  try:
    from tensorboardX import SummaryWriter
  except ImportError:
    logging.getLogger(__name__).warning(
      "tensorboardX is not installed, so metrics go to %s alone.", _FILE_NAME
    )
    return None
  # purge_step hides what the interrupted run wrote at later steps.
  return SummaryWriter(str(folder / "events"), purge_step=resume_step)
