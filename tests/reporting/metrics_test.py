"""Tests of merging and writing metrics."""

import builtins
import json
import logging
import math

import pytest

from arl_jax.reporting import metrics


def test_merge_adds_pairs_and_takes_the_maximum():
  merged = metrics.merge(
    [
      {"loss": (3.0, 2.0), "ratio/max": 1.5},
      {"loss": (1.0, 6.0), "ratio/max": 1.25, "clip": (1, 4)},
    ]
  )
  assert merged == {"loss": (4.0, 8.0), "ratio/max": 1.5, "clip": (1.0, 4.0)}
  # The mean over all, not the mean of the parts' means (1.5 and 1/6).
  assert metrics.means(merged) == {"loss": 0.5, "ratio/max": 1.5, "clip": 0.25}


def test_merge_does_not_depend_on_order_or_split():
  parts = [{"x": (1.0, 1.0)}, {"x": (2.0, 3.0)}, {"x": (0.0, 4.0)}]
  whole = metrics.merge(parts)
  assert metrics.merge(reversed(parts)) == whole
  assert metrics.merge([metrics.merge(parts[:2]), parts[2]]) == whole


@pytest.mark.parametrize("values", [(math.nan, 1.0), (1.0, math.nan)])
def test_maximum_does_not_hide_a_nan(values):
  merged = metrics.merge([{"ratio/max": value} for value in values])
  number = merged["ratio/max"]
  assert isinstance(number, float)
  assert math.isnan(number)


def test_merge_refuses_a_number_that_has_no_count():
  with pytest.raises(ValueError, match="'loss' is 0.5; expected a"):
    metrics.merge([{"loss": 0.5}])


def test_mean_of_nothing_is_left_out():
  assert metrics.means({"loss": (0.0, 0.0), "x": (1.0, 2.0)}) == {"x": 0.5}


def test_writer_writes_one_line_per_record(tmp_path):
  with metrics.MetricWriter(tmp_path) as writer:
    writer.write(0, {"loss": (1.0, 4.0)}, phase="warmup")
    writer.write(1, {"loss": math.nan, "success": 0.5})
  lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
  assert [json.loads(line) for line in lines] == [
    {"step": 0, "phase": "warmup", "loss": 0.25},
    {"step": 1, "phase": "train", "loss": None, "success": 0.5},
  ]
  for phase in ("warmup", "train"):
    assert list((tmp_path / "events" / phase).iterdir())


def _write_and_die(folder) -> None:
  with metrics.MetricWriter(folder) as writer:
    for step in range(4):
      writer.write(step, {"x": -float(step)}, phase="warmup")
    for step in range(4):
      writer.write(step, {"x": float(step)})
  with writer.path.open("a") as file:
    file.write('{"step": 4, "x"')  # killed while writing


def test_resume_drops_what_will_be_written_again(tmp_path):
  _write_and_die(tmp_path)
  with metrics.MetricWriter(tmp_path, resume_step=2) as writer:
    writer.write(2, {"x": 20.0})
  values = {"warmup": [], "train": []}
  for record in metrics.read_metrics(writer.path):
    values[record["phase"]].append(record["x"])
  assert values == {"warmup": [0, -1, -2, -3], "train": [0, 1, 20]}


def test_start_over_drops_all(tmp_path):
  _write_and_die(tmp_path)
  with metrics.MetricWriter(tmp_path) as writer:
    writer.write(0, {"x": 7.0})
  assert metrics.read_metrics(writer.path) == [
    {"step": 0, "phase": "train", "x": 7.0}
  ]


def test_reader_names_the_line_that_is_broken(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"step": 0}\n{oops\n{"step": 2}\n')
  with pytest.raises(ValueError, match="line 2 is not JSON"):
    metrics.read_metrics(path)


def test_without_tensorboardx_lines_are_written_and_said(
  tmp_path, monkeypatch, caplog
):
  real = builtins.__import__

  def absent(name, *arguments, **options):
    if name == "tensorboardX":
      raise ImportError(name)
    return real(name, *arguments, **options)

  monkeypatch.setattr(builtins, "__import__", absent)
  with caplog.at_level(logging.WARNING):
    with metrics.MetricWriter(tmp_path) as writer:
      writer.write(0, {"x": 1.0})
      writer.write(1, {"x": 2.0})
  assert [record["x"] for record in metrics.read_metrics(writer.path)] == [1, 2]
  assert caplog.text.count("tensorboardX is not installed") == 1
  assert not (tmp_path / "events").exists()
