"""What code does by accident or in malice, and the status that it gets.

docs/sandbox.md has the same table.
"""

import asyncio
import dataclasses

import pytest

from arl_jax.sandbox.sandbox import Status
from tests.sandbox.backends import (
  BACKENDS,
  open_backend,
  processes_with,
  run_once,
)

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


# These end a turn of a session as they end a program.
EXITS = {
  "exit_code": Hazard("import sys\nsys.exit(3)", (ERROR, ERROR, UNSUPPORTED)),
  "exit_text": Hazard(
    "import sys\nsys.exit('why')", (ERROR, ERROR, UNSUPPORTED), stdout=""
  ),
  "exit_zero": Hazard("import sys\nsys.exit(0)", (OK, OK, UNSUPPORTED)),
  "exit_well": Hazard("import sys\nsys.exit()", (OK, OK, UNSUPPORTED)),
  "exit_builtin": Hazard("exit(1)", (ERROR, ERROR, UNSUPPORTED)),
  "exit_by_raising": Hazard(
    "print(1)\nraise SystemExit", (OK,) * 3, stdout="1\n"
  ),
  "exit_by_raising_text": Hazard(
    "raise SystemExit('why')", (ERROR,) * 3, stderr="why"
  ),
  "exit_like_a_signal": Hazard(
    "import sys\nsys.exit(137)", (ERROR, ERROR, UNSUPPORTED)
  ),
  "exit_in_a_byte": Hazard(
    "import sys\nsys.exit(256)", (ERROR, ERROR, UNSUPPORTED)
  ),
  "exit_at_once": Hazard("import os\nos._exit(0)", (CRASH, CRASH, UNSUPPORTED)),
  "exit_at_once_code": Hazard(
    "print(1, flush=True)\nimport os\nos._exit(3)",
    (CRASH, CRASH, UNSUPPORTED),
    stdout="1\n",
  ),
  "exit_at_once_like_a_signal": Hazard(
    "import os\nos._exit(137)", (CRASH, CRASH, UNSUPPORTED)
  ),
  "exit_into_another_program": Hazard(
    "import os, sys\nos.execv(sys.executable, ['python', '-c', '1'])",
    (CRASH, CRASH, UNSUPPORTED),
  ),
  "exit_of_a_forked_copy": Hazard(
    "import os\n"
    "try:\n  copy = os.fork()\nexcept PermissionError:\n  copy = 0\n"
    "if copy: os.waitpid(copy, 0)",
    (OK, OK, UNSUPPORTED),
  ),
}

HAZARDS = {
  "infinite_loop": Hazard(
    "print('on')\nwhile True: pass", (TIMEOUT,) * 3, 2.0, stdout="on\n"
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
  **EXITS,
  "handler_at_exit": Hazard(
    "import atexit\natexit.register(print, 'late')",
    (OK, OK, UNSUPPORTED),
    stdout="late\n",
  ),
  "handler_that_hides_an_error": Hazard(
    "import atexit, os\natexit.register(os._exit, 0)\n1 / 0",
    (ERROR, ERROR, UNSUPPORTED),
  ),
  "handler_that_exits": Hazard(
    "import atexit, os\natexit.register(os._exit, 3)",
    (ERROR, ERROR, UNSUPPORTED),
  ),
  "own_exception_class": Hazard(
    "class E(BaseException): pass\nraise E", (ERROR, ERROR, UNSUPPORTED)
  ),
  "many_files": Hazard(
    "x = [open('/dev/null') for _ in range(5000)]", (ERROR,) * 3
  ),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_exits_end_a_turn_as_they_end_a_program(backend, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    found = {}
    for name, exits in EXITS.items():
      async with sandbox.session(memory_mb=256) as session:
        found[name] = (await session.run(exits.code, timeout_seconds=60)).status
        if found[name] is not CRASH:
          # Whatever has exited, this interpreter goes on, and alone.
          for text in ("1", "2"):
            result = await session.run(f"print({text})", timeout_seconds=60)
            assert result.stdout == f"{text}\n", name
    await sandbox.aclose()
    return found

  place = BACKENDS.index(backend)
  expected = {name: exits.statuses[place] for name, exits in EXITS.items()}
  assert asyncio.run(main()) == expected
  assert processes_with(tmp_path) == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", HAZARDS)
def test_hazard_has_its_status_and_leaves_nothing(name, backend, tmp_path):
  hazard = HAZARDS[name]
  result = run_once(
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
