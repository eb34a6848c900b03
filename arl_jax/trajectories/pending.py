"""Keeps groups that are finished but not trained beside a checkpoint."""

from collections.abc import Collection, Iterator, Mapping, Sequence
import itertools
import json
import logging
import os
import pathlib
import re
from typing import Any

from arl_jax.episode import Episode, Group
from arl_jax.trajectories.codec import (
  SCHEMA_VERSION,
  check_schema,
  decode_episode,
  get_field,
)
from arl_jax.trajectories.json_values import decode_value, encode_value
from arl_jax.trajectories.store import encode_groups, join_groups
from arl_jax.trajectories.whole_file import (
  check_signed,
  remove_leftovers,
  write_lines,
)

_FILE = re.compile(r"(\d{8,})\.jsonl")
_LOGGER = logging.getLogger(__name__)


def save_pending(
  folder: str | os.PathLike[str],
  version: int,
  cursor: Mapping[str, Any],
  groups: Sequence[Group],
  *,
  keep_versions: Collection[int] = (),
) -> None:
  """Writes the groups of a version, then deletes those of other versions.

  Args:
    folder: where the files are; it is made if there is none.
    version: of the checkpoint that they belong to.
    cursor: values of JSON that are handed back with the groups.
    groups: whole ones; their ordinals differ.
    keep_versions: other versions to keep: those that have a checkpoint.

  Raises:
    ValueError: the cursor or a task holds what JSON cannot, or two groups
      share an ordinal.
    OSError: the disk is full; says what to do. Other versions stay whole.
  """
  path = pathlib.Path(folder)
  path.mkdir(parents=True, exist_ok=True)
  header = {
    "schema": SCHEMA_VERSION,
    "version": int(version),
    "cursor": encode_value(cursor, "cursor"),
    "num_episodes": sum(len(group.episodes) for group in groups),
    "groups": _sizes(groups),
  }
  records = encode_groups(groups, step=version)
  write_lines(
    _path(path, version), itertools.chain([header], records), signed=True
  )
  remove_leftovers(path)
  for name in os.listdir(path):
    match = _FILE.fullmatch(name)
    if match and int(match[1]) not in {version, *keep_versions}:
      (path / name).unlink(missing_ok=True)


def load_pending(
  folder: str | os.PathLike[str], version: int
) -> tuple[dict[str, Any], tuple[Group, ...]] | None:
  """Reads the groups that were saved with a version.

  They save work and decide nothing, so a damaged file is no error.

  Args:
    folder: where the files are.
    version: of the checkpoint that is resumed.

  Returns:
    The cursor and the groups; None if there is no such file, or, with a
    warning, if it is damaged.
  """
  path = _path(pathlib.Path(folder), version)
  try:
    with path.open("rb") as file:
      return _read(file, version)
  except FileNotFoundError:
    return None
  except (OSError, RecursionError, ValueError) as error:
    _LOGGER.warning(
      "%s cannot be read (%s); the episodes that it held run again", path, error
    )
    return None


def _read(
  lines: Iterator[bytes], version: int
) -> tuple[dict[str, Any], tuple[Group, ...]]:
  lines = check_signed(lines)
  header = json.loads(next(lines, b""))
  check_schema(header)
  found = get_field(header, "version", int)
  if found != version:
    raise ValueError(f"it is of version {found}; expected {version}")
  groups = join_groups(map(_decode, lines))
  num_found = sum(len(group.episodes) for group in groups)
  num_written = get_field(header, "num_episodes", int)
  if num_found != num_written:
    raise ValueError(f"it holds {num_found} of {num_written} episodes")
  if _sizes(groups) != get_field(header, "groups", list):
    raise ValueError("its groups are not those that were written")
  cursor = decode_value(get_field(header, "cursor", dict), "cursor")
  return cursor, groups


def _decode(line: bytes) -> tuple[int, Episode]:
  record = json.loads(line)
  return get_field(record, "ordinal", int), decode_episode(record)


def _sizes(groups: Sequence[Group]) -> list[list[int]]:
  return [[group.ordinal, len(group.episodes)] for group in groups]


def _path(folder: pathlib.Path, version: int) -> pathlib.Path:
  return folder / f"{version:08d}.jsonl"
