"""Tests of the learning curve."""

import pytest

from arl_jax import plots

RECORDS = [
  {"step": 0, "success": 0.5, "loss": None},
  {"step": 1, "loss": 0.1},
  {"step": 2, "success": 0.9, "loss": 0.2},
]


def test_curve_is_a_png_with_a_panel_per_metric(tmp_path):
  one = plots.write_learning_curve(
    RECORDS, tmp_path / "a" / "one.png", series=("success",)
  )
  two = plots.write_learning_curve(
    RECORDS, tmp_path / "two.png", series=("success", "loss", "absent")
  )
  assert one.read_bytes().startswith(b"\x89PNG")

  def width(path):
    return int.from_bytes(path.read_bytes()[16:20], "big")

  assert width(two) == 2 * width(one)


def test_curve_of_nothing_is_refused(tmp_path):
  with pytest.raises(ValueError, match="none of these metrics"):
    plots.write_learning_curve(RECORDS, tmp_path / "x.png", series=("absent",))
  assert not list(tmp_path.iterdir())
