"""Limits what a program uses by accident; it is no security boundary."""

import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile

from arl_jax.sandbox.child_process import ChildProcess
from arl_jax.sandbox.interpreter import child_environment, interpreter_command
from arl_jax.sandbox.process_sandbox import ProcessSandbox
from arl_jax.sandbox.sandbox import SandboxUnavailableError
from arl_jax.sandbox.worker import ProcessLimits


class SubprocessSandbox(ProcessSandbox):
  """Runs each program in a child of this process, with limits.

  This is NO security boundary. The code runs as the user of this process: it
  can read and write what that user can, use the network, look into this process
  and kill it, and leave processes behind that outlive it. It is for code that
  is not meant to do harm, on machines where harm is cheap. `BubblewrapSandbox`
  is for all other code. docs/sandbox.md has the list of what is stopped.

  What it does: one interpreter per program; time, output, address space, CPU
  time, file size and open files are bounded; the environment is cleared; the
  working directory is a new one that is removed; the process group is killed
  as a whole, also when this process dies.

  Args:
    import_paths: folders that programs may import from, besides the standard
      library.
    limits: besides time and memory.

  Raises:
    SandboxUnavailableError: this is not Linux.
  """

  def __init__(
    self,
    *,
    import_paths: tuple[str | os.PathLike[str], ...] = (),
    limits: ProcessLimits | None = None,
  ):
    check_platform("SubprocessSandbox")
    super().__init__(
      _SubprocessLauncher(
        existing_folders(import_paths), limits or ProcessLimits()
      )
    )


def check_platform(name: str) -> None:
  """Raises SandboxUnavailableError where children cannot be watched."""
  if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
    raise SandboxUnavailableError(
      f"{name} needs Linux 5.3 or newer; this is {sys.platform}."
      " MontySandbox runs elsewhere"
    )


def existing_folders(
  paths: tuple[str | os.PathLike[str], ...],
) -> tuple[str, ...]:
  """Returns absolute paths of folders, and refuses what is none."""
  folders = tuple(pathlib.Path(path).resolve() for path in paths)
  for path, folder in zip(paths, folders, strict=True):
    if not folder.is_dir():
      raise ValueError(
        f"import_paths has {os.fspath(path)!r}; expected folders that exist"
      )
  return tuple(map(str, folders))


class _SubprocessLauncher:
  """Starts interpreters in temporary folders."""

  def __init__(self, import_paths: tuple[str, ...], limits: ProcessLimits):
    self.limits = limits
    # The system counts all processes of a user, this one's threads included.
    self.max_tasks = 0
    self._import_paths = import_paths
    self._folders: dict[ChildProcess, str] = {}

  def start(self) -> ChildProcess:
    folder = tempfile.mkdtemp(prefix="sandbox-")
    try:
      child = ChildProcess.start(
        lambda channel_fd: interpreter_command(
          channel_fd, import_paths=self._import_paths
        ),
        environment=child_environment(folder),
        folder=folder,
        max_output_bytes=self.limits.max_output_bytes,
      )
    except BaseException:
      os.rmdir(folder)
      raise
    self._folders[child] = folder
    return child

  async def remove(self, child: ChildProcess) -> None:
    folder = self._folders.pop(child, None)
    if folder is None:
      return
    try:
      os.rmdir(folder)  # nearly all programs leave it empty
    except OSError:
      await asyncio.to_thread(_remove_tree, folder)


def _remove_tree(folder: str) -> None:
  """Removes a folder, however deep and whatever permissions it has."""
  for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
    subprocess.run(
      [*command, "--", folder],
      stdin=subprocess.DEVNULL,
      capture_output=True,
      check=False,
    )
