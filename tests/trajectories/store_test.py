"""The folder with the episodes of every step."""

import dataclasses
import json
import pathlib
import threading
import tracemalloc

import numpy as np
import pytest

from arl_jax.episode import Group
from arl_jax.trajectories.store import (
  TrajectoryStore,
  read_groups,
  read_rows,
  read_step,
  read_steps,
)
from tests.trajectories.examples import (
  assert_same_groups,
  assert_same_row,
  long_groups,
  random_groups,
)


def rows_of(groups):
  return [row for group in groups for e in group.episodes for row in e.rows]


def advantages_of(groups):
  return [
    np.full(len(row), index, np.float32)
    for index, row in enumerate(rows_of(groups))
  ]


def step_path(folder: pathlib.Path, step: int) -> pathlib.Path:
  return folder / f"step-{step:08d}.jsonl"


def fill(folder, num_steps, *, max_bytes=None) -> TrajectoryStore:
  store = TrajectoryStore(folder, max_bytes=max_bytes)
  for step in range(num_steps):
    store.write(step, random_groups(step), None)
  return store


# ------------------------------------------------------- writing, reading


@pytest.mark.parametrize("seed", range(10))
def test_a_step_comes_back_group_by_group(tmp_path, seed):
  groups = random_groups(seed)
  TrajectoryStore(tmp_path, max_bytes=None).write(12, groups, None)
  assert_same_groups(read_step(tmp_path, 12), groups)


def test_a_step_is_one_file_with_a_line_per_episode(tmp_path):
  TrajectoryStore(tmp_path, max_bytes=None).write(12, random_groups(1), None)
  (path,) = tmp_path.iterdir()
  assert path.name == "step-00000012.jsonl"
  records = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
  assert [(r["ordinal"], r["member"]) for r in records] == [
    (1000 + ordinal, member) for ordinal in range(3) for member in range(4)
  ]
  assert {r["step"] for r in records} == {12}


def test_groups_stay_in_the_order_that_was_given(tmp_path):
  groups = random_groups(0)[::-1]
  members = groups[0].episodes[::-1]
  groups = (dataclasses.replace(groups[0], episodes=members), *groups[1:])
  TrajectoryStore(tmp_path, max_bytes=None).write(0, groups, None)
  assert_same_groups(read_step(tmp_path, 0), groups)


def test_writing_a_step_again_replaces_it(tmp_path):
  store = fill(tmp_path, 3)
  store.write(1, random_groups(99), None)
  assert read_steps(tmp_path) == [0, 1, 2]
  assert_same_groups(read_step(tmp_path, 1), random_groups(99))


def test_many_steps_are_iterated_in_order(tmp_path):
  fill(tmp_path, 12)
  found = list(read_groups(tmp_path))
  assert [step for step, _ in found] == list(range(12))
  assert_same_groups(found[11][1], random_groups(11))
  some = read_groups(tmp_path, first=9, last=10)
  assert [step for step, _ in some] == [9, 10]


def test_steps_beyond_eight_digits_are_found(tmp_path):
  store = fill(tmp_path, 1)
  store.write(123_456_789, random_groups(1), None)
  assert read_steps(tmp_path) == [0, 123_456_789]


def test_rows_come_with_what_training_on_them_needs(tmp_path):
  groups = random_groups(5)
  advantages = advantages_of(groups)
  TrajectoryStore(tmp_path, max_bytes=None).write(3, groups, advantages)
  expected = [
    (group, episode, row)
    for group in groups
    for episode in group.episodes
    for row in episode.rows
  ]
  found = list(read_rows(tmp_path))
  assert len(found) == len(expected) > 10
  for stored, given, (group, episode, row) in zip(
    found, advantages, expected, strict=True
  ):
    assert stored.step == 3
    assert stored.ordinal == group.ordinal
    assert stored.member == episode.member
    assert stored.task_id == group.task.task_id
    assert stored.status is episode.status
    assert stored.total_reward == episode.total_reward
    assert_same_row(stored.row, row)
    assert stored.advantages is not None
    assert stored.advantages.dtype == np.float32
    np.testing.assert_array_equal(stored.advantages, given)


def test_advantages_may_be_unknown_for_some_rows_or_for_all(tmp_path):
  groups = random_groups(5)
  some = [None, *advantages_of(groups)[1:]]
  store = TrajectoryStore(tmp_path, max_bytes=None)
  store.write(0, groups, some)
  store.write(1, groups, None)
  found = [row.advantages is None for row in read_rows(tmp_path)]
  num_rows = len(some)
  assert found == [True] + [False] * (num_rows - 1) + [True] * num_rows


def test_rows_of_some_steps_only(tmp_path):
  fill(tmp_path, 4)
  assert {row.step for row in read_rows(tmp_path, first=1, last=2)} == {1, 2}


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"step": -1}, "step is -1; expected 0 or more"),
    ({"groups": ()}, "step 0 has no groups"),
    ({"advantages": [np.zeros(1, "f4")]}, "advantages has 1 arrays; the group"),
    (
      {"groups": (random_groups(0)[0],) * 2},
      r"ordinals \[0, 0\]; expected each of them once",
    ),
    (
      {"groups": (dataclasses.replace(random_groups(0)[1], episodes=()),)},
      r"ordinals \[1\] have no episodes",
    ),
  ],
)
def test_arguments_that_cannot_be_written_leave_no_file(
  tmp_path, change, message
):
  store = TrajectoryStore(tmp_path, max_bytes=None)
  arguments = {"step": 0, "groups": random_groups(0), "advantages": None}
  with pytest.raises(ValueError, match=message):
    store.write(**arguments | change)
  assert not list(tmp_path.iterdir())


def test_a_task_that_json_cannot_hold_leaves_the_old_step(tmp_path):
  store = fill(tmp_path, 1)
  group = random_groups(0)[2]
  task = dataclasses.replace(group.task, task_id="odd", hidden={"s": {1}})
  odd = tuple(dataclasses.replace(e, task=task) for e in group.episodes)
  groups = (*random_groups(0)[:2], Group(ordinal=5, task=task, episodes=odd))
  with pytest.raises(ValueError, match=r"task 'odd': hidden\.s is a set"):
    store.write(0, groups, None)
  assert [path.name for path in tmp_path.iterdir()] == ["step-00000000.jsonl"]
  assert_same_groups(read_step(tmp_path, 0), random_groups(0))


# ----------------------------------------------------------- bounded disk


def size_of(folder) -> int:
  return sum(path.stat().st_size for path in folder.iterdir())


def test_the_oldest_steps_make_room(tmp_path):
  groups = long_groups(num_episodes=4, num_tokens=500)
  TrajectoryStore(tmp_path / "one", max_bytes=None).write(0, groups, None)
  max_bytes = int(3.5 * size_of(tmp_path / "one"))
  store = TrajectoryStore(tmp_path / "many", max_bytes=max_bytes)
  for step in range(10):
    store.write(step, groups, None)
    assert size_of(tmp_path / "many") <= max_bytes
  assert read_steps(tmp_path / "many") == [7, 8, 9]
  assert [step for step, _ in read_groups(tmp_path / "many")] == [7, 8, 9]


def test_the_newest_step_is_kept_whatever_it_takes(tmp_path):
  fill(tmp_path, 3, max_bytes=1)
  assert read_steps(tmp_path) == [2]


def test_without_a_bound_all_are_kept(tmp_path):
  fill(tmp_path, 5, max_bytes=None)
  assert read_steps(tmp_path) == list(range(5))


def test_files_of_others_are_left_alone(tmp_path):
  for name in ("notes.txt", "step-1.jsonl", "xstep-00000000.jsonl"):
    (tmp_path / name).write_text("x" * 1000)
  fill(tmp_path, 2, max_bytes=1).truncate(0)
  assert len(list(tmp_path.iterdir())) == 3
  assert read_steps(tmp_path) == []


@pytest.mark.parametrize("max_bytes", [0, -1])
def test_a_bound_below_one_is_refused(tmp_path, max_bytes):
  with pytest.raises(ValueError, match=f"max_bytes is {max_bytes}; expected 1"):
    TrajectoryStore(tmp_path, max_bytes=max_bytes)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(ValueError, match="file is a file; name a folder"):
    TrajectoryStore(tmp_path / "file", max_bytes=None)


# ------------------------------------------------------------------ resume


def test_truncate_drops_the_step_all_later_ones_and_leftovers(tmp_path):
  store = fill(tmp_path, 5)
  (tmp_path / "step-00000001.jsonl.tmp").write_text("half")
  store.truncate(3)
  assert read_steps(tmp_path) == [0, 1, 2]
  assert len(list(tmp_path.iterdir())) == 3
  store.truncate(3)
  store.truncate(0)
  assert list(tmp_path.iterdir()) == []


def test_a_lower_bound_holds_from_the_resume_on(tmp_path):
  """Else a run that a full disk stopped could not write its next step."""
  fill(tmp_path, 5)
  TrajectoryStore(tmp_path, max_bytes=1).truncate(4)
  assert read_steps(tmp_path) == [3]


# ------------------------------------------------------ damage and absence


@pytest.mark.parametrize("read", [read_steps, read_groups, read_rows])
def test_a_missing_folder_is_named_at_once(tmp_path, read):
  with pytest.raises(ValueError, match="nowhere is not a folder; expected"):
    read(tmp_path / "nowhere")
  with pytest.raises(ValueError, match="nowhere is not a folder; expected"):
    read_step(tmp_path / "nowhere", 0)


def test_a_step_that_is_not_there_is_told_from_those_that_are(tmp_path):
  fill(tmp_path, 5, max_bytes=1)
  with pytest.raises(ValueError, match="step 1 is not in .*; found 4 to 4"):
    read_step(tmp_path, 1)
  TrajectoryStore(tmp_path, max_bytes=None).truncate(0)
  with pytest.raises(ValueError, match="step 1 is not in .*; found none"):
    read_step(tmp_path, 1)


@pytest.mark.parametrize(
  ("damage", "message"),
  [
    (lambda lines: [*lines[:2], b"{", *lines[3:]], "line 3: Expecting"),
    (lambda lines: [*lines[:2], b"\xff", *lines[3:]], "line 3: .*utf-8"),
    (lambda lines: [*lines[:2], b"", *lines[3:]], "line 3: Expecting value"),
    (lambda lines: [b"[]", *lines[1:]], "line 1: the record is a list"),
    (lambda lines: [b"[" * 10**5, *lines[1:]], "line 1: maximum recursion"),
    (lambda lines: [*lines[:-1], lines[-1][:-9]], "line 12: "),
    (lambda lines: lines[:-1], "line 11: the file ends here; expected 12"),
    (lambda lines: [*lines, lines[0]], "line 13: the file ends here"),
    (lambda lines: [], "line 0: the file ends here; expected more"),
    (
      lambda lines: [lines[0].replace(b'"schema":1', b'"schema":2')],
      "line 1: schema is 2; expected 1. Read it with the version",
    ),
    (
      lambda lines: [lines[0].replace(b'"num_episodes"', b'"other"')],
      "line 1: num_episodes is missing",
    ),
  ],
)
def test_damage_is_told_by_file_and_line(tmp_path, damage, message):
  fill(tmp_path, 2)
  path = step_path(tmp_path, 1)
  lines = damage(path.read_bytes().splitlines())
  path.write_bytes(b"".join(line + b"\n" for line in lines))
  for read in (
    lambda: read_step(tmp_path, 1),
    lambda: list(read_groups(tmp_path)),
    lambda: list(read_rows(tmp_path)),
  ):
    with pytest.raises(ValueError, match=message) as caught:
      read()
    assert str(path) in str(caught.value)
    assert "elete" in str(caught.value)
  assert_same_groups(read_step(tmp_path, 0), random_groups(0))


@pytest.mark.parametrize("read", [read_groups, read_rows])
def test_a_step_that_vanishes_before_its_turn_is_left_out(tmp_path, read):
  fill(tmp_path, 4)
  found = read(tmp_path)
  next(found)
  step_path(tmp_path, 2).unlink()
  # Some rows of step 0 may be left.
  assert {_step(item) for item in found} - {0} == {1, 3}


def _step(item) -> int:
  return item[0] if isinstance(item, tuple) else item.step


def test_a_step_that_vanishes_while_it_is_read_is_read_to_its_end(tmp_path):
  fill(tmp_path, 1)
  found = read_rows(tmp_path)
  next(found)
  step_path(tmp_path, 0).unlink()
  assert 1 + len(list(found)) == len(rows_of(random_groups(0)))


def test_reading_while_steps_are_written_sees_whole_steps_only(tmp_path):
  """With a bound that deletes steps, and steps that are written again."""
  versions = [random_groups(seed) for seed in range(4)]
  store = TrajectoryStore(tmp_path, max_bytes=60_000)
  store.write(0, versions[0], None)
  done = threading.Event()
  errors: list[BaseException] = []
  num_read = [0, 0]

  def write():
    try:
      for step in range(120):
        store.write(step, versions[step % 4], None)
        store.write(max(0, step - 1), versions[step % 4], None)
    except BaseException as error:
      errors.append(error)
    finally:
      done.set()

  def read(index: int):
    try:
      while not done.is_set() or not num_read[index]:
        for _, groups in read_groups(tmp_path):
          seed = groups[0].ordinal // 1000
          assert_same_groups(groups, versions[seed])
          num_read[index] += 1
    except BaseException as error:
      errors.append(error)

  threads = [
    threading.Thread(target=write, daemon=True),
    *(
      threading.Thread(target=read, args=(index,), daemon=True)
      for index in range(2)
    ),
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(timeout=120)
  assert not any(thread.is_alive() for thread in threads)
  assert not errors
  assert min(num_read) > 0
  assert len(read_steps(tmp_path)) < 20


# ------------------------------------------------------------------ memory


def test_reading_holds_one_episode_or_one_step(tmp_path):
  num_steps, num_episodes, num_tokens = 10, 50, 1000
  groups = long_groups(num_episodes=num_episodes, num_tokens=num_tokens)
  store = TrajectoryStore(tmp_path, max_bytes=None)
  for step in range(num_steps):
    store.write(step, groups, advantages_of(groups))
  bytes_of_step = num_episodes * num_tokens * 17

  def peak(read) -> int:
    tracemalloc.start()
    for _ in read(tmp_path):
      pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most

  assert peak(read_rows) < bytes_of_step / 4
  # The step before is let go of only when the next one is there.
  assert bytes_of_step < peak(read_groups) < 3 * bytes_of_step


def test_writing_holds_one_episode_beside_the_groups(tmp_path):
  groups = long_groups(num_episodes=400, num_tokens=1000)
  store = TrajectoryStore(tmp_path, max_bytes=None)
  tracemalloc.start()
  store.write(0, groups, None)
  _, most = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert most < 400 * 1000
