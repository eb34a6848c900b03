"""The pool: how much runs at once, in which order, and what waits ready."""

import asyncio
import os
import signal

import pytest

from arl_jax.sandbox.pool import SandboxPool
from arl_jax.sandbox.sandbox import (
  SandboxResult,
  SandboxStartError,
  SessionEndedError,
  Status,
)
from tests.sandbox.backends import (
  BACKENDS,
  PROCESSES,
  open_backend,
  processes_with,
  wait_until,
)

LIMITS = {"timeout_seconds": 60.0, "memory_mb": 128}


class FakeSandbox:
  """Holds each call until it is let go, and counts them."""

  def __init__(self):
    self.started: list[str] = []
    self.may_end: dict[str, asyncio.Event] = {}
    self.num_running = 0
    self.num_open = 0
    self.closed = False

  async def run(self, code, *, timeout_seconds, memory_mb, stdin=""):
    self.started.append(code)
    self.num_running += 1
    try:
      await self.may_end.setdefault(code, asyncio.Event()).wait()
    finally:
      self.num_running -= 1
    return SandboxResult(status=Status.OK, stdout=code, stderr="", seconds=0.0)

  def session(self, *, memory_mb):
    return FakeSession(self)

  async def aclose(self):
    self.closed = True

  def let_go(self, code):
    self.may_end.setdefault(code, asyncio.Event()).set()


class FakeSession:
  def __init__(self, sandbox):
    self._sandbox = sandbox

  async def __aenter__(self):
    self._sandbox.num_open += 1
    return self

  async def __aexit__(self, *error):
    self._sandbox.num_open -= 1

  async def run(self, code, *, timeout_seconds, stdin=""):
    return await self._sandbox.run(
      code, timeout_seconds=timeout_seconds, memory_mb=0, stdin=stdin
    )


async def settle():
  for _ in range(20):
    await asyncio.sleep(0)


def test_no_more_run_than_may_and_the_first_to_come_is_the_next_to_run():
  async def main():
    fake = FakeSandbox()
    async with SandboxPool(fake, max_concurrent=2) as pool:
      calls = []
      for name in "abcdef":
        calls.append(asyncio.create_task(pool.run(name, **LIMITS)))
        await settle()
      assert fake.started == ["a", "b"]
      fake.let_go("b")
      await settle()
      assert (fake.started, fake.num_running) == (["a", "b", "c"], 2)
      calls[3].cancel()  # d, which waits
      fake.let_go("a")
      await settle()
      assert fake.started == ["a", "b", "c", "e"]
      calls[2].cancel()  # c, which runs
      await settle()
      assert fake.started == ["a", "b", "c", "e", "f"]
      for name in "ef":
        fake.let_go(name)
      results = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(r, "stdout", None) for r in results] == [
      *("a", "b", None, None, "e", "f")
    ]
    assert fake.closed

  asyncio.run(main())


def test_sessions_that_wait_for_their_next_call_keep_nobody_from_running():
  async def main():
    fake = FakeSandbox()
    async with SandboxPool(fake, max_concurrent=1, max_sessions=2) as pool:
      first, second = pool.session(memory_mb=64), pool.session(memory_mb=64)
      await first.__aenter__()
      await second.__aenter__()
      call = asyncio.create_task(first.run("a", timeout_seconds=1))
      await settle()
      other = asyncio.create_task(pool.run("b", **LIMITS))
      await settle()
      assert fake.started == ["a"]
      fake.let_go("a")
      fake.let_go("b")
      await asyncio.gather(call, other)
      third = pool.session(memory_mb=64)
      entering = asyncio.create_task(third.__aenter__())
      await settle()
      assert fake.num_open == 2
      await first.__aexit__(None, None, None)
      await entering
      assert fake.num_open == 2
      await second.__aexit__(None, None, None)
      await third.__aexit__(None, None, None)

  asyncio.run(main())


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"max_concurrent": 0}, "max_concurrent is 0; expected 1 or more"),
    ({"max_concurrent": 1, "max_sessions": 0}, "max_sessions is 0"),
    ({"max_concurrent": 1, "num_warm": -1}, "num_warm is -1"),
    ({"max_concurrent": 1, "num_warm": 2}, "FakeSandbox starts no processes"),
  ],
)
def test_numbers_that_cannot_be_meant_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    SandboxPool(FakeSandbox(), **options)


def test_a_closed_pool_says_so():
  async def main():
    pool = SandboxPool(FakeSandbox(), max_concurrent=1)
    await pool.aclose()
    with pytest.raises(RuntimeError, match="the pool is closed"):
      await pool.run("a", **LIMITS)
    with pytest.raises(RuntimeError, match="the pool is closed"):
      pool.session(memory_mb=64)

  asyncio.run(main())


async def wait_for(condition):
  for _ in range(6000):
    if condition():
      return
    await asyncio.sleep(0.01)
  raise AssertionError("it did not happen")


async def warm(pool, number):
  await wait_for(lambda: len(pool._warm) == number)


@pytest.mark.parametrize("backend", PROCESSES)
def test_a_warm_interpreter_runs_one_program(backend, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    async with SandboxPool(sandbox, max_concurrent=1, num_warm=2) as pool:
      await warm(pool, 2)
      ready = list(pool._warm)
      first = await pool.run("x = 1\nopen('f', 'w')", **LIMITS)
      assert first.status is Status.OK
      assert not ready[0].alive
      second = await pool.run(
        "import os\nprint('x' in globals(), os.path.exists('f'))", **LIMITS
      )
      assert second.stdout == "False False\n"
      await warm(pool, 2)
    assert processes_with(tmp_path) == []

  asyncio.run(main())


def test_a_warm_interpreter_that_has_died_is_replaced(tmp_path):
  async def main():
    sandbox = open_backend("subprocess", tmp_path)
    async with SandboxPool(sandbox, max_concurrent=1, num_warm=1) as pool:
      await warm(pool, 1)
      dead = pool._warm[0]
      for pid in processes_with(tmp_path):
        os.kill(pid, signal.SIGKILL)
      await wait_for(lambda: not dead.alive)
      assert (await pool.run("print(1)", **LIMITS)).stdout == "1\n"

  asyncio.run(main())


@pytest.mark.parametrize("backend", PROCESSES)
def test_leaving_the_pool_ends_those_that_start(backend, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    async with SandboxPool(sandbox, max_concurrent=1, num_warm=4):
      await asyncio.sleep(0.005)

  asyncio.run(main())
  wait_until(lambda: processes_with(tmp_path) == [])


def test_an_interpreter_that_cannot_start_fails_the_call(tmp_path, monkeypatch):
  async def main():
    sandbox = open_backend("subprocess", tmp_path)
    monkeypatch.setattr(
      "arl_jax.sandbox.interpreter.interpreter_path", lambda: "/no/python"
    )
    async with SandboxPool(sandbox, max_concurrent=1, num_warm=1) as pool:
      for _ in range(2):
        with pytest.raises(SandboxStartError, match="/no/python"):
          await pool.run("1", **LIMITS)

  asyncio.run(main())


def test_an_interpreter_that_ends_at_once_fails_the_call(tmp_path, monkeypatch):
  async def main():
    sandbox = open_backend("subprocess", tmp_path)
    monkeypatch.setattr(
      "arl_jax.sandbox.interpreter.interpreter_path", lambda: "/bin/false"
    )
    with pytest.raises(SandboxStartError, match="ended with 1 before"):
      await sandbox.run("1", **LIMITS)

  asyncio.run(main())


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_and_sessions_share_a_pool(backend, tmp_path):
  async def play(pool, number):
    async with pool.session(memory_mb=128) as session:
      await session.run(f"x = {number}", timeout_seconds=60)
      await pool.run("y = 1", **LIMITS)
      return (await session.run("print(x)", timeout_seconds=60)).stdout

  async def main():
    sandbox = open_backend(backend, tmp_path)
    async with SandboxPool(sandbox, max_concurrent=2, max_sessions=3) as pool:
      printed = await asyncio.gather(*(play(pool, i) for i in range(8)))
      session = pool.session(memory_mb=128)
      async with session:
        await session.run("1", timeout_seconds=60)
      with pytest.raises(SessionEndedError):
        await session.run("1", timeout_seconds=60)
    return printed

  assert asyncio.run(main()) == [f"{i}\n" for i in range(8)]
  assert processes_with(tmp_path) == []
