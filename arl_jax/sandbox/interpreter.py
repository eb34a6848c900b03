"""The interpreter that runs code, and what it is started with."""

from collections.abc import Sequence
import pathlib
import sys
import sysconfig

_CHILD = pathlib.Path(__file__).with_name("child.py").read_text("utf-8")


def interpreter_command(
  channel_fd: int, *, user: int = 0, import_paths: Sequence[str] = ()
) -> list[str]:
  """Returns the command of an interpreter that takes requests.

  Args:
    channel_fd: number of its socket.
    user: what it becomes before it is ready; 0 changes nothing.
    import_paths: folders that it may import from, besides its own library.
  """
  # Without site: it takes time, and knows about folders that are not there.
  return [
    str(interpreter_path()),
    *("-P", "-s", "-S", "-B", "-X", "utf8", "-c", _CHILD),
    str(channel_fd),
    str(user),
    *import_paths,
  ]


def interpreter_path() -> pathlib.Path:
  """Returns this interpreter's path, not that of its virtual environment."""
  base = getattr(sys, "_base_executable", "") or sys.executable
  return pathlib.Path(base).resolve()


def interpreter_folders() -> list[pathlib.Path]:
  """Returns the folders that this interpreter is made of, none in another."""
  folders = {
    pathlib.Path(sys.base_prefix).resolve(),
    pathlib.Path(sys.base_exec_prefix).resolve(),
    pathlib.Path(sysconfig.get_path("stdlib")).resolve(),
    interpreter_path().parent,
  }
  return sorted(
    folder for folder in folders if not folders & set(folder.parents)
  )


def child_environment(home: str) -> dict[str, str]:
  """Returns all variables that an interpreter gets."""
  return {
    "HOME": home,
    "TMPDIR": home,
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    # The same code prints its sets in the same order.
    "PYTHONHASHSEED": "0",
    # Threads take address space, which is what memory_mb bounds.
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
  }
