"""Runs that are killed at random moments train on what they would have."""

import json
import pathlib
import subprocess
import sys

import pytest

_SCRIPT = pathlib.Path(__file__).with_name("kill_loop.py")
_CASES = [
  (mode, name) for mode in ("async", "sync") for name in ("KILL", "TERM")
]


@pytest.fixture(name="cache", scope="module")
def make_cache(tmp_path_factory):
  """What one run compiled, the next need not."""
  return str(tmp_path_factory.mktemp("compiled"))


def run(folder, cache, mode, name, *, kills, steps, seed):
  command = [sys.executable, str(_SCRIPT), "--folder", str(folder)]
  command += ["--cache", cache]
  command += ["--mode", mode, "--signal", name, "--seed", str(seed)]
  command += ["--kills", str(kills), "--steps", str(steps)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr[-6000:]
  return json.loads(done.stdout.splitlines()[-1])


def check(facts, mode, name, *, steps):
  print({k: facts[k] for k in ("codes", "seconds_whole", "seconds")})
  # OpenRLHF#1322, NeMo#3599, trl#5911: none skipped, none repeated.
  assert facts["killed"] == facts["whole"]
  assert len(facts["whole"]) == len(set(facts["whole"])) == 2 * steps
  # Some environments never reset; others took the places of their groups.
  assert max(facts["whole"]) >= 2 * steps
  assert facts["weights_whole"][0] == facts["weights_killed"][0] == steps
  if mode == "sync":
    assert facts["weights_whole"] == facts["weights_killed"]
  if name == "TERM":
    # Before the run has begun, nobody is there to end it cleanly.
    assert set(facts["codes"]) <= {0, -15}
    assert 0 in facts["codes"]
    assert max(facts["delays"]) < 60
  else:
    assert -9 in facts["codes"]


@pytest.mark.parametrize(
  ("mode", "name"), [("async", "KILL"), ("sync", "TERM")]
)
def test_a_few_kills_change_nothing(tmp_path, cache, mode, name):
  facts = run(tmp_path, cache, mode, name, kills=3, steps=12, seed=0)
  check(facts, mode, name, steps=12)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "name"), _CASES)
def test_twenty_kills_change_nothing(tmp_path, cache, mode, name):
  facts = run(tmp_path, cache, mode, name, kills=20, steps=40, seed=1)
  check(facts, mode, name, steps=40)
