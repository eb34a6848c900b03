"""What code can do to its host, and which sandbox stops it.

docs/sandbox.md has the same table. A hazard that `subprocess` does not stop is
tested, too, so that the table stays true.
"""

import asyncio
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from arl_jax.sandbox.sandbox import SandboxResult, Status
from arl_jax.sandbox.worker import ProcessLimits
from tests.sandbox.backends import (
  BACKENDS,
  PROCESSES,
  is_running,
  open_backend,
  processes_with,
  wait_until,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
OK, ERROR, TIMEOUT = Status.OK, Status.ERROR, Status.TIMEOUT
MEMORY, CRASH = Status.MEMORY, Status.CRASH
UNSUPPORTED = Status.UNSUPPORTED


@dataclasses.dataclass(frozen=True)
class Hazard:
  """Code, and the status that it has in the order of `BACKENDS`."""

  code: str
  statuses: tuple[Status, ...]
  seconds: float = 60.0
  stdin: str = ""
  stdout: str | None = None
  stderr: str = ""


HAZARDS = {
  "infinite_loop": Hazard(
    "print('on')\nwhile True: pass", (TIMEOUT,) * 3, 3.0, stdout="on\n"
  ),
  "sleep": Hazard("import time\ntime.sleep(999)", (TIMEOUT,) * 3, 0.7),
  "many_short_sleeps": Hazard(
    "import time\nwhile True: time.sleep(0.01)", (TIMEOUT,) * 3, 0.7
  ),
  "three_gibibytes": Hazard("x = 'a' * (3 << 30)", (MEMORY,) * 3),
  "memory_bit_by_bit": Hazard(
    "x = []\nwhile True: x.append('ab' * 50000 + str(len(x)))", (MEMORY,) * 3
  ),
  "output_flood": Hazard(
    "while True: print('x' * 9999)", (Status.OUTPUT_LIMIT,) * 3
  ),
  "deep_recursion": Hazard(
    "def f(n): return f(n + 1)\nf(0)", (ERROR,) * 3, stderr="RecursionError"
  ),
  "large_file": Hazard(
    "open('x', 'wb').write(bytes(50 << 20))", (ERROR, ERROR, ERROR)
  ),
  "stop_itself": Hazard(
    "import os\nos.kill(os.getpid(), 19)", (TIMEOUT, TIMEOUT, UNSUPPORTED), 0.7
  ),
  "kill_itself": Hazard(
    "import os\nos.kill(os.getpid(), 9)", (CRASH, CRASH, UNSUPPORTED)
  ),
  "segmentation_fault": Hazard(
    "import ctypes\nctypes.string_at(0)", (CRASH, CRASH, UNSUPPORTED)
  ),
  "close_stdout": Hazard(
    "print('a')\nimport os\nos.close(1)\nos.close(2)",
    (OK, OK, UNSUPPORTED),
    stdout="a\n",
  ),
  "not_utf_8": Hazard(
    "import os\nos.write(1, b'a\\xff\\xfe')\nprint('a\\ufffd\\ufffd', end='')",
    (OK, OK, UNSUPPORTED),
  ),
  "lone_surrogate_in_code": Hazard(
    "print('\ud800' == 'a')", (ERROR, ERROR, OK)
  ),
  "null_byte_in_code": Hazard("x = 1\0", (ERROR,) * 3, stderr="Error"),
  "nested_code": Hazard("(" * 5000 + ")" * 5000, (ERROR,) * 3),
  "large_code": Hazard(
    "x = '" + "a" * 1_000_000 + "'\nprint(len(x))",
    (OK,) * 3,
    stdout="1000000\n",
  ),
  "all_of_stdin": Hazard(
    "import sys\nx = sys.stdin.read()\nprint(len(x), x[-3:])",
    (OK, OK, UNSUPPORTED),
    stdin="x" * 300_000 + "end",
    stdout="300003 end\n",
  ),
  "lines_of_stdin": Hazard(
    "print(input(), input())", (OK,) * 3, stdin="a\nb\n", stdout="a b\n"
  ),
  "end_of_stdin": Hazard("input()", (ERROR,) * 3),
  "traceback": Hazard(
    "def f():\n  return 1 / 0\nf()",
    (ERROR,) * 3,
    stdout="",
    stderr="in f\n    return 1 / 0",
  ),
  "exit_code": Hazard("import sys\nsys.exit(3)", (ERROR, ERROR, UNSUPPORTED)),
  "exit_text": Hazard(
    "import sys\nsys.exit('why')", (ERROR, ERROR, UNSUPPORTED), stdout=""
  ),
  "exit_well": Hazard("import sys\nsys.exit()", (OK, OK, UNSUPPORTED)),
  "exit_like_a_signal": Hazard(
    "import sys\nsys.exit(137)", (ERROR, ERROR, UNSUPPORTED)
  ),
  "exit_at_once": Hazard("import os\nos._exit(0)", (OK, OK, UNSUPPORTED)),
  "exit_handler": Hazard(
    "import atexit\natexit.register(print, 'late')",
    (OK, OK, UNSUPPORTED),
    stdout="late\n",
  ),
  "own_exception_class": Hazard(
    "class E(BaseException): pass\nraise E", (ERROR, ERROR, UNSUPPORTED)
  ),
  "many_files": Hazard(
    "x = [open('/dev/null') for _ in range(5000)]", (ERROR,) * 3
  ),
}


def run(backend, marker, code, **options) -> SandboxResult:
  """Runs code once, and sees to it that nothing of it is left."""
  options = {"timeout_seconds": 60.0, "memory_mb": 256} | options
  limits = ProcessLimits(max_output_bytes=100_000)

  async def main():
    sandbox = open_backend(backend, marker, limits)
    try:
      return await sandbox.run(code, **options)
    finally:
      await sandbox.aclose()

  return asyncio.run(main())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", HAZARDS)
def test_hazard_has_its_status_and_leaves_nothing(name, backend, tmp_path):
  hazard = HAZARDS[name]
  result = run(
    backend,
    tmp_path,
    hazard.code,
    timeout_seconds=hazard.seconds,
    stdin=hazard.stdin,
  )
  expected = hazard.statuses[BACKENDS.index(backend)]
  assert result.status is expected, result
  if expected is not UNSUPPORTED:
    assert hazard.stderr in result.stderr
    if hazard.stdout is not None:
      assert result.stdout == hazard.stdout
  assert len(result.stdout) + len(result.stderr) < 110_000
  assert processes_with(tmp_path) == []


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
  result = run(backend, tmp_path, FORKS)
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
  result = run("bubblewrap", tmp_path, THREADS, memory_mb=4096)
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
  result = run(backend, tmp_path, ESCAPE)
  assert result.status in (ERROR, UNSUPPORTED)
  assert processes_with(tmp_path) == []


def test_a_process_with_a_session_of_its_own_outlives_subprocess(tmp_path):
  pid = int(run("subprocess", tmp_path, ESCAPE).stdout)
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
    assert run(backend, tmp_path, code).status is status


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
  result = run(backend, marker, f"print(open({str(path)!r}).read())")
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
  result = run(backend, marker, f"open({str(path)!r}, 'w').write('x')")
  assert result.status is status
  assert path.exists() == (backend == "subprocess")


@pytest.mark.parametrize("backend", BACKENDS)
def test_variables_are_not_handed_on(backend, tmp_path, monkeypatch):
  monkeypatch.setenv("API_TOKEN", "secret")
  result = run(backend, tmp_path, "import os\nprint(os.environ)")
  assert result.status is OK
  assert "secret" not in result.stdout


@pytest.mark.parametrize(
  ("backend", "status"),
  [("subprocess", OK), ("bubblewrap", ERROR), ("monty", UNSUPPORTED)],
)
def test_looking_into_the_host(backend, status, tmp_path):
  code = "import os\nassert open(f'/proc/{os.getppid()}/environ').read()"
  assert run(backend, tmp_path, code).status is status


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
    assert run(backend, tmp_path, code).stdout == "[]\n"
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
  result = run("bubblewrap", tmp_path, KILL_PARENT + "print('on')")
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
