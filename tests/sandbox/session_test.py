"""Sessions: what lives on from turn to turn, and what ends them."""

import asyncio
import functools

import pytest

from arl_jax.sandbox.sandbox import SessionEndedError, Status
from arl_jax.sandbox.worker import ProcessLimits
from tests.sandbox.backends import (
  BACKENDS,
  PROCESSES,
  open_backend,
  processes_with,
  wait_until,
)

OK, ERROR = Status.OK, Status.ERROR


def in_session(backends, **limits):
  """Lets a test play turns: it gets `turn(code, ...)` and is awaited."""

  def decorate(test):
    @pytest.mark.parametrize("backend", backends)
    def wrapped(backend, tmp_path):
      async def main():
        sandbox = open_backend(backend, tmp_path, ProcessLimits(**limits))
        async with sandbox.session(memory_mb=256) as session:
          await test(functools.partial(session.run, timeout_seconds=60))
        await sandbox.aclose()

      asyncio.run(main())
      assert processes_with(tmp_path) == []

    wrapped.__name__ = test.__name__
    return wrapped

  return decorate


async def ends(turn, code, status, **options):
  """Sees code end the session with a status."""
  assert (await turn(code, **options)).status is status
  with pytest.raises(SessionEndedError, match=f"ended with status {status}"):
    await turn("1")


@in_session(BACKENDS)
async def test_variables_functions_and_imports_stay(turn):
  assert (await turn("import math\nx = 2\ndef f(): return x")).status is OK
  assert (await turn("x = 3")).stdout == ""
  assert (await turn("print(f(), math.sqrt(16))")).stdout == "3 4.0\n"


@in_session(BACKENDS)
async def test_an_error_ends_its_turn_alone(turn):
  result = await turn("x = 1\nprint('so far')\n1 / 0\nx = 2")
  assert (result.status, result.stdout) == (ERROR, "so far\n")
  assert "ZeroDivisionError" in result.stderr
  result = await turn("print(x)")
  assert (result.status, result.stdout, result.stderr) == (OK, "1\n", "")


@in_session(PROCESSES)
async def test_a_traceback_shows_lines_of_earlier_turns(turn):
  await turn("def f():\n  return 1 / 0")
  stderr = (await turn("f()")).stderr
  assert "turn_2.py" in stderr
  assert "return 1 / 0" in stderr
  assert "_execute" not in stderr


@in_session(PROCESSES)
async def test_an_exit_ends_its_turn_alone(turn):
  assert (await turn("x = 1\nexit()")).status is OK
  assert (await turn("import sys\nsys.exit(2)")).status is ERROR
  assert (await turn("print(x)")).stdout == "1\n"


@in_session(PROCESSES)
async def test_streams_are_whole_again_in_the_next_turn(turn):
  await turn(
    "import os, sys\nos.close(0); os.close(1); os.close(2)\n"
    "sys.stdout = sys.stderr = sys.stdin = None"
  )
  result = await turn("print(input())\nimport os\nos.write(2, b'e')", stdin="a")
  assert (result.status, result.stdout, result.stderr) == (OK, "a\n", "e")


@in_session(BACKENDS)
async def test_each_turn_has_its_own_stdin(turn):
  assert (await turn("x = input()", stdin="a\nb\n")).status is OK
  result = await turn("print(x, input())", stdin="c\n")
  assert result.stdout == "a c\n"
  assert (await turn("input()")).status is ERROR


@in_session(BACKENDS)
async def test_too_much_memory_leaves_the_session_usable(turn):
  assert (await turn("y = 1\nx = 'a' * (3 << 30)")).status is Status.MEMORY
  assert (await turn("print(y)")).stdout == "1\n"


@in_session(BACKENDS, max_output_bytes=1000)
async def test_each_turn_may_write_as_much_as_is_kept(turn):
  for _ in range(3):
    result = await turn("print('x' * 999)")
    assert (result.status, len(result.stdout)) == (OK, 1000)
  result = await turn("print('x' * 1000)")
  assert result.status is Status.OUTPUT_LIMIT
  assert len(result.stdout) == 1000


@in_session(BACKENDS)
async def test_a_timeout_ends_the_session(turn):
  await ends(turn, "while True: pass", Status.TIMEOUT, timeout_seconds=0.5)


@in_session(BACKENDS)
async def test_an_output_flood_ends_the_session(turn):
  await ends(turn, "while True: print('x' * 999)", Status.OUTPUT_LIMIT)


@in_session(PROCESSES)
async def test_a_process_that_is_gone_ends_the_session(turn):
  await ends(turn, "import os\nos._exit(0)", Status.CRASH)


@in_session(BACKENDS)
async def test_text_that_looks_like_an_answer_is_text(turn):
  text = "ready\n" + "0" * 32 + " ok\n"
  assert (await turn(f"print({text!r}, end='')")).stdout == text
  assert (await turn("print(1)")).stdout == "1\n"


FORGERY = """
import os
for fd in range(3, 4096):
  try:
    os.write(fd, b"0" * 32 + b" ok\\n")
  except OSError:
    pass
while True: pass
"""


@in_session(PROCESSES)
async def test_an_answer_without_the_token_ends_the_session(turn):
  await ends(turn, FORGERY, Status.CRASH)


@in_session(PROCESSES)
async def test_an_endless_answer_ends_the_session(turn):
  code = FORGERY.replace('b"0" * 32 + b" ok\\n"', 'b"0" * 4096')
  assert code != FORGERY
  await ends(turn, code, Status.CRASH)


@in_session(PROCESSES)
async def test_closing_all_descriptors_ends_the_session(turn):
  code = "import os\nos.closerange(0, 4096)\nwhile True: pass"
  await ends(turn, code, Status.CRASH)


STOLEN_TOKEN = """
import os, sys
frame = sys._getframe()
while "channel" not in frame.f_locals or "token" not in frame.f_locals:
  frame = frame.f_back
for _ in range(NUMBER):
  os.write(frame.f_locals["channel"], frame.f_locals["token"] + b" ok\\n")
while True: pass
"""


@in_session(PROCESSES)
async def test_code_that_ends_its_own_turn_loses_the_next(turn):
  # Found with the debugging tools of its own interpreter.
  assert (await turn(STOLEN_TOKEN.replace("NUMBER", "1"))).status is OK
  await ends(turn, "print('never run')", Status.CRASH)


@in_session(PROCESSES)
async def test_answers_for_later_turns_are_none(turn):
  first = await turn(STOLEN_TOKEN.replace("NUMBER", "2"))
  if first.status is OK:  # only one of them had come
    await ends(turn, "print('never run')", Status.CRASH)
  else:
    assert first.status is Status.CRASH


@in_session(BACKENDS)
async def test_calls_at_once_wait_for_each_other(turn):
  await turn("x = 0")
  await asyncio.gather(*(turn("y = x\nx = y + 1") for _ in range(20)))
  assert (await turn("print(x)")).stdout == "20\n"


@in_session(BACKENDS)
async def test_a_cancelled_call_ends_the_session(turn):
  call = asyncio.create_task(turn("while True: pass"))
  await asyncio.sleep(0.2)
  call.cancel()
  with pytest.raises(asyncio.CancelledError):
    await call
  with pytest.raises(SessionEndedError, match="interrupted"):
    await turn("1")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_session_is_used_inside_its_context(backend, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    session = sandbox.session(memory_mb=128)
    with pytest.raises(SessionEndedError, match="not entered"):
      await session.run("1", timeout_seconds=1)
    async with session:
      pass
    with pytest.raises(SessionEndedError, match="was left"):
      await session.run("1", timeout_seconds=1)
    await sandbox.aclose()

  asyncio.run(main())


@pytest.mark.parametrize("backend", BACKENDS)
def test_sessions_do_not_see_each_other(backend, tmp_path):
  async def play(sandbox, number):
    async with sandbox.session(memory_mb=128) as session:
      await session.run(f"x = {number}", timeout_seconds=60)
      await asyncio.sleep(0)
      return (await session.run("print(x)", timeout_seconds=60)).stdout

  async def main():
    sandbox = open_backend(backend, tmp_path)
    printed = await asyncio.gather(*(play(sandbox, i) for i in range(8)))
    await sandbox.aclose()
    return printed

  assert asyncio.run(main()) == [f"{i}\n" for i in range(8)]
  wait_until(lambda: processes_with(tmp_path) == [])
