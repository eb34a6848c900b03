"""What bwrap is told to build around a program."""

from collections.abc import Sequence
import os
import pathlib

from arl_jax.sandbox.interpreter import interpreter_folders

# Where a program starts, and all that it can write to.
HOME = "/tmp"
# Of the system, what an interpreter's libraries are made of.
_SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64")
_SYSTEM_FILES = ("/etc/ld.so.cache",)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_NOBODY = 65534


def namespace_options(*, superuser: bool) -> list[str]:
  """Returns the options that give a program nothing of the host's.

  Args:
    superuser: whether bwrap is run with all rights, so that the program can be
      a user of its own without a user namespace.
  """
  user = (
    # The interpreter gives these up before it is ready.
    ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    if superuser
    else ["--unshare-user", "--uid", str(_NOBODY), "--gid", str(_NOBODY)]
  )
  return [
    *("--cap-drop", "ALL", *user),
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--hostname", "sandbox"),
    *("--die-with-parent", "--new-session"),
  ]


def file_options(import_paths: Sequence[str], disk_bytes: int) -> list[str]:
  """Returns the options that build what a program sees of files.

  Args:
    import_paths: folders to show, besides those of the interpreter.
    disk_bytes: of its own files, together.

  Raises:
    ValueError: a folder would hide the program's own one.
  """
  home = pathlib.Path(HOME)
  made: set[pathlib.Path] = set()
  # First, so that folders that lie there can be bound into it.
  options = ["--perms", "1777", "--size", str(disk_bytes), "--tmpfs", HOME]

  def make_parents(path: pathlib.Path) -> None:
    for parent in reversed(path.parents[:-1]):
      if parent != home and not made & {parent, *parent.parents}:
        # Else bwrap gives it to the superuser alone.
        options.extend(("--perms", "0555", "--dir", str(parent)))

  for path in map(pathlib.Path, _SYSTEM_FOLDERS):
    if path.is_symlink():
      options.extend(("--symlink", os.readlink(path), str(path)))
    elif path.is_dir():
      options.extend(("--ro-bind", str(path), str(path)))
      made.add(path)
  for name in _SYSTEM_FILES:
    if os.path.exists(name):
      make_parents(pathlib.Path(name))
      options.extend(("--ro-bind", name, name))
  for path in (*interpreter_folders(), *map(pathlib.Path, import_paths)):
    if path == home or path in home.parents:
      raise ValueError(
        f"import_paths has {str(path)!r}; expected other folders than those"
        f" that hold {HOME}, which belongs to the program"
      )
    if path not in made and not made & set(path.parents):
      make_parents(path)
      options.extend(("--ro-bind", str(path), str(path)))
      made.add(path)
  make_parents(pathlib.Path("/dev/null"))
  for name in _DEVICES:
    options.extend(("--dev-bind", f"/dev/{name}", f"/dev/{name}"))
  return [
    *options,
    *("--chdir", HOME),
    # What holds all this is a file system in memory without a bound.
    *("--remount-ro", "/"),
  ]
