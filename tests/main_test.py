"""Tests of the training command as a user starts it."""

import json
import subprocess
import sys

RUNLOCAL = "--config=configs/flight_booking.py:runlocal"


def _run(
  *arguments: str, command: str = "main"
) -> subprocess.CompletedProcess[str]:
  return subprocess.run(
    [sys.executable, "-m", f"arl_jax.{command}", *arguments],
    capture_output=True,
    text=True,
    timeout=240,
    check=False,
  )


def test_typo_ends_with_one_message_and_no_traceback(tmp_path):
  done = _run(
    "--config=configs/flight_booking.py",
    f"--workdir={tmp_path}",
    "--config.loss.clip_hgh=0.3",
  )
  assert done.returncode == 2
  assert done.stderr.startswith("error: --config.loss.clip_hgh is not a known")
  assert "Traceback" not in done.stderr
  assert not list(tmp_path.iterdir())


def test_help_needs_no_configuration():
  done = _run("--help")
  assert done.returncode == 0
  assert "python -m arl_jax.main --config=FILE" in done.stdout


def test_run_leaves_what_it_prints_and_can_be_evaluated(tmp_path):
  workdir = f"--workdir={tmp_path}"
  trained = _run(RUNLOCAL, workdir)
  assert trained.returncode == 0, trained.stderr
  for name in ("learning_curve.png", "episodes.txt"):
    assert str(tmp_path / name) in trained.stdout
    assert (tmp_path / name).stat().st_size > 0
  text = (tmp_path / "metrics.jsonl").read_text()
  records = [json.loads(line) for line in text.splitlines()]
  steps = {phase: [] for phase in ("warmup", "train", "eval")}
  for record in records:
    steps[record["phase"]].append(record["step"])
  assert steps == {"warmup": [0, 1, 2, 3], "train": [0, 1], "eval": [0, 2]}
  updates = [r["num_updates"] for r in records if r["phase"] == "train"]
  assert updates == [1, 1]

  evaluated = _run(RUNLOCAL, workdir, command="evaluate")
  assert evaluated.returncode == 0, evaluated.stderr
  # Weights, tasks and seeds are those of the run's last evaluation.
  again = json.loads((tmp_path / "evaluation.json").read_text())
  last = [record for record in records if record["phase"] == "eval"][-1]
  for name in ("pass@1", "num_turns/mean", "response_length/mean"):
    assert again[name] == last[name]

  other = _run(RUNLOCAL, workdir, "--config.seed=2")
  assert other.returncode == 2
  assert "seed: 0 there, 2 here" in other.stderr
  assert "Traceback" not in other.stderr


def test_evaluating_nothing_says_so(tmp_path):
  done = _run(RUNLOCAL, f"--workdir={tmp_path / 'none'}", command="evaluate")
  assert done.returncode == 2
  assert done.stderr.startswith("error: checkpoint folder")
  assert "Traceback" not in done.stderr


def test_typo_in_a_name_is_found_before_anything_is_written(tmp_path):
  folder = tmp_path / "run"
  done = _run(RUNLOCAL, f"--workdir={folder}", "--config.loss.surrogate=cliped")
  assert done.returncode == 2
  assert "surrogate is 'cliped'" in done.stderr
  assert not folder.exists()
