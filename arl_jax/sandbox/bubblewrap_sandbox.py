"""Keeps programs from everything but an interpreter and a small disk."""

from collections.abc import Sequence
import contextlib
import itertools
import json
import os
import pathlib
import platform
import random
import shutil
import signal
import subprocess

from arl_jax.sandbox.child_process import ChildProcess
from arl_jax.sandbox.interpreter import (
  child_environment,
  interpreter_command,
  interpreter_folders,
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
_HOME = "/tmp"
# Of the system, what an interpreter's libraries are made of.
_SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64")
_SYSTEM_FILES = ("/etc/ld.so.cache",)
_DEVICES = ("null", "zero", "full", "random", "urandom")
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
for path in "/proc/self", "/sys/kernel", "/etc/passwd", "/var", "/run":
  if os.path.exists(path):
    found.append(path + " can be seen")
for path in "/", "/dev", "/usr":
  if os.access(path, os.W_OK):
    found.append(path + " can be written")
print(", ".join(found) or "isolated")
"""
_NOBODY = 65534
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

  What cannot be had is an error: nothing is left out silently. As superuser,
  programs run as users of their own without any right; a user namespace would
  leave them the superuser's exemption from the bound on threads. Others get a
  user namespace.

  Args:
    import_paths: folders that programs may import from, besides the standard
      library. They can be read.
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
    self._bubbles: dict[ChildProcess, _Bubble] = {}
    self._superuser = _has_real_superuser()
    self._command = [
      program,
      *_namespaces(superuser=self._superuser),
      *_file_system(import_paths, limits.disk_mb * MEBIBYTE),
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
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=child_environment(_HOME),
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
    bubble = _Bubble(read)
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
        environment=child_environment(_HOME),
        folder=None,
        max_output_bytes=self.limits.max_output_bytes,
        pass_fds=(calls, write),
        kill=bubble.kill,
      )
    except BaseException:
      bubble.close()
      raise
    finally:
      os.close(calls)
      os.close(write)
    self._bubbles[child] = bubble
    return child

  async def remove(self, child: ChildProcess) -> None:
    bubble = self._bubbles.pop(child, None)
    if bubble is not None:
      bubble.close()

  def _next_user(self) -> int:
    """Returns what a child becomes; 0 where its namespace sees to that."""
    return _FIRST_USER + next(_users) % _NUM_USERS if self._superuser else 0


class _Bubble:
  """Kills what bwrap has started, so that bwrap itself reaps it.

  A kill of bwrap would leave its child to the init process, and in a container
  that may be a program that reaps nobody.

  Args:
    info_fd: where bwrap writes the number of its child; closed at the end.
  """

  def __init__(self, info_fd: int):
    os.set_blocking(info_fd, False)
    self._info_fd = info_fd
    self._child = 0

  def kill(self, pid: int) -> None:
    """Kills the child of bwrap, whose number is `pid`, or bwrap itself."""
    if not self._child:
      try:
        self._child = json.loads(os.read(self._info_fd, 4096))["child-pid"]
      except (OSError, ValueError):  # it has not come that far
        with contextlib.suppress(ProcessLookupError):
          os.killpg(pid, signal.SIGKILL)
        return
    try:
      pidfd = os.pidfd_open(self._child)
    except OSError:  # it has ended, so bwrap is about to
      return
    try:
      # A number may have been given to somebody else meanwhile.
      stat = pathlib.Path(f"/proc/{self._child}/stat").read_text()
      if int(stat.rpartition(")")[2].split()[1]) == pid:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
      pass
    finally:
      os.close(pidfd)

  def close(self) -> None:
    os.close(self._info_fd)


def _namespaces(*, superuser: bool) -> list[str]:
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


def _file_system(import_paths: Sequence[str], disk_bytes: int) -> list[str]:
  """Returns the options that build what a program sees of files."""
  made: set[pathlib.Path] = set()
  options: list[str] = []

  def make_parents(path: pathlib.Path) -> None:
    for parent in reversed(path.parents[:-1]):
      if parent not in made and not made & set(parent.parents):
        # Else bwrap gives it to the superuser alone.
        options.extend(("--perms", "0755", "--dir", str(parent)))

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
    if path not in made and not made & set(path.parents):
      make_parents(path)
      options.extend(("--ro-bind", str(path), str(path)))
      made.add(path)
  make_parents(pathlib.Path("/dev/null"))
  for name in _DEVICES:
    options.extend(("--dev-bind", f"/dev/{name}", f"/dev/{name}"))
  return [
    *options,
    *("--perms", "1777", "--size", str(disk_bytes), "--tmpfs", _HOME),
    *("--chdir", _HOME),
    # What holds all this is a file system in memory without a bound.
    *("--remount-ro", "/"),
  ]


def _readable(data: bytes) -> int:
  """Returns a descriptor that gives data which a pipe can hold."""
  read, write = os.pipe()
  try:
    os.write(write, data)
  finally:
    os.close(write)
  return read
