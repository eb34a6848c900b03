"""Tests of the sandboxes that a suite's episodes run in."""

import asyncio

import pytest

from arl_jax.envs.code_sandboxes import LoopSandbox
from arl_jax.envs.code_trusted import TrustedSandbox
from arl_jax.envs.inline import run_inline
from arl_jax.sandbox.pool import SandboxPool
from arl_jax.sandbox.sandbox import Status

LIMITS = {"timeout_seconds": 5.0, "memory_mb": 64}


class SlowSandbox(TrustedSandbox):
  """Waits a little, so that a pool makes others wait; notes its end."""

  def __init__(self, closed):
    self._closed = closed

  async def run(self, code, **options):
    await asyncio.sleep(0)
    return await super().run(code, **options)

  async def aclose(self):
    self._closed.append(self)


def make(closed, made):
  def make_pool():
    made.append(SandboxPool(SlowSandbox(closed), max_concurrent=1))
    return made[-1]

  return LoopSandbox(make_pool)


def test_loops_one_after_the_other_have_pools_that_end_with_them():
  closed, made = [], []
  sandbox = make(closed, made)
  assert len(made) == 1  # what is missing is found before any episode

  async def burst():
    """More programs than may run at once, so that some wait."""
    results = await asyncio.gather(
      *(sandbox.run(f"print({n})", **LIMITS) for n in range(5))
    )
    async with sandbox.session(memory_mb=64) as session:
      await session.run("x = 5", timeout_seconds=5)
      results.append(await session.run("print(x)", timeout_seconds=5))
    assert len(closed) < len(made)
    return [result.stdout for result in results]

  for number in (1, 2, 3):
    assert asyncio.run(burst()) == [f"{n}\n" for n in range(6)]
    assert (len(made), len(closed)) == (number, number)


def test_closing_ends_the_pool_and_the_next_program_opens_another():
  closed, made = [], []
  sandbox = make(closed, made)

  async def main():
    await sandbox.aclose()
    await sandbox.run("1", **LIMITS)
    await sandbox.aclose()
    assert len(closed) == 1
    await sandbox.run("1", **LIMITS)

  asyncio.run(main())
  assert (len(made), len(closed)) == (2, 2)


def run(code, stdin=""):
  return run_inline(TrustedSandbox().run(code, **LIMITS, stdin=stdin))


def test_trusted_programs_print_read_and_fail_like_others(capsys):
  assert run("print(1)\nprint(2, end='')").stdout == "1\n2"
  assert run("print(input('? ') + input())", stdin="a\nb").stdout == "? ab\n"
  result = run("print(1)\nx = 1 / 0")
  assert (result.status, result.stdout) == (Status.ERROR, "1\n")
  assert result.stderr.endswith("ZeroDivisionError: division by zero\n")
  assert "EOFError" in run("input()").stderr
  assert "SyntaxError" in run("def").stderr
  assert run("def f(n):\n  return n and f(n - 1)\nprint(f(3))").stdout == "0\n"
  assert capsys.readouterr().out == ""
  with pytest.raises(ValueError, match="memory_mb"):
    run_inline(TrustedSandbox().run("1", timeout_seconds=1, memory_mb=1))
