"""What bubblewrap isolates, and that nothing less is ever taken for it."""

import asyncio
import os
import pathlib
import shlex

import pytest

from arl_jax.sandbox import bubblewrap_sandbox
from arl_jax.sandbox.bubblewrap_child import BubblewrapChild
from arl_jax.sandbox.bubblewrap_sandbox import BubblewrapSandbox
from arl_jax.sandbox.sandbox import SandboxUnavailableError, Status
from arl_jax.sandbox.worker import ProcessLimits
from tests.sandbox.backends import open_backend, processes_with


def run(sandbox, code, *, memory_mb=256):
  return asyncio.run(sandbox.run(code, timeout_seconds=60, memory_mb=memory_mb))


@pytest.fixture(name="sandbox")
def isolated(tmp_path):
  return open_backend("bubblewrap", tmp_path, ProcessLimits(disk_mb=8))


@pytest.fixture(name="namespaced", params=["as it comes", "user namespace"])
def both_ways(request, tmp_path, monkeypatch):
  """The two ways in which code becomes nobody."""
  if request.param == "user namespace":
    monkeypatch.setattr(bubblewrap_sandbox, "_has_real_superuser", bool)
  return open_backend("bubblewrap", tmp_path, ProcessLimits(disk_mb=8))


def fake(tmp_path, script) -> str:
  path = tmp_path / "bwrap"
  path.write_text(f"#!/bin/sh\n{script}\n")
  path.chmod(0o755)
  return str(path)


def test_a_missing_program_is_an_error_that_says_how_to_get_it():
  with pytest.raises(SandboxUnavailableError, match="apt-get install -y bubb"):
    BubblewrapSandbox(bwrap="no-such-program")


def test_what_bwrap_says_is_passed_on(tmp_path):
  script = "echo bwrap: No permissions to create new namespace >&2; exit 1"
  with pytest.raises(SandboxUnavailableError, match="No permissions to create"):
    BubblewrapSandbox(bwrap=fake(tmp_path, script))


def test_a_program_that_says_nothing_is_no_isolation(tmp_path):
  with pytest.raises(SandboxUnavailableError, match="it said nothing"):
    BubblewrapSandbox(bwrap=fake(tmp_path, "exit 0"))


def test_a_program_that_isolates_nothing_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(bubblewrap_sandbox, "_has_real_superuser", bool)
  script = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
  with pytest.raises(SandboxUnavailableError, match="processes can be started"):
    BubblewrapSandbox(bwrap=fake(tmp_path, script))


def test_a_filter_that_is_left_out_is_noticed(sandbox, tmp_path):
  """A bwrap that works, without the filter of system calls."""
  real = shlex.quote(sandbox._launcher._command[0])
  script = f"""
n=$#
while [ $n -gt 0 ]; do
  if [ "$1" = --seccomp ]; then shift 2; n=$((n - 2)); continue; fi
  set -- "$@" "$1"; shift; n=$((n - 1))
done
exec {real} "$@"
"""
  with pytest.raises(SandboxUnavailableError, match="processes can be started"):
    BubblewrapSandbox(bwrap=fake(tmp_path, script))


def test_an_unknown_machine_is_an_error(sandbox, monkeypatch):
  monkeypatch.setattr("platform.machine", lambda: "riscv64")
  with pytest.raises(SandboxUnavailableError, match="riscv64"):
    BubblewrapSandbox()


@pytest.mark.skipif(os.geteuid() != 0, reason="others can read their folders")
def test_an_import_path_that_programs_cannot_read_is_an_error(
  sandbox, tmp_path
):
  hidden = tmp_path / "hidden"
  hidden.mkdir(mode=0o700)
  with pytest.raises(SandboxUnavailableError, match="cannot be read by all"):
    BubblewrapSandbox(import_paths=(hidden,))


@pytest.mark.parametrize("path", ["/", "/tmp"])
def test_an_import_path_may_not_hide_the_programs_folder(sandbox, path):
  with pytest.raises(ValueError, match="import_paths has .*belongs to the"):
    BubblewrapSandbox(import_paths=(path,))


def test_code_is_nobody_without_rights(namespaced):
  code = """
import ctypes, os
assert os.getuid() == os.geteuid() == os.getgid() != 0
assert os.getgroups() in ([], [os.getgid()], [65534])
assert ctypes.CDLL(None).prctl(39, 0, 0, 0, 0) == 1  # no new privileges
for call in (lambda: os.setuid(0), lambda: os.chroot("/usr"),
             lambda: os.nice(-5), lambda: os.mknod("x", 0o60600, 1)):
  try: call()
  except OSError: continue
  raise AssertionError(call)
"""
  result = run(namespaced, code)
  assert result.status is Status.OK, result.stderr


def test_limits_cannot_be_raised(namespaced):
  code = """
import resource
for what in ("AS", "FSIZE", "CPU", "NOFILE", "CORE", "NPROC"):
  limit = getattr(resource, "RLIMIT_" + what)
  for value in (resource.RLIM_INFINITY, resource.getrlimit(limit)[1] + 1):
    try: resource.setrlimit(limit, (value, value))
    except (ValueError, PermissionError): continue
    raise AssertionError(what)
"""
  result = run(namespaced, code)
  assert result.status is Status.OK, result.stderr


def test_processes_and_the_network_are_refused(namespaced):
  code = """
import os, socket, subprocess
for call in (os.fork, os.forkpty, lambda: subprocess.run(["/usr/bin/true"]),
             lambda: os.posix_spawn("/usr/bin/true", ["true"], {}),
             lambda: socket.socket(40), lambda: socket.socket(16, 3),
             lambda: socket.create_connection(("10.0.0.1", 80), 5)):
  try: call()
  except OSError: continue
  raise AssertionError(call)
"""
  result = run(namespaced, code)
  assert result.status is Status.OK, result.stderr


def test_only_one_folder_can_be_written_and_it_is_small(namespaced):
  code = """
import os
written = []
for folder, folders, _ in os.walk("/"):
  path = os.path.join(folder, "new")
  try: open(path, "w").close()
  except OSError: continue
  os.unlink(path)
  written.append(folder)
assert all(path.startswith("/tmp") for path in written), written
total = 0
try:
  for number in range(64):
    with open(f"/tmp/{number}", "wb", buffering=0) as file:
      for _ in range(64):
        total += file.write(bytes(1 << 16))
except OSError:
  pass
print(total >> 20)
"""
  result = run(namespaced, code)
  assert result.status is Status.OK, result.stderr
  assert int(result.stdout) in (7, 8)


def test_memory_that_no_limit_counts_is_refused(sandbox):
  code = """
import mmap, os
try: os.memfd_create("x")
except OSError: pass
else: raise AssertionError
mmap.mmap(-1, 1 << 30)
"""
  result = run(sandbox, code)
  assert result.status is Status.ERROR
  assert "Cannot allocate memory" in result.stderr


def test_nothing_of_the_machine_can_be_seen(namespaced):
  code = """
import os
for path in ("/proc", "/sys", "/etc/passwd", "/etc/shadow", "/var", "/run",
             "/dev/shm", "/dev/tty", "/dev/kvm", "/dev/vda", "/home"):
  assert not os.path.exists(path), path
print(*sorted(os.listdir("/dev")), os.uname().nodename)
"""
  result = run(namespaced, code)
  assert result.status is Status.OK, result.stderr
  assert result.stdout == "full null random urandom zero sandbox\n"


def test_a_child_that_bwrap_has_not_named_is_killed_with_it(tmp_path):
  """The kill comes while bwrap is still building."""

  async def main():
    sandbox = open_backend("bubblewrap", tmp_path)
    assert isinstance(sandbox, BubblewrapSandbox)
    for _ in range(5):
      child = sandbox._launcher.start()
      await child.end()
      assert child.exited
      await sandbox._launcher.remove(child)

  asyncio.run(main())
  assert processes_with(tmp_path) == []


def test_a_number_that_belongs_to_somebody_else_is_not_killed():
  read, write = os.pipe()
  # This process is no child of the process 1.
  os.write(write, b'{"child-pid": %d}' % os.getpid())
  os.close(write)
  inner = BubblewrapChild(read)
  inner.kill(os.getpid())
  os.close(read)
  assert pathlib.Path(f"/proc/{os.getpid()}").exists()
