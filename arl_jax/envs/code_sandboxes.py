"""The sandbox of a run: a pool for each event loop, closed with its loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from arl_jax.envs.inline import run_inline
from arl_jax.sandbox.pool import SandboxPool
from arl_jax.sandbox.sandbox import SandboxResult, Session


class LoopSandbox:
  """A `Sandbox` for whatever event loop is running.

  A pool waits with semaphores, which belong to one loop, while whoever makes
  environments serves several, one after the other. So each loop gets a pool of
  its own with its first program. `asyncio.run` closes it at its end; so does
  any other loop that is ended with `shutdown_asyncgens`.

  Args:
    make_pool: makes a pool; called once here, so that what is missing on this
      machine is found at once.
  """

  def __init__(self, make_pool: Callable[[], SandboxPool]):
    self._make_pool = make_pool
    self._unused: SandboxPool | None = make_pool()
    self._opened: dict[
      asyncio.AbstractEventLoop,
      tuple[SandboxPool, AsyncGenerator[None, None]],
    ] = {}

  async def run(
    self,
    code: str,
    *,
    timeout_seconds: float,
    memory_mb: int,
    stdin: str = "",
  ) -> SandboxResult:
    """Runs a program; see `Sandbox.run`."""
    return await self._pool().run(
      code, timeout_seconds=timeout_seconds, memory_mb=memory_mb, stdin=stdin
    )

  def session(self, *, memory_mb: int) -> Session:
    """Returns a session that is not entered yet; needs a running loop."""
    return self._pool().session(memory_mb=memory_mb)

  async def aclose(self) -> None:
    """Closes the pool of the running loop; the next program opens another."""
    opened = self._opened.pop(asyncio.get_running_loop(), None)
    if opened is not None:
      await opened[1].aclose()

  def _pool(self) -> SandboxPool:
    """The pool of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in self._opened:
      for other in [one for one in self._opened if one.is_closed()]:
        del self._opened[other]
      pool, self._unused = self._unused or self._make_pool(), None
      closing = _close_at_end(pool)
      # A loop ends the generators that were begun in it.
      run_inline(closing.asend(None))
      self._opened[loop] = pool, closing
    return self._opened[loop][0]


async def _close_at_end(pool: SandboxPool) -> AsyncGenerator[None, None]:
  try:
    yield
  finally:
    await pool.aclose()
