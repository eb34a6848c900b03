"""A checkpoint that is torn is skipped for the one before."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from arl_jax.learner import checkpoint_errors
from arl_jax.learner.checkpoint import CheckpointStore, has_checkpoint
from arl_jax.types import LearnerState

STEPS = (1, 2, 3)


def make_state(step, size=30):
  """Returns a state that tells its step; `w` is large enough for a file."""
  key = jax.random.key(step)
  params = {"b": jax.numpy.full(2, step + 0.5)}
  params["w"] = jax.random.normal(key, (size, 30))
  return LearnerState(params=params, opt_state=(), step=jax.numpy.int32(step))


def save(store, step):
  state = make_state(step)
  store.save(step, state, {"version": step}, ref_params=state.params)
  store.wait()


def assert_is_of(step, found):
  """All that was restored is of one step."""
  assert found.step == step
  assert found.extras == {"version": step}
  expected = make_state(step)
  parts = [(found.state, expected), (found.reference, expected.params)]
  for got, wanted in parts:
    jax.tree.map(np.testing.assert_array_equal, got, wanted)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
  folder = tmp_path_factory.mktemp("template") / "checkpoints"
  with CheckpointStore(str(folder)) as store:
    for step in STEPS:
      save(store, step)
  return folder


@pytest.fixture
def saved(template, tmp_path):
  """A folder with whole checkpoints of the steps 1, 2 and 3."""
  return pathlib.Path(shutil.copytree(template, tmp_path / "checkpoints"))


def largest(folder):
  files = [path for path in folder.rglob("*") if path.is_file()]
  return max(files, key=lambda path: path.stat().st_size)


def truncate(file):
  os.truncate(file, file.stat().st_size // 2)


def flip(folder):
  # Every array file: which of them hold values is orbax's business.
  for path in folder.glob("state/d/*"):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(bytes(data))


def empty(folder):
  shutil.rmtree(folder)
  folder.mkdir()


def leave_only_the_marker(folder):
  empty(folder)
  (folder / "commit_success.txt").write_text("Checkpoint commit was successful")


def forget_item(folder, item):
  file = folder / "_CHECKPOINT_METADATA"
  content = json.loads(file.read_text())
  del content["item_handlers"][item]
  file.write_text(json.dumps(content))


# What happens to the newest checkpoint, and what the message says of it.
DAMAGES = {
  "empty folder": (empty, "metadata"),
  "only the commit marker": (leave_only_the_marker, "metadata"),
  "no checkpoint metadata": (
    lambda f: (f / "_CHECKPOINT_METADATA").unlink(),
    "metadata",
  ),
  "torn checkpoint metadata": (
    lambda f: truncate(f / "_CHECKPOINT_METADATA"),
    "metadata",
  ),
  "metadata of no object": (
    lambda f: (f / "_CHECKPOINT_METADATA").write_text("[]"),
    "metadata",
  ),
  "metadata of other types": (
    lambda f: (f / "_CHECKPOINT_METADATA").write_text(
      '{"item_handlers": 3, "commit_timestamp_nsecs": "x"}'
    ),
    "metadata",
  ),
  "metadata without state": (lambda f: forget_item(f, "state"), "state"),
  "no state": (lambda f: shutil.rmtree(f / "state"), "state"),
  "no extras": (lambda f: shutil.rmtree(f / "extras"), "extras"),
  "no reference": (lambda f: shutil.rmtree(f / "reference"), "reference"),
  "no state metadata": (lambda f: (f / "state/_METADATA").unlink(), "state"),
  "state metadata without leaves": (
    lambda f: (f / "state/_METADATA").write_text("{}"),
    "state",
  ),
  "no manifest": (lambda f: (f / "state/manifest.ocdbt").unlink(), "state"),
  "no arrays": (lambda f: shutil.rmtree(f / "state/d"), "state"),
  "flipped array index": (flip, "state"),
  "no array file": (lambda f: largest(f / "state").unlink(), "state"),
  "torn array file": (lambda f: truncate(largest(f / "state")), "state"),
  "torn reference": (lambda f: truncate(largest(f / "reference")), "reference"),
  "garbage extras": (
    lambda f: (f / "extras/metadata").write_text("{"),
    "extras",
  ),
  "extras of no object": (
    lambda f: (f / "extras/metadata").write_text("[1]"),
    "extras",
  ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_skipped_with_a_warning(saved, name, caplog):
  damage, item = DAMAGES[name]
  damage(saved / "3")
  target = make_state(0)
  with CheckpointStore(str(saved)) as store:
    with pytest.raises(ValueError, match=rf"/3 is damaged: its {item}.*\[1, 2"):
      store.restore(3, target, with_reference=True)
    assert not caplog.records
    assert_is_of(2, store.restore(None, target, with_reference=True))
    warning, renaming = [record.getMessage() for record in caplog.records]
    assert re.search(rf"/3 is damaged: its {item} .* step 2 instead", warning)
    assert "damaged-3" in renaming
    # The run goes on, over the step that was damaged.
    assert store.latest_step() == 2
    assert store.read_extras(None) == {"version": 2}
    save(store, 3)
    save(store, 4)
    assert_is_of(4, store.restore(None, target, with_reference=True))
    assert len(caplog.records) == 2
  assert sorted(os.listdir(saved)) == ["2", "3", "4", "damaged-3"]


def test_any_file_may_be_missing_or_torn(saved, tmp_path):
  """Whatever is lost, what is restored is all of one step, and right."""
  step = saved / "3"
  files = [path for path in step.rglob("*") if path.is_file()]
  originals = {path: path.read_bytes() for path in files}
  used = []
  for path, content in originals.items():
    for left in (None, b"", content[: len(content) // 2]):
      path.unlink() if left is None else path.write_bytes(left)
      with CheckpointStore(str(saved), create=False) as store:
        found = store.restore(None, make_state(0), with_reference=True)
      assert found.step in (2, 3)
      assert_is_of(found.step, found)
      used.append(found.step)
      path.write_bytes(content)
  # Some files hold nothing that is needed; most do.
  assert {2, 3} == set(used)
  assert used.count(2) > 30


def test_a_read_only_store_changes_nothing(saved, caplog):
  empty(saved / "3")
  (saved / "4.orbax-checkpoint-tmp").mkdir()
  before = sorted(saved.rglob("*"))
  with CheckpointStore(str(saved), create=False) as store:
    assert store.read_extras(None) == {"version": 2}
    assert_is_of(2, store.restore(None, make_state(0), with_reference=True))
  assert sorted(saved.rglob("*")) == before
  assert "step 2 instead" in caplog.text


def test_reading_extras_renames_nothing(saved):
  empty(saved / "3")
  with CheckpointStore(str(saved)) as store:
    assert store.read_extras(None) == {"version": 2}
    assert store.latest_step() == 3


def test_all_newer_ones_are_skipped_and_none_that_is_older(saved, caplog):
  for step in (1, 3):
    empty(saved / str(step))
  (saved / "damaged-3").mkdir()
  with CheckpointStore(str(saved), keep=9) as store:
    save(store, 4)
    empty(saved / "4")
    assert store.restore(None, make_state(0)).step == 2
  assert re.search("/4 is damaged.*step 2", caplog.text)
  assert re.search("/3 is damaged.*step 2", caplog.text)
  assert "/1 " not in caplog.text
  names = ["1", "2", "damaged-3", "damaged-3-2", "damaged-4"]
  assert sorted(os.listdir(saved)) == names


def test_a_torn_reference_is_no_matter_to_who_needs_none(saved, caplog):
  truncate(largest(saved / "3" / "reference"))
  with CheckpointStore(str(saved)) as store:
    assert store.restore(None, make_state(0)).step == 3
  assert not caplog.records


def test_where_none_is_whole_each_is_listed_with_its_reason(saved):
  empty(saved / "1")
  shutil.rmtree(saved / "2" / "state")
  truncate(largest(saved / "3" / "state"))
  message = (
    r"no checkpoint in .*/checkpoints is whole:"
    r"\n  step 3: its state cannot be read .*"
    r"\n  step 2: its state is missing"
    r"\n  step 1: its metadata cannot be read \(FileNotFoundError.*"
    r"\nBring one back from a copy"
  )
  before = sorted(saved.rglob("*"))
  with CheckpointStore(str(saved)) as store:
    with pytest.raises(ValueError, match=message):
      store.restore(None, make_state(0))
  assert sorted(saved.rglob("*")) == before


def test_only_damaged_checkpoints_still_count_as_a_run(tmp_path):
  # A run must not begin again over what its user may bring back.
  (tmp_path / "5").mkdir()
  assert has_checkpoint(str(tmp_path))
  with CheckpointStore(str(tmp_path)) as store:
    assert store.latest_step() == 5
    with pytest.raises(ValueError, match="step 5: its metadata"):
      store.read_extras(None)


def test_a_file_named_as_a_step_is_none(tmp_path):
  (tmp_path / "5").write_text("")
  assert not has_checkpoint(str(tmp_path))
  with CheckpointStore(str(tmp_path)) as store:
    assert store.latest_step() is None


def test_a_save_that_never_ended_counts_as_none(tmp_path):
  (tmp_path / "0.orbax-checkpoint-tmp" / "state").mkdir(parents=True)
  assert not has_checkpoint(str(tmp_path))
  with CheckpointStore(str(tmp_path)) as store:
    assert store.latest_step() is None
    save(store, 0)
    assert_is_of(0, store.restore(None, make_state(1), with_reference=True))
  assert os.listdir(tmp_path) == ["0"]


def test_another_model_is_a_mistake_and_not_damage(saved):
  empty(saved / "3")
  with CheckpointStore(str(saved)) as store:
    with pytest.raises(ValueError, match=r"/2 is of another model"):
      store.restore(None, make_state(0, size=7))
    assert store.latest_step() == 3


@pytest.mark.parametrize(
  "error",
  [
    MemoryError("no memory"),
    PermissionError(13, "denied"),
    RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"),
  ],
)
def test_a_fault_of_the_machine_is_not_damage(saved, error, monkeypatch):
  def fail(self, step, **kwargs):
    raise error

  with CheckpointStore(str(saved)) as store:
    monkeypatch.setattr(type(store._manager), "restore", fail)
    with pytest.raises(type(error), match=re.escape(str(error))):
      store.restore(None, make_state(0))
    assert store.latest_step() == 3


def test_a_long_reason_is_one_short_line():
  text = "cannot\n read file\n" + "x" * 500
  error = checkpoint_errors.damaged_item("state", ValueError(text))
  assert re.fullmatch(
    r"its state cannot be read \(ValueError: cannot read file x+\.\.\.\)",
    str(error),
  )
  assert len(str(error)) < 300
  spec = ValueError("no file [tensorstore_spec='{}']")
  assert "(ValueError: no file)" in str(
    checkpoint_errors.damaged_item("state", spec)
  )


# Saves step after step and says when each is on disk. It kills itself at the
# n-th use of the file system that Python sees, so a slow machine changes
# nothing; at 0 it waits to be killed.
_SAVE_FOREVER = """
import itertools, os, signal, sys
sys.path.insert(0, sys.argv[1])
import torn_checkpoint_test as t
folder, left = sys.argv[2], int(sys.argv[3])
events = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
def count(event, args):
  global left
  # What is removed with a folder is named relative to it.
  if event in events and (folder in str(args[0]) or event[:4] == "os.r"):
    left -= 1
    if left == 0:
      os.kill(os.getpid(), signal.SIGKILL)
with t.CheckpointStore(folder, keep=2) as store:
  t.save(store, 1)
  t.save(store, 2)
  print(2, flush=True)
  sys.addaudithook(count)
  for step in itertools.count(3):
    t.save(store, step)
    print(step, flush=True)
"""


def test_a_kill_at_any_moment_leaves_the_last_whole_one(tmp_path):
  generator = random.Random(0)
  here = str(pathlib.Path(__file__).parent)
  # A save is some 70 events; 0 is killed from here, at no chosen moment.
  moments = [0, *generator.sample(range(1, 210), 3)]
  processes = {
    str(tmp_path / str(moment)): subprocess.Popen(
      [sys.executable, "-c", _SAVE_FOREVER, here, tmp_path / str(moment)]
      + [str(moment)],
      stdout=subprocess.PIPE,
      text=True,
    )
    for moment in moments
  }
  for folder, process in processes.items():
    assert process.stdout is not None
    if folder.endswith("/0"):
      assert process.stdout.readline() == "2\n"
      process.kill()
    lines, _ = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    last = int(lines.split()[-1]) if lines else 2
    with CheckpointStore(folder, keep=2) as store:
      found = store.restore(None, make_state(0), with_reference=True)
      # The step being saved may have ended too, before it could be said.
      assert found.step in (last, last + 1)
      assert_is_of(found.step, found)
      save(store, found.step + 1)
      assert store.latest_step() == found.step + 1
