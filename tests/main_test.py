"""Tests of the training command as a user starts it."""

import subprocess
import sys


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
  return subprocess.run(
    [sys.executable, "-m", "arl_jax.main", *arguments],
    capture_output=True,
    text=True,
    timeout=60,
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
