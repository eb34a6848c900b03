"""Groups that are finished but not trained, beside a checkpoint."""

import json
import logging
import pathlib
import random

import numpy as np
import pytest

from arl_jax.trajectories.pending import load_pending, save_pending
from tests.trajectories.examples import assert_same_groups, random_groups

CURSOR = {"next_ordinal": 17, "open_ordinals": [3, 9], "more": {"a": (1, 2)}}
GROUPS = random_groups(1)


def path_of(folder: pathlib.Path, version: int) -> pathlib.Path:
  return folder / f"{version:08d}.jsonl"


def names(folder: pathlib.Path) -> list[str]:
  return sorted(path.name for path in folder.iterdir())


def check_is_lost(folder: pathlib.Path, version: int, caplog) -> None:
  caplog.clear()
  with caplog.at_level(logging.WARNING):
    assert load_pending(folder, version) is None
  (record,) = caplog.records
  assert str(path_of(folder, version)) in record.getMessage()
  assert "run again" in record.getMessage()


def test_groups_come_back_with_their_cursor(tmp_path, caplog):
  folder = tmp_path / "run" / "pending"
  save_pending(folder, 12, CURSOR, GROUPS)
  assert names(folder) == ["00000012.jsonl"]
  found = load_pending(folder, 12)
  assert found is not None
  cursor, groups = found
  assert cursor == CURSOR
  assert_same_groups(groups, GROUPS)
  assert not caplog.records


def test_no_groups_come_back_as_none(tmp_path):
  save_pending(tmp_path, 0, CURSOR, ())
  assert load_pending(tmp_path, 0) == (CURSOR, ())


def test_no_file_is_no_groups_and_no_warning(tmp_path, caplog):
  save_pending(tmp_path, 3, CURSOR, GROUPS)
  assert load_pending(tmp_path, 4) is None
  assert load_pending(tmp_path / "nowhere", 3) is None
  assert not caplog.records


def test_the_first_line_says_what_follows(tmp_path):
  save_pending(tmp_path, 3, CURSOR, GROUPS)
  first, *rest = path_of(tmp_path, 3).read_text().splitlines()
  header = json.loads(first)
  assert header["schema"] == 1
  assert header["version"] == 3
  assert header["num_episodes"] == len(rest) - 1 == 12
  assert header["groups"] == [[1000, 4], [1001, 4], [1002, 4]]


def test_only_the_versions_to_keep_stay(tmp_path):
  for version in range(5):
    save_pending(tmp_path, version, CURSOR, GROUPS, keep_versions=range(5))
  (tmp_path / "notes.txt").write_text("")
  path_of(tmp_path, 9).with_suffix(".jsonl.tmp").write_text("half")
  save_pending(tmp_path, 5, CURSOR, GROUPS, keep_versions=(1, 3, 77))
  assert names(tmp_path) == [
    "00000001.jsonl",
    "00000003.jsonl",
    "00000005.jsonl",
    "notes.txt",
  ]
  save_pending(tmp_path, 6, CURSOR, GROUPS)
  assert names(tmp_path) == ["00000006.jsonl", "notes.txt"]


def test_a_version_is_replaced(tmp_path):
  save_pending(tmp_path, 3, CURSOR, GROUPS)
  save_pending(tmp_path, 3, {"next_ordinal": 0}, random_groups(2))
  found = load_pending(tmp_path, 3)
  assert found is not None
  assert found[0] == {"next_ordinal": 0}
  assert_same_groups(found[1], random_groups(2))


def test_a_file_that_is_torn_anywhere_counts_as_none(tmp_path, caplog):
  save_pending(tmp_path, 3, CURSOR, GROUPS)
  path = path_of(tmp_path, 3)
  content = path.read_bytes()
  ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
  assert ends[-1] == len(content)
  rng = random.Random(0)
  cuts = {0, 1, *ends[:-1], *(end - 2 for end in ends)}
  cuts |= {rng.randrange(len(content) - 1) for _ in range(40)}
  for cut in sorted(cuts):
    path.write_bytes(content[:cut])
    check_is_lost(tmp_path, 3, caplog)


def test_a_file_of_zeros_counts_as_none(tmp_path, caplog):
  """What a power cut leaves on some file systems."""
  save_pending(tmp_path, 3, CURSOR, GROUPS)
  path = path_of(tmp_path, 3)
  path.write_bytes(bytes(path.stat().st_size))
  check_is_lost(tmp_path, 3, caplog)


@pytest.mark.parametrize(
  "damage",
  [
    lambda lines: [*lines, lines[-1]],
    lambda lines: [*lines[:-1], ""],
    lambda lines: [lines[0], *lines[2:], lines[1]],
    lambda lines: [lines[1], *lines[1:]],
    lambda lines: [lines[0].replace('"schema":1', '"schema":2'), *lines[1:]],
    lambda lines: [lines[0].replace('"version":3', '"version":4'), *lines[1:]],
    lambda lines: [lines[0].replace('"cursor"', '"other"'), *lines[1:]],
    lambda lines: [lines[0].replace('"groups"', '"other"'), *lines[1:]],
    lambda lines: [lines[0].replace("17", "27"), *lines[1:]],
    lambda lines: "\n".join(lines).replace("//", "/+", 1).splitlines(),
    lambda lines: lines[:-1],
    lambda lines: ["[" * 10**5, *lines[1:]],
    lambda lines: ["[]", *lines[1:]],
    lambda lines: [lines[0], "[]", *lines[2:]],
  ],
)
def test_a_damaged_file_counts_as_none(tmp_path, caplog, damage):
  save_pending(tmp_path, 3, CURSOR, GROUPS)
  path = path_of(tmp_path, 3)
  lines = path.read_text().splitlines()
  changed = damage(lines)
  assert changed != lines
  path.write_text("".join(f"{line}\n" for line in changed))
  check_is_lost(tmp_path, 3, caplog)


def test_a_file_of_another_version_counts_as_none(tmp_path, caplog):
  save_pending(tmp_path, 3, CURSOR, GROUPS)
  path_of(tmp_path, 3).rename(path_of(tmp_path, 4))
  check_is_lost(tmp_path, 4, caplog)


def test_what_cannot_be_opened_counts_as_none(tmp_path, caplog):
  path_of(tmp_path, 3).mkdir()
  check_is_lost(tmp_path, 3, caplog)


def test_a_cursor_that_json_lacks_is_refused_and_the_old_file_stays(tmp_path):
  save_pending(tmp_path, 3, CURSOR, GROUPS)
  with pytest.raises(ValueError, match=r"cursor\.next is a int64"):
    save_pending(tmp_path, 4, {"next": np.int64(1)}, GROUPS)
  assert names(tmp_path) == ["00000003.jsonl"]
