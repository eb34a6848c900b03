"""What code can do to its host, and which sandbox keeps it from that.

docs/sandbox.md has the same table. What `subprocess` does not stop is tested,
too, so that the table stays true.
"""

import asyncio
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from arl_jax.sandbox.sandbox import Status
from tests.sandbox.backends import (
  BACKENDS,
  PROCESSES,
  is_running,
  open_backend,
  processes_with,
  run_once,
  wait_until,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
OK, ERROR, UNSUPPORTED = Status.OK, Status.ERROR, Status.UNSUPPORTED

FORKS = """
import os, time
children = []
try:
  for _ in range(40):
    child = os.fork()
    if not child:
      time.sleep(600)
      os._exit(0)
    children.append(child)
finally:
  print(len(children))
"""


@pytest.mark.parametrize(
  ("backend", "status", "printed"),
  [
    ("subprocess", OK, "40\n"),
    ("bubblewrap", ERROR, "0\n"),
    ("monty", UNSUPPORTED, "0\n"),
  ],
)
def test_many_forks(backend, status, printed, tmp_path):
  result = run_once(backend, tmp_path, FORKS)
  assert (result.status, result.stdout) == (status, printed)
  # Where they can be had, they die with their group.
  wait_until(lambda: processes_with(tmp_path) == [])


THREADS = """
import _thread, time
try:
  for number in range(200):
    _thread.start_new_thread(time.sleep, (600,))
finally:
  print(number)
"""


def test_threads_are_bounded_in_bubblewrap(tmp_path):
  result = run_once("bubblewrap", tmp_path, THREADS, memory_mb=4096)
  assert result.status is ERROR
  assert 10 < int(result.stdout) < 64


ESCAPE = """
import os, time
read, write = os.pipe()
if not os.fork():
  os.setsid()
  if not os.fork():
    os.write(write, b"%d" % os.getpid())
    time.sleep(600)
  os._exit(0)
print(os.read(read, 99).decode())
"""


@pytest.mark.parametrize("backend", ["bubblewrap", "monty"])
def test_no_process_escapes_by_a_session_of_its_own(backend, tmp_path):
  result = run_once(backend, tmp_path, ESCAPE)
  assert result.status in (ERROR, UNSUPPORTED)
  assert processes_with(tmp_path) == []


def test_a_process_with_a_session_of_its_own_outlives_subprocess(tmp_path):
  pid = int(run_once("subprocess", tmp_path, ESCAPE).stdout)
  try:
    assert is_running(pid)
  finally:
    os.kill(pid, signal.SIGKILL)
  wait_until(lambda: not is_running(pid))


@pytest.mark.parametrize(
  ("backend", "status"),
  [("subprocess", OK), ("bubblewrap", ERROR), ("monty", UNSUPPORTED)],
)
def test_network(backend, status, tmp_path):
  with socket.create_server(("127.0.0.1", 0)) as server:
    address = server.getsockname()
    code = f"import socket\nsocket.create_connection({address}, 20)"
    assert run_once(backend, tmp_path, code).status is status


@pytest.mark.parametrize(
  ("backend", "status", "printed"),
  [
    ("subprocess", OK, "secret\n"),
    ("bubblewrap", ERROR, ""),
    ("monty", ERROR, ""),
  ],
)
def test_reading_a_file_of_the_host(backend, status, printed, tmp_path):
  path = tmp_path / "key"
  path.write_text("secret")
  marker = tmp_path / "imports"
  marker.mkdir()
  result = run_once(backend, marker, f"print(open({str(path)!r}).read())")
  assert (result.status, result.stdout) == (status, printed)


@pytest.mark.parametrize(
  ("backend", "status"),
  [("subprocess", OK), ("bubblewrap", ERROR), ("monty", ERROR)],
)
@pytest.mark.parametrize("where", [".", "imports"])
def test_writing_a_file_of_the_host(backend, status, where, tmp_path):
  marker = tmp_path / "imports"
  marker.mkdir()
  path = tmp_path / where / "new"
  result = run_once(backend, marker, f"open({str(path)!r}, 'w').write('x')")
  assert result.status is status
  assert path.exists() == (backend == "subprocess")


@pytest.mark.parametrize("backend", BACKENDS)
def test_variables_are_not_handed_on(backend, tmp_path, monkeypatch):
  monkeypatch.setenv("API_TOKEN", "secret")
  result = run_once(backend, tmp_path, "import os\nprint(os.environ)")
  assert result.status is OK
  assert "secret" not in result.stdout


@pytest.mark.parametrize(
  ("backend", "status"),
  [("subprocess", OK), ("bubblewrap", ERROR), ("monty", UNSUPPORTED)],
)
def test_looking_into_the_host(backend, status, tmp_path):
  code = "import os\nassert open(f'/proc/{os.getppid()}/environ').read()"
  assert run_once(backend, tmp_path, code).status is status


@pytest.mark.parametrize("backend", PROCESSES)
def test_descriptors_of_the_host_are_not_handed_on(backend, tmp_path):
  code = """
import os
found = []
for fd in range(3, 900):
  try: os.fstat(fd)
  except OSError: continue
  found.append(fd)
print(found)
"""
  read, write = os.pipe()
  try:
    os.set_inheritable(read, True)
    assert run_once(backend, tmp_path, code).stdout == "[]\n"
  finally:
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_calls_at_once_stay_apart(backend, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    results = await asyncio.gather(
      *(
        sandbox.run(
          f"x = {i}\nprint(x, input())",
          timeout_seconds=60,
          memory_mb=128,
          stdin=f"in {i}",
        )
        for i in range(64)
      )
    )
    await sandbox.aclose()
    return results

  results = asyncio.run(main())
  assert [r.stdout for r in results] == [f"{i} in {i}\n" for i in range(64)]
  assert processes_with(tmp_path) == []


# In a process of its own, which may die.
HOST = """
import asyncio, pathlib, sys
from tests.sandbox.backends import open_backend

async def main():
  sandbox = open_backend(sys.argv[1], pathlib.Path(sys.argv[2]))
  result = await sandbox.run(sys.argv[3], timeout_seconds=600, memory_mb=256)
  print(result.status)

asyncio.run(main())
"""


def start_host(backend, marker, code):
  folder = marker / "imports"
  folder.mkdir()
  return folder, subprocess.Popen(
    [sys.executable, "-c", HOST, backend, str(folder), code],
    cwd=ROOT,
    # A host that is killed leaves the folder of its program.
    env=os.environ | {"TMPDIR": str(marker)},
    stdout=subprocess.PIPE,
    text=True,
  )


def others_with(marker, host):
  return [pid for pid in processes_with(marker) if pid != host.pid]


KILL_PARENT = """
import os, time
for pid in os.getppid(), 1:
  if pid:
    try: os.kill(pid, 9)
    except PermissionError: pass
"""


def test_killing_the_parent_in_bubblewrap(tmp_path):
  result = run_once("bubblewrap", tmp_path, KILL_PARENT + "print('on')")
  assert (result.status, result.stdout) == (OK, "on\n")


def test_killing_the_parent_in_subprocess_takes_the_code_along(tmp_path):
  code = "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(600)"
  folder, host = start_host("subprocess", tmp_path, code)
  with host:
    assert host.wait(60) == -signal.SIGKILL
  wait_until(lambda: not processes_with(folder))


@pytest.mark.parametrize("backend", PROCESSES)
def test_code_dies_with_its_host(backend, tmp_path):
  open_backend(backend, tmp_path)  # skips where there is none
  folder, host = start_host(backend, tmp_path, "import time\ntime.sleep(600)")
  with host:
    wait_until(lambda: host.poll() is not None or others_with(folder, host))
    assert host.poll() is None
    host.kill()
  wait_until(lambda: not processes_with(folder))
