"""Keeps programs from everything but an interpreter and a small disk."""

import itertools
import os
import pathlib
import platform
import random
import shutil
import subprocess

from arl_jax.sandbox.bubblewrap_child import BubblewrapChild
from arl_jax.sandbox.bubblewrap_options import (
  HOME,
  file_options,
  namespace_options,
)
from arl_jax.sandbox.child_process import ChildProcess
from arl_jax.sandbox.interpreter import (
  child_environment,
  interpreter_command,
  interpreter_path,
)
from arl_jax.sandbox.process_sandbox import ProcessSandbox
from arl_jax.sandbox.sandbox import SandboxUnavailableError
from arl_jax.sandbox.seccomp import system_call_filter
from arl_jax.sandbox.subprocess_sandbox import check_platform, existing_folders
from arl_jax.sandbox.worker import MEBIBYTE, ProcessLimits

_INSTALL = "apt-get update && apt-get install -y bubblewrap"
_ADVICE = (
  "As a user that is not root: allow user namespaces (sysctl -w"
  " kernel.unprivileged_userns_clone=1 or"
  " kernel.apparmor_restrict_unprivileged_userns=0, where the system has"
  " these). In a container: start it with --cap-add SYS_ADMIN or as another"
  " user than root, with --security-opt seccomp=unconfined and --security-opt"
  " apparmor=unconfined. MontySandbox needs none of this"
)
_MAX_THREADS = 64
_ISOLATED = "isolated"
_PROBE = """
import os, sys
user = int(sys.argv[1])
if user:
  os.setgroups([])
  os.setresgid(user, user, user)
  os.setresuid(user, user, user)
import json
found = []
try:
  if not os.fork():
    os._exit(0)
  found.append("processes can be started")
except PermissionError:
  pass
for path in "/proc/self", "/sys/kernel", "/etc/passwd":
  if os.path.exists(path):
    found.append(path + " can be seen")
for path in "/", "/dev", "/usr", *sys.argv[2:]:
  if os.access(path, os.W_OK):
    found.append(path + " can be written")
  if not os.access(path, os.R_OK | os.X_OK):
    found.append(path + " cannot be read by all users (chmod -R a+rX)")
print(", ".join(found) or "isolated")
"""
# Numbers that neither accounts nor containers use. Each child has one of its
# own, as the system counts threads by user.
_FIRST_USER = 1_900_000_000
_NUM_USERS = 1 << 20
_users = itertools.count(random.SystemRandom().randrange(_NUM_USERS))


class BubblewrapSandbox(ProcessSandbox):
  """Runs each program in namespaces of its own, made by bwrap.

  A program finds an interpreter, /usr and its import paths, all read-only, five
  device files and an empty folder, which is its home and /tmp. It has no
  network, no /proc, no variables and no files of the host. It can start threads
  but no processes, so that its memory is one process's, which the system
  bounds; its files are in memory, too, and bounded by `limits.disk_mb`. When it
  ends, everything in its namespaces does.

  The kernel is shared with the host. Against code that knows a hole in the
  kernel, only a virtual machine helps.

  What cannot be had is an error: nothing is left out silently. Making the
  sandbox runs bwrap once, to see; that may block for some 50 ms. As superuser,
  programs run as users of their own without any right; a user namespace would
  leave them the superuser's exemption from the bound on threads. Others get a
  user namespace.

  Args:
    import_paths: folders that programs may import from, besides the standard
      library. Programs can read all that is there and that all users can.
    limits: besides time and memory.
    bwrap: the program, a path or a name on PATH.

  Raises:
    SandboxUnavailableError: with the reason, and what to do.
  """

  def __init__(
    self,
    *,
    import_paths: tuple[str | os.PathLike[str], ...] = (),
    limits: ProcessLimits | None = None,
    bwrap: str = "bwrap",
  ):
    check_platform("BubblewrapSandbox")
    program = shutil.which(bwrap)
    if program is None:
      raise SandboxUnavailableError(
        f"{bwrap!r} was not found; install it: {_INSTALL}"
      )
    try:
      calls = system_call_filter(platform.machine())
    except ValueError as error:
      raise SandboxUnavailableError(
        f"the system calls of this machine are not known: {error}"
      ) from error
    launcher = _BubblewrapLauncher(
      program,
      calls,
      existing_folders(import_paths),
      limits or ProcessLimits(),
    )
    launcher.probe()
    super().__init__(launcher)


def _has_real_superuser() -> bool:
  """Whether the user 0 of this process is that of the machine."""
  if os.geteuid():
    return False
  return pathlib.Path("/proc/self/uid_map").read_text().split() == [
    "0",
    "0",
    "4294967295",
  ]


class _BubblewrapLauncher:
  """Starts interpreters with bwrap."""

  def __init__(
    self,
    program: str,
    calls: bytes,
    import_paths: tuple[str, ...],
    limits: ProcessLimits,
  ):
    self.limits = limits
    self.max_tasks = _MAX_THREADS
    self._calls = calls
    self._import_paths = import_paths
    self._children: dict[ChildProcess, BubblewrapChild] = {}
    self._superuser = _has_real_superuser()
    self._command = [
      program,
      *namespace_options(superuser=self._superuser),
      *file_options(import_paths, limits.disk_mb * MEBIBYTE),
    ]

  def probe(self) -> None:
    """Runs bwrap as every call does, with a program that looks around.

    Raises:
      SandboxUnavailableError: it failed, or was not isolated.
    """
    calls = _readable(self._calls)
    try:
      done = subprocess.run(
        [
          *self._command,
          *("--seccomp", str(calls), "--"),
          *(str(interpreter_path()), "-P", "-s", "-S", "-B", "-c", _PROBE),
          str(self._next_user()),
          *self._import_paths,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=child_environment(HOME),
        pass_fds=(calls,),
        timeout=self.limits.start_timeout_seconds,
      )
      found = done.stdout.strip() or done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
      found = str(error)
    finally:
      os.close(calls)
    if found != _ISOLATED:
      needs = "the capability SYS_ADMIN" if self._superuser else "namespaces"
      raise SandboxUnavailableError(
        f"bwrap cannot isolate here: {found or 'it said nothing'}."
        f" It needs {needs}. {_ADVICE}"
      )

  def start(self) -> ChildProcess:
    calls = _readable(self._calls)
    read, write = os.pipe()
    inner = BubblewrapChild(read)
    try:
      child = ChildProcess.start(
        lambda channel_fd: [
          *self._command,
          *("--seccomp", str(calls), "--info-fd", str(write), "--"),
          *interpreter_command(
            channel_fd,
            user=self._next_user(),
            import_paths=self._import_paths,
          ),
        ],
        environment=child_environment(HOME),
        folder=None,
        max_output_bytes=self.limits.max_output_bytes,
        pass_fds=(calls, write),
        kill=inner.kill,
      )
    except BaseException:
      os.close(read)
      raise
    finally:
      os.close(calls)
      os.close(write)
    self._children[child] = inner
    return child

  async def remove(self, child: ChildProcess) -> None:
    inner = self._children.pop(child, None)
    if inner is not None:
      await inner.close()

  def _next_user(self) -> int:
    """Returns what a child becomes; 0 where its namespace sees to that."""
    return _FIRST_USER + next(_users) % _NUM_USERS if self._superuser else 0


def _readable(data: bytes) -> int:
  """Returns a descriptor that gives data which a pipe can hold."""
  read, write = os.pipe()
  try:
    os.write(write, data)
  finally:
    os.close(write)
  return read
