"""The disk fills while episodes are written: a real limit, and a real disk."""

import pathlib
import shutil

import pytest

from arl_jax.trajectories.pending import load_pending
from arl_jax.trajectories.store import read_step, read_steps
from tests.trajectories.examples import (
  assert_same_groups,
  long_groups,
  run_script,
)

_NUM_TOKENS = 1000
_SETUP = f"""
import pathlib, resource, signal, sys
from arl_jax.trajectories import pending, store
from tests.trajectories.examples import assert_same_groups, long_groups

folder = pathlib.Path(sys.argv[1])
small = long_groups(num_episodes=2, num_tokens={_NUM_TOKENS})
large = long_groups(num_episodes=20, num_tokens={_NUM_TOKENS})
trajectories = store.TrajectoryStore(folder / "trajectories", max_bytes=None)

def fails(write):
  try:
    write()
  except OSError as error:
    assert "Free space" in str(error), error
    print(error.errno, error)
    return True
  return False
"""

_LIMIT = (
  _SETUP
  + """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
trajectories.write(0, small, None)
pending.save_pending(folder / "pending", 0, {"next": 1}, small)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
assert fails(lambda: trajectories.write(0, large, None))
assert fails(lambda: trajectories.write(1, large, None))
assert fails(lambda: pending.save_pending(folder / "pending", 0, {}, large))
assert fails(lambda: pending.save_pending(folder / "pending", 1, {}, large))
trajectories.write(2, small, None)
print("went on")
"""
)


def names(folder: pathlib.Path) -> list[str]:
  return sorted(path.name for path in folder.iterdir())


def test_a_file_that_may_not_grow_costs_only_itself(tmp_path):
  done = run_script(_LIMIT, tmp_path)
  assert done.returncode == 0, done.stderr
  *failures, last = done.stdout.splitlines()
  assert last == "went on"
  assert len(failures) == 4
  for line, name in zip(
    failures,
    ("step-00000000", "step-00000001", "00000000", "00000001"),
    strict=True,
  ):
    assert "File too large" in line
    assert f"{name}.jsonl. Free space there, or lower config.store" in line
  groups = long_groups(num_episodes=2, num_tokens=_NUM_TOKENS)
  assert names(tmp_path / "trajectories") == [
    "step-00000000.jsonl",
    "step-00000002.jsonl",
  ]
  for step in (0, 2):
    assert_same_groups(read_step(tmp_path / "trajectories", step), groups)
  assert names(tmp_path / "pending") == ["00000000.jsonl"]
  found = load_pending(tmp_path / "pending", 0)
  assert found is not None
  assert found[0] == {"next": 1}
  assert_same_groups(found[1], groups)


_DISK = (
  _SETUP
  + """
step = 0
while not fails(lambda: trajectories.write(step, small, None)):
  step += 1
  assert step < 1000
path = folder / "trajectories"
assert step > 3
assert store.read_steps(path) == list(range(step))
assert len(list(path.iterdir())) == step
for _, groups in store.read_groups(path):
  assert_same_groups(groups, small)

# What the message says: lower the bound, resume.
size = (path / "step-00000000.jsonl").stat().st_size
trajectories = store.TrajectoryStore(path, max_bytes=3 * size)
trajectories.truncate(step)
assert store.read_steps(path) == [step - 3, step - 2, step - 1]
for later in range(step, step + 10):
  trajectories.write(later, small, None)
print("went on")
"""
)
# A file system of its own for one process; it goes away with the process.
_MOUNT = 'mount -t tmpfs -o size=512k tmpfs "$1" && shift && exec "$@"'


def _private_mounts(folder: pathlib.Path) -> tuple[str, ...] | None:
  """Returns what to put before a command, None where it is not allowed."""
  if shutil.which("unshare") is None:
    return None
  for flags in ("-m", "-rm"):
    prefix = ("unshare", flags, "sh", "-c", _MOUNT, "sh", str(folder))
    if run_script("", prefix=prefix).returncode == 0:
      return prefix
  return None


def test_a_disk_that_fills_keeps_the_earlier_steps(tmp_path):
  prefix = _private_mounts(tmp_path)
  if prefix is None:
    pytest.skip("mounting a small disk needs unshare and its permission")
  done = run_script(_DISK, tmp_path, prefix=prefix)
  assert done.returncode == 0, done.stderr
  failure, last = done.stdout.splitlines()
  assert "No space left on device" in failure
  assert last == "went on"
  assert names(tmp_path) == []  # it was the small disk that filled


def test_the_script_fails_where_nothing_limits_it(tmp_path):
  """Or it would prove nothing."""
  done = run_script(_LIMIT.replace("200_000", str(10**9)), tmp_path)
  assert done.returncode == 1
  assert "AssertionError" in done.stderr
  assert read_steps(tmp_path / "trajectories") == [0]
