"""Files of which readers see all or nothing."""

import errno
import os
import pathlib
import stat
import subprocess
import sys

import pytest

from arl_jax.trajectories.whole_file import remove_leftovers, write_lines
from tests.trajectories.examples import ROOT

FULL = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]


def names(folder: pathlib.Path) -> list[str]:
  return sorted(path.name for path in folder.iterdir())


def test_lines_are_strict_json_in_ascii(tmp_path):
  write_lines(tmp_path / "a", [{"x": "\u00e9\ud800"}, [1, None]])
  text = (tmp_path / "a").read_bytes()
  assert text == b'{"x":"\\u00e9\\ud800"}\n[1,null]\n'
  assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("bad", [float("nan"), {1}])
def test_what_json_lacks_leaves_the_old_file_and_nothing_else(tmp_path, bad):
  write_lines(tmp_path / "a", [1])
  with pytest.raises((ValueError, TypeError)):
    write_lines(tmp_path / "a", [2, bad])
  assert (tmp_path / "a").read_text() == "1\n"
  assert names(tmp_path) == ["a"]


def fail(monkeypatch, number):
  def fsync(descriptor):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("number", FULL)
def test_a_full_disk_says_where_and_what_to_do(tmp_path, monkeypatch, number):
  write_lines(tmp_path / "a", [1])
  fail(monkeypatch, number)
  with pytest.raises(OSError, match="Free space") as caught:
    write_lines(tmp_path / "a", [2])
  assert caught.value.errno == number
  text = str(caught.value)
  assert str(tmp_path / "a") in text
  assert "lower config.store.max_gigabytes, then resume" in text
  assert (tmp_path / "a").read_text() == "1\n"
  assert names(tmp_path) == ["a"]


def test_another_error_of_the_disk_stays_what_it_is(tmp_path, monkeypatch):
  fail(monkeypatch, errno.EIO)
  with pytest.raises(OSError, match="Input/output error") as caught:
    write_lines(tmp_path / "a", [2])
  assert "max_gigabytes" not in str(caught.value)
  assert names(tmp_path) == []


def test_the_file_is_synced_before_its_name_and_the_folder_after(
  tmp_path, monkeypatch
):
  """Else a power cut leaves a name that stands for an empty file."""
  events = []
  fsync, replace = os.fsync, pathlib.Path.replace

  def sync(descriptor):
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    events.append("sync folder" if is_folder else "sync file")
    fsync(descriptor)

  def rename(path, target):
    assert path.read_text() == "1\n"
    events.append("rename")
    return replace(path, target)

  monkeypatch.setattr(os, "fsync", sync)
  monkeypatch.setattr(pathlib.Path, "replace", rename)
  write_lines(tmp_path / "a", [1])
  assert events == ["sync file", "rename", "sync folder"]


_KILLED = """
import pathlib, sys, time
from arl_jax.trajectories.whole_file import write_lines

def records():
  yield "x" * 10**6
  print("half", flush=True)
  time.sleep(600)

write_lines(pathlib.Path(sys.argv[1]), records())
"""


def test_a_process_that_is_killed_leaves_the_old_file_whole(tmp_path):
  write_lines(tmp_path / "a", [1])
  with subprocess.Popen(
    [sys.executable, "-c", _KILLED, str(tmp_path / "a")],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    text=True,
  ) as process:
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.kill()
  assert names(tmp_path) == ["a", "a.tmp"]
  assert (tmp_path / "a").read_text() == "1\n"
  remove_leftovers(tmp_path)
  assert names(tmp_path) == ["a"]
