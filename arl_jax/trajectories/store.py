"""A folder with the episodes of every learner step, one file each."""

from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import itertools
import json
import os
import pathlib
import re
from typing import Any

from arl_jax.episode import Episode, EpisodeStatus, Float32Array, Group, Row
from arl_jax.trajectories.codec import (
  decode_advantages,
  decode_episode,
  encode_episode,
  get_field,
)
from arl_jax.trajectories.whole_file import remove_leftovers, write_lines

_FILE = re.compile(r"step-(\d{8,})\.jsonl")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StoredRow:
  """One row with what training on it needs.

  Attributes:
    step: the learner step that used it.
    ordinal: position of its task; rows of one step with the same ordinal
      share a baseline.
    member: its episode within the group.
    task_id: name of its task.
    status: how its episode ended.
    total_reward: of its episode.
    row: the tokens, with T of them.
    advantages: float32 `[T]`, None where unknown.
  """

  step: int
  ordinal: int
  member: int
  task_id: str
  status: EpisodeStatus
  total_reward: float
  row: Row
  advantages: Float32Array | None


class TrajectoryStore:
  """Writes the episodes of each step into a folder of bounded size."""

  def __init__(
    self, folder: str | os.PathLike[str], *, max_bytes: int | None
  ) -> None:
    """Makes the folder if there is none.

    Args:
      folder: where the files are.
      max_bytes: what they may take; the oldest steps are deleted beyond it,
        the newest is always kept. None for no bound.

    Raises:
      ValueError: `max_bytes` is below 1, or the folder is a file.
    """
    if max_bytes is not None and max_bytes < 1:
      raise ValueError(
        f"max_bytes is {max_bytes}; expected 1 or more, or None for no bound"
      )
    self._folder = pathlib.Path(folder)
    self._max_bytes = max_bytes
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
      raise ValueError(
        f"trajectory folder {folder} is a file; name a folder"
      ) from None

  def write(
    self,
    step: int,
    groups: Sequence[Group],
    advantages: Sequence[Float32Array | None] | None,
  ) -> None:
    """Writes a step, or writes it again; then deletes what is too much.

    Args:
      step: of the learner.
      groups: what it trains on, 1 or more; their ordinals differ.
      advantages: float32 `[T]` for every row, in the order of groups, episodes,
        rows, or None for a row that has none; None if all are unknown.

    Raises:
      ValueError: an argument is not as said, or a task holds what JSON cannot.
      OSError: the disk is full; says what to do. Earlier steps stay whole.
    """
    if step < 0:
      raise ValueError(f"step is {step}; expected 0 or more")
    if not groups:
      raise ValueError(f"step {step} has no groups; expected 1 or more")
    records = encode_groups(groups, step=step, advantages=advantages)
    total = sum(len(group.episodes) for group in groups)
    write_lines(
      _path(self._folder, step),
      # A copy that lost its end is found out by the number of its lines.
      (record | {"num_episodes": total} for record in records),
    )
    self._prune()

  def truncate(self, step: int) -> None:
    """Deletes this step, later ones, and files that were never completed.

    A resume calls it, and then writes these steps again. Earlier steps are
    deleted where the bound is lower than it was.

    Args:
      step: the first one to delete.
    """
    remove_leftovers(self._folder)
    for found in _steps(self._folder):
      if found >= step:
        _path(self._folder, found).unlink(missing_ok=True)
    self._prune()

  def _prune(self) -> None:
    if self._max_bytes is None:
      return
    sizes = {step: _size(self._folder, step) for step in _steps(self._folder)}
    total = sum(sizes.values())
    for step in sorted(sizes)[:-1]:
      if total <= self._max_bytes:
        break
      _path(self._folder, step).unlink(missing_ok=True)
      total -= sizes[step]


def read_steps(folder: str | os.PathLike[str]) -> list[int]:
  """Returns the steps that a folder holds, in order.

  Raises:
    ValueError: there is no such folder.
  """
  path = pathlib.Path(folder)
  if not path.is_dir():
    raise ValueError(
      f"{folder} is not a folder; expected the trajectories of a run, such as"
      " WORKDIR/trajectories. Train first, or check the path"
    )
  return _steps(path)


def read_step(folder: str | os.PathLike[str], step: int) -> tuple[Group, ...]:
  """Returns the groups of a step in the order in which they were written.

  Raises:
    ValueError: there is no such step, or its file is damaged; names the file,
      the line and what to do.
  """
  try:
    return _read_groups(_path(pathlib.Path(folder), step))
  except FileNotFoundError:
    steps = read_steps(folder)
    span = f"{steps[0]} to {steps[-1]}" if steps else "none"
    raise ValueError(
      f"step {step} is not in {folder}; found {span}. The oldest are deleted"
      " where config.store.max_gigabytes is reached"
    ) from None


def read_groups(
  folder: str | os.PathLike[str], *, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, tuple[Group, ...]]]:
  """Iterates over the steps that are there now, one in memory at a time.

  A step that is deleted before its turn comes is left out.

  Args:
    folder: of the trajectories.
    first: the first step.
    last: the last step, itself included; None for all.

  Returns:
    An iterator over each step and its groups.

  Raises:
    ValueError: there is no such folder; or, from the iterator, a file is
      damaged.
  """
  files = _files(folder, first, last)

  def read() -> Iterator[tuple[int, tuple[Group, ...]]]:
    for step, path in files:
      try:
        groups = _read_groups(path)
      except FileNotFoundError:
        continue
      yield step, groups

  return read()


def read_rows(
  folder: str | os.PathLike[str], *, first: int = 0, last: int | None = None
) -> Iterator[StoredRow]:
  """Iterates over the rows of all episodes, one episode in memory at a time.

  Args:
    folder: of the trajectories.
    first: the first step.
    last: the last step, itself included; None for all.

  Returns:
    An iterator over rows, in the order of steps, groups, episodes.

  Raises:
    ValueError: as `read_groups` does.
  """
  files = _files(folder, first, last)

  def read() -> Iterator[StoredRow]:
    for step, path in files:
      try:
        file = path.open("rb")
      except FileNotFoundError:
        continue
      with file:
        for ordinal, episode, advantages in _read_episodes(path, file):
          for row, advantage in zip(episode.rows, advantages, strict=True):
            yield StoredRow(
              step=step,
              ordinal=ordinal,
              member=episode.member,
              task_id=episode.task.task_id,
              status=episode.status,
              total_reward=episode.total_reward,
              row=row,
              advantages=advantage,
            )

  return read()


def encode_groups(
  groups: Sequence[Group],
  *,
  step: int,
  advantages: Sequence[Float32Array | None] | None = None,
) -> Iterator[dict[str, Any]]:
  """Yields one record per episode; `TrajectoryStore.write` says of what.

  Raises:
    ValueError: a group has no episodes, two have the same ordinal, or the
      advantages are not one per row.
  """
  ordinals = [group.ordinal for group in groups]
  if len(set(ordinals)) < len(ordinals):
    raise ValueError(
      f"groups have the ordinals {ordinals}; expected each of them once"
    )
  empty = [group.ordinal for group in groups if not group.episodes]
  if empty:
    raise ValueError(
      f"groups of the ordinals {empty} have no episodes; expected 1 or more"
    )
  episodes = [(g.ordinal, e) for g in groups for e in g.episodes]
  num_rows = sum(len(episode.rows) for _, episode in episodes)
  if advantages is not None and len(advantages) != num_rows:
    raise ValueError(
      f"advantages has {len(advantages)} arrays; the groups have {num_rows}"
      " rows, and each needs one"
    )
  rest = iter(advantages or ())
  for ordinal, episode in episodes:
    own = list(itertools.islice(rest, len(episode.rows)))
    yield encode_episode(
      episode,
      ordinal=ordinal,
      step=step,
      advantages=None if advantages is None else own,
    )


def join_groups(
  episodes: Iterable[tuple[int, Episode]],
) -> tuple[Group, ...]:
  """Joins neighbours of one ordinal, which then share one task in memory."""
  groups = []
  for ordinal, pairs in itertools.groupby(episodes, key=lambda pair: pair[0]):
    members = [episode for _, episode in pairs]
    task = members[0].task
    members = [
      dataclasses.replace(member, task=task) if member.task == task else member
      for member in members
    ]
    groups.append(Group(ordinal=ordinal, task=task, episodes=tuple(members)))
  return tuple(groups)


def _read_groups(path: pathlib.Path) -> tuple[Group, ...]:
  with path.open("rb") as file:
    return join_groups(
      (ordinal, episode) for ordinal, episode, _ in _read_episodes(path, file)
    )


def _read_episodes(
  path: pathlib.Path, lines: Iterable[bytes]
) -> Iterator[tuple[int, Episode, tuple[Float32Array | None, ...]]]:
  """Decodes line by line: an open file stays whole if its name goes away."""
  number, total = 0, 0
  for number, line in enumerate(lines, start=1):
    try:
      record = json.loads(line)
      episode, advantages = decode_episode(record), decode_advantages(record)
      total = get_field(record, "num_episodes", int)
    except (RecursionError, ValueError) as error:
      raise ValueError(
        f"{path}, line {number}: {error}. Restore the file, or delete it to"
        " read the other steps"
      ) from error
    yield record["ordinal"], episode, advantages
  if number != total or not number:
    raise ValueError(
      f"{path}, line {number}: the file ends here; expected {total or 'more'}"
      " lines."
      " Restore it, or delete it to read the other steps"
    )


def _path(folder: pathlib.Path, step: int) -> pathlib.Path:
  return folder / f"step-{step:08d}.jsonl"


def _steps(folder: pathlib.Path) -> list[int]:
  matches = map(_FILE.fullmatch, os.listdir(folder))
  return sorted(int(match[1]) for match in matches if match)


def _size(folder: pathlib.Path, step: int) -> int:
  try:
    return _path(folder, step).stat().st_size
  except FileNotFoundError:  # someone else made room
    return 0


def _files(
  folder: str | os.PathLike[str], first: int, last: int | None
) -> list[tuple[int, pathlib.Path]]:
  return [
    (step, _path(pathlib.Path(folder), step))
    for step in read_steps(folder)
    if step >= first and (last is None or step <= last)
  ]
