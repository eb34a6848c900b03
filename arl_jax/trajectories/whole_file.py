"""Writes a file of JSON lines of which readers see all or nothing."""

from collections.abc import Iterable, Iterator
import contextlib
import errno
import hashlib
import json
import os
import pathlib
from typing import Any

_SUFFIX = ".tmp"
# No space, no quota left, or larger than the system lets a file be.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_lines(
  path: pathlib.Path, records: Iterable[Any], *, signed: bool = False
) -> None:
  """Writes beside `path`, and renames when all of it is on the disk.

  A file that is there already is replaced; until then it stays as it was.

  Args:
    path: the file; its folder exists.
    records: values of JSON, one a line.
    signed: add a line with which `check_signed` tells if another was changed.

  Raises:
    OSError: it cannot be written. Where the disk is full it says what to do.
      Nothing of the file is left then.
  """
  temporary = path.with_name(path.name + _SUFFIX)
  digest = hashlib.sha256()
  try:
    with temporary.open("wb") as file:
      for record in records:
        line = _encode(record)
        digest.update(line)
        file.write(line)
      if signed:
        file.write(_signature(digest.hexdigest()))
      file.flush()
      os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)
  except OSError as error:
    if error.errno not in _FULL:
      raise
    raise OSError(
      error.errno,
      f"{os.strerror(error.errno)}: could not write {path}. Free space there,"
      " or lower config.store.max_gigabytes, then resume; files that were"
      " written earlier are whole",
    ) from error
  finally:
    # It is gone where it was renamed.
    with contextlib.suppress(OSError):
      temporary.unlink(missing_ok=True)


def check_signed(lines: Iterable[bytes]) -> Iterator[bytes]:
  """Yields the lines that were signed.

  Raises:
    ValueError: after the last, if they are not what was written.
  """
  digest, last = hashlib.sha256(), None
  for line in lines:
    if last is not None:
      digest.update(last)
      yield last
    last = line
  if last != _signature(digest.hexdigest()):
    raise ValueError("it was changed after it was written, or lost its end")


def remove_leftovers(folder: pathlib.Path) -> None:
  """Deletes what a killed process left half written."""
  for path in folder.glob(f"*{_SUFFIX}"):
    path.unlink(missing_ok=True)


def _encode(record: Any) -> bytes:
  text = json.dumps(record, allow_nan=False, separators=(",", ":"))
  return text.encode("ascii") + b"\n"


def _signature(digest: str) -> bytes:
  return _encode({"sha256": digest})


def _sync_folder(folder: pathlib.Path) -> None:
  """Makes a rename outlive a power cut."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    # Some network file systems cannot do this for a folder.
    if error.errno not in (errno.EINVAL, errno.ENOTSUP):
      raise
  finally:
    os.close(descriptor)
