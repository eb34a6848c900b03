"""Tests of the learning curve."""

import pytest

from arl_jax.reporting import plots

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


def test_panels_wrap_and_phases_are_apart(tmp_path):
  records = [
    {"step": 0, "phase": phase, **dict.fromkeys("abcd", 0.5)}
    for phase in ("train", "eval")
  ]
  wide = plots.write_learning_curve(records, tmp_path / "3.png", series="abc")
  tall = plots.write_learning_curve(records, tmp_path / "4.png", series="abcd")

  def size(path):
    header = path.read_bytes()[16:24]
    return int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")

  assert size(tall) == (size(wide)[0], 2 * size(wide)[1])


def test_curve_of_nothing_is_refused(tmp_path):
  with pytest.raises(ValueError, match="none of these metrics"):
    plots.write_learning_curve(RECORDS, tmp_path / "x.png", series=("absent",))
  assert not list(tmp_path.iterdir())
