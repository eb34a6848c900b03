"""What Monty lacks is told from what a program does wrong."""

import asyncio
import os
import signal
import sys

import pytest

from arl_jax.sandbox.monty_sandbox import MontySandbox
from arl_jax.sandbox.sandbox import SandboxUnavailableError, Status

pytest.importorskip("pydantic_monty")
ERROR, UNSUPPORTED = Status.ERROR, Status.UNSUPPORTED


@pytest.fixture(name="run", scope="module")
def sandbox():
  made = MontySandbox(max_processes=2, max_output_bytes=1000)

  def run(code, *, timeout_seconds=60.0, memory_mb=64, stdin=""):
    return asyncio.run(
      made.run(
        code, timeout_seconds=timeout_seconds, memory_mb=memory_mb, stdin=stdin
      )
    )

  yield run
  asyncio.run(made.aclose())


@pytest.mark.parametrize(
  "code",
  [
    "class A: pass\nclass B(A): pass",
    "def f():\n  yield 1",
    "x = 1\ndel x",
    "try: pass\nexcept* ValueError: pass",
    "import heapq",
    "import socket",
    "from os import fork",
    "import os\nos.fork()",
    "import sys\nsys.exit()",
    "import collections\ncollections.ChainMap()",
    "bytearray(3)",
    "globals()",
    "(7).bit_length()",
  ],
)
def test_what_python_has_is_unsupported(run, code):
  assert run(code).status is UNSUPPORTED


@pytest.mark.parametrize(
  "code",
  [
    "raise NotImplementedError('The monty syntax parser does not yet support')",
    "def (",
    "import no_such_module",
    "import numpy",
    "from math import no_such_name",
    "import math\nmath.no_such_name",
    "print(no_such_name)",
    "'a'.no_such_method",
    "class A: pass\nA.no_such_attribute",
    "open('/etc/passwd')",
    "raise TimeoutError('mine')",
    "assert False",
  ],
)
def test_what_python_has_not_is_an_error(run, code):
  assert run(code).status is ERROR


def test_memory_is_the_programs_whoever_raises_it(run):
  result = run("try:\n  x = 'a' * (1 << 30)\nexcept MemoryError:\n  pass")
  assert result.status is Status.MEMORY


def test_output_is_cut_at_its_limit(run):
  result = run("print('é' * 600)")
  assert result.status is Status.OUTPUT_LIMIT
  assert result.stdout == "é" * 500
  assert run("print('é' * 499)").status is Status.OK


def test_both_streams_are_kept_apart_and_prompts_are_shown(run):
  code = "import sys\nprint('e', file=sys.stderr)\nprint(input('> '))"
  result = run(code, stdin="line\n")
  assert (result.stdout, result.stderr) == ("> line\n", "e\n")


def test_a_sleep_within_its_time_is_a_sleep(run):
  result = run("import time\ntime.sleep(0.2)\nprint(1)")
  assert (result.status, result.stdout) == (Status.OK, "1\n")
  assert result.seconds >= 0.19


def test_a_program_that_catches_its_timeout_is_killed(run):
  code = """
import time
try:
  time.sleep(600)
except TimeoutError:
  while True: pass
"""
  assert run(code, timeout_seconds=0.3).status is Status.TIMEOUT


def test_random_numbers_repeat(run):
  code = "import random\nprint(random.random())"
  assert run(code).stdout == run(code).stdout


def test_an_interpreter_that_is_killed_is_a_crash_and_the_next_one_works():
  async def main():
    sandbox = MontySandbox(max_processes=1)
    async with sandbox.session(memory_mb=64) as session:
      os.kill(session._inner.worker_pid, signal.SIGKILL)
      assert (await session.run("1", timeout_seconds=60)).status is Status.CRASH
    result = await sandbox.run("print(1)", timeout_seconds=60, memory_mb=64)
    assert result.stdout == "1\n"
    await sandbox.aclose()

  asyncio.run(main())


def test_calls_wait_for_a_session_to_be_left():
  async def main():
    sandbox = MontySandbox(max_processes=1)
    async with sandbox.session(memory_mb=64):
      call = asyncio.create_task(
        sandbox.run("print(1)", timeout_seconds=60, memory_mb=64)
      )
      await asyncio.sleep(0.05)
      assert not call.done()
    assert (await call).stdout == "1\n"
    await sandbox.aclose()

  asyncio.run(main())


@pytest.mark.parametrize("name", ["max_processes", "max_output_bytes"])
def test_numbers_that_cannot_be_meant_are_refused(name):
  with pytest.raises(ValueError, match=f"{name} is 0; expected 1 or more"):
    MontySandbox(**{name: 0})


def test_a_missing_package_is_an_error_that_says_how_to_get_it(monkeypatch):
  monkeypatch.setitem(sys.modules, "pydantic_monty", None)
  with pytest.raises(SandboxUnavailableError, match=r"arl-jax\[monty\]"):
    MontySandbox()


def test_a_missing_binary_is_an_error_that_says_how_to_get_it(monkeypatch):
  monkeypatch.setenv("MONTY_BIN", "/no/such/monty")
  with pytest.raises(SandboxUnavailableError, match=r"arl-jax\[monty\]"):
    MontySandbox()
