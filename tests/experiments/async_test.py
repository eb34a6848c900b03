import argparse
import importlib
import json
import pathlib
from types import ModuleType
from typing import Any

import pytest

from arl_jax.run import config_rules
from arl_jax.run.settings import read_settings

FOLDER = pathlib.Path(__file__).parents[2] / "experiments" / "async"
CORRECTIONS = ("nothing", "truncated", "masked", "decoupled")


def _import(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
  monkeypatch.syspath_prepend(str(FOLDER))  # a script finds its neighbours
  return importlib.import_module(name)


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
  return _import(monkeypatch, "learning")


@pytest.fixture
def throughput(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
  return _import(monkeypatch, "throughput")


def _results(folder: pathlib.Path) -> list[dict[str, Any]]:
  lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
  return [json.loads(line) for line in lines]


# Learning.


def test_a_seed_is_whole_before_the_next_begins(learning: ModuleType):
  options = learning.read_options(
    ["--seeds", "3", "4", "--staleness", "0", "8"]
  )
  found = list(learning.conditions(options))
  one = [(3, 0, "nothing"), *((3, 8, name) for name in CORRECTIONS)]
  assert found == one + [(4, *rest) for _, *rest in one]
  options.all_at_zero = True
  assert len(list(learning.conditions(options))) == 2 * 2 * len(CORRECTIONS)


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize("staleness", [0, 1, 16])
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_a_correction_is_a_configuration_that_can_work(
  learning: ModuleType, correction: str, staleness: int, tiny: bool
):
  options = learning.read_options(["--tiny"] if tiny else [])
  config = learning.make_config(options, 5, staleness, correction)
  settings = read_settings(config)
  config_rules.check(settings)
  rollout, loss = settings.rollout, settings.loss
  assert (settings.seed, rollout.max_staleness) == (5, staleness)
  assert rollout.mode == ("async" if staleness else "sync")
  # All the groups that may be under way find a place at once.
  num_groups = (staleness + 1) * rollout.tasks_per_step
  assert rollout.max_concurrent_groups == num_groups
  assert settings.engine.num_slots == num_groups * rollout.group_size
  assert settings.learner.recompute_logprobs == (correction == "decoupled")
  assert (loss.surrogate, loss.importance) == {
    "nothing": ("clipped", "none"),
    "truncated": ("clipped", "truncate"),
    "masked": ("clipped", "mask"),
    "decoupled": ("decoupled", "none"),
  }[correction]


def test_an_update_has_as_many_rows_with_fewer_tasks(learning: ModuleType):
  for tasks in (8, 16):
    options = learning.read_options([f"--tasks_per_step={tasks}"])
    config = learning.make_config(options, 0, 1, "nothing")
    rows = tasks * config.rollout.group_size
    assert rows / config.learner.minibatches_per_step == 32


def _result(seed: int, staleness: int, correction: str, after: float):
  return {
    "seed": seed,
    "staleness": staleness,
    "correction": correction,
    "pass@1/before": 0.5,
    "pass@1/after": after,
    "success/last": after,
    "staleness/mean": staleness / 2,
    "staleness/max": staleness,
    "ess": 0.25,
    "clipped": 0.125,
    "corrected": None,
    "seconds_per_step": 1.5,
    "curves": {"success": [0.5, after]},
  }


def test_the_table_has_means_over_seeds_with_their_range(learning: ModuleType):
  results = [
    _result(0, 4, "decoupled", 0.75),
    _result(0, 4, "nothing", 0.25),
    _result(0, 0, "nothing", 0.875),
    _result(1, 4, "decoupled", 0.25),
  ]
  lines = learning.table(results).splitlines()
  assert [line.split("|")[1:4] for line in lines[2:]] == [
    [" 0 ", " nothing ", " 1 "],
    [" 4 ", " nothing ", " 1 "],
    [" 4 ", " decoupled ", " 2 "],
  ]
  assert lines[4] == (
    "| 4 | decoupled | 2 | 0.500 (0.500 to 0.500) | 0.500 (0.250 to 0.750) |"
    " 0.500 (0.250 to 0.750) | 2.00 | 4 | 0.250 (0.250 to 0.250) | 0.1250 | - |"
    " 1.50 |"
  )


def test_a_result_has_the_means_of_steps_that_learned(learning: ModuleType):
  steps = [
    {
      "phase": "train",
      "step": step,
      "success": step / 10,
      "staleness/mean": 1.0,
      "staleness/max": step,
      "timing_s/step": 100.0 if step < 2 else 3.0,
    }
    for step in range(8)
  ]
  steps[3] |= {"ess": 0.5, "clip_fraction/low": 0.25, "clip_fraction/high": 0}
  evals = [
    {"phase": "eval", "pass@1": rate, "failed_fraction": rate / 4}
    for rate in (0.25, 0.75, 0.5)
  ]
  found = learning.summarize([evals[0], *steps, *evals[1:]])
  rates = [found[f"pass@1/{name}"] for name in ("before", "after", "best")]
  assert rates == [0.25, 0.5, 0.75]
  assert found["failed"] == 0.1875
  assert found["success/last"] == pytest.approx(0.5)
  assert (found["ess"], found["clipped"]) == (0.5, 0.25)
  assert (found["engine_kl"], found["corrected"]) == (None, None)
  assert (found["staleness/max"], found["seconds_per_step"]) == (7, 3.0)


@pytest.mark.usefixtures("jax_config")
def test_what_is_done_is_skipped(
  learning: ModuleType,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
):
  ran = []

  def run(options: argparse.Namespace, *condition: Any) -> None:
    ran.append(condition)
    result = _result(*condition, after=0.75)
    learning.warm_start.add_result(options.workdir / "results.jsonl", result)

  monkeypatch.setattr(learning, "run_condition", run)
  arguments = ["--workdir", str(tmp_path), "--seeds", "1", "--staleness", "0"]
  learning.main(arguments)
  assert ran == [(1, 0, "nothing")]
  arguments += ["1", "--corrections", "nothing", "masked"]
  learning.main(arguments)
  assert ran[1:] == [(1, 1, "nothing"), (1, 1, "masked")]
  with (tmp_path / "results.jsonl").open("a") as file:
    file.write('{"seed": 1, "stal')  # the process was killed here
  learning.main([*arguments, "truncated"])
  assert ran[3:] == [(1, 1, "truncated")]
  # The report runs nothing.
  (tmp_path / "curve.png").unlink()
  capsys.readouterr()
  learning.main(["--workdir", str(tmp_path), "--report"])
  assert len(ran) == 4
  assert learning.table(_results(tmp_path)) in capsys.readouterr().out
  assert (tmp_path / "curve.png").stat().st_size > 1000
  # A folder has the results of one set of options.
  with pytest.raises(SystemExit, match="--num_steps 32, now 3"):
    learning.main([*arguments, "--num_steps", "3"])


@pytest.mark.slow
@pytest.mark.usefixtures("jax_config")
def test_learning_trains_every_condition(
  learning: ModuleType, tmp_path: pathlib.Path
):
  # A run that was cut short left a folder, and begins anew.
  begun = tmp_path / "seed_0" / "staleness_1_decoupled"
  begun.mkdir(parents=True)
  (begun / "metrics.jsonl").write_text("{")
  arguments = ["--workdir", str(tmp_path), "--tiny", "--seeds", "0"]
  arguments += ["--staleness", "0", "1"]
  arguments += ["--corrections", "nothing", "decoupled"]
  learning.main(arguments)
  results = _results(tmp_path)
  keys = [(r["staleness"], r["correction"]) for r in results]
  assert keys == [(0, "nothing"), (1, "nothing"), (1, "decoupled")]
  # All began with the same weights, and older data is seen to be older.
  assert len({r["pass@1/before"] for r in results}) == 1
  assert [r["staleness/max"] for r in results] == [0, 1, 1]
  assert all(len(r["curves"]["success"]) == 2 for r in results)
  assert all(0 < r["ess"] <= 1 for r in results)
  assert (begun / "learning_curve.png").is_file()
  assert not (begun / "checkpoints").exists()
  learning.main(arguments)
  assert _results(tmp_path) == results


def test_a_report_of_nothing_says_so(
  learning: ModuleType, tmp_path: pathlib.Path
):
  with pytest.raises(SystemExit, match="no results"):
    learning.main(["--workdir", str(tmp_path), "--report"])


# Throughput.


@pytest.mark.parametrize("mode", ["sync", "0", "2", "8"])
def test_a_mode_is_a_configuration_that_can_work(
  throughput: ModuleType, mode: str
):
  options = throughput.read_options([])
  settings = read_settings(throughput.make_config(options, mode))
  config_rules.check(settings)
  rollout = settings.rollout
  batches = {"sync": 1, "0": 1, "2": 3, "8": 4}[mode]
  assert rollout.max_concurrent_groups == batches * rollout.tasks_per_step
  assert rollout.step_timeout_seconds > options.longest
  # The largest of all modes, so that all of them run the same programs.
  assert settings.engine.num_slots == 4 * 8 * 8


@pytest.mark.parametrize(
  ("mode", "first", "total"), [("sync", 2, 5), ("0", 2, 5), ("4", 6, 13)]
)
def test_a_run_goes_on_beside_the_steps_that_are_timed(
  throughput: ModuleType, mode: str, first: int, total: int
):
  options = throughput.read_options(["--num_steps", "3"])
  assert throughput.timed_steps(options, mode) == slice(first, first + 3)
  assert throughput.make_config(options, mode).learner.num_steps == total


def test_the_rate_is_of_the_steps_that_are_timed(throughput: ModuleType):
  steps = [
    {
      "phase": "train",
      "timing_s/step": seconds,
      "timing_s/rollout": seconds / 2,
      "timing_s/learn": seconds / 4,
      "staleness/mean": 1.0,
      "staleness/max": 2.0,
      "num_turns/mean": 3.0,
      "groups/stale": 1.0,
    }
    for seconds in (50.0, 8.0, 12.0, 30.0)
  ]
  found = throughput.summarize(
    steps, [1.0, 15.0], timed=slice(1, 3), episodes_per_step=10
  )
  assert found["episodes_per_second"] == 1.0
  assert found["seconds_per_step/mean"] == 10.0
  assert found["seconds_per_step/max"] == 12.0
  assert (found["rollout_share"], found["learn_share"]) == (0.5, 0.25)
  assert found["tool_seconds_per_episode"] == 0.4
  assert found["groups/stale"] == 2.0


@pytest.mark.parametrize(
  ("in_flight", "rate"), [(2, 0.5), (8, 2.0), (100, 10.0)]
)
def test_the_ideal_has_a_busy_device_or_busy_tools(
  throughput: ModuleType, in_flight: int, rate: float
):
  result = {"tool_seconds_per_episode": 4.0, "in_flight": in_flight}
  assert throughput.ideal_rate(result, 0.1) == pytest.approx(rate)


@pytest.mark.parametrize(
  "arguments", [["--modes", "fast"], ["--num_steps", "0"]]
)
def test_wrong_options_are_refused(
  throughput: ModuleType,
  arguments: list[str],
  capsys: pytest.CaptureFixture[str],
):
  with pytest.raises(SystemExit):
    throughput.read_options(arguments)
  assert arguments[0] in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("jax_config")
def test_throughput_measures_every_mode(
  throughput: ModuleType,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
):
  arguments = ["--workdir", str(tmp_path), "--tiny", "--num_steps", "1"]
  arguments += ["--modes", "sync", "2", "--median", "0.01", "--longest", "0.5"]
  throughput.main(arguments)
  results = _results(tmp_path)
  assert [(r["mode"], r["latency"]) for r in results] == [
    ("sync", False),
    ("1", False),
    ("sync", True),
    ("2", True),
  ]
  for result in results:
    assert result["episodes_per_second"] > 0
    assert bool(sum(result["drawn"])) == result["latency"]
    assert result["staleness/max"] <= 2
  out = capsys.readouterr().out
  assert "| sync | 8 |" in out
  assert "| async, 2 | 24 |" in out
  assert "tool seconds: mean" in out
  # What is done is not measured again.
  throughput.main(arguments)
  assert _results(tmp_path) == results
