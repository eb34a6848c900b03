"""Bounds what runs at once, and starts interpreters ahead of their use."""

import asyncio
import collections
import contextlib
from typing import Any, Protocol, Self, runtime_checkable

from arl_jax.sandbox.sandbox import (
  Sandbox,
  SandboxResult,
  SandboxStartError,
  Session,
  check_limits,
)
from arl_jax.sandbox.worker import Worker


@runtime_checkable
class _StartsWorkers(Protocol):
  async def start_worker(self) -> Worker: ...


class SandboxPool:
  """A `Sandbox` that runs at most so much at once; others wait in order.

  An interpreter that was started ahead of its use has still run nothing, and
  runs one program only: nothing of a program reaches the next one. It saves the
  time of the start, not its work; so it helps where calls come in bursts.

  An async context manager; leaving it ends the interpreters that wait, and the
  sandbox.

  Args:
    sandbox: runs the code; the pool closes it.
    max_concurrent: programs, and calls of sessions, that run at once. About the
      number of processors; more of them make each slower.
    max_sessions: sessions that are open at once. One that waits for its next
      call runs nothing, but has a process and its memory.
    num_warm: interpreters that wait for a program, for sandboxes that start
      processes.

  Example:
    async with SandboxPool(SubprocessSandbox(), max_concurrent=4) as pool:
      result = await pool.run("print(1)", timeout_seconds=5, memory_mb=256)
  """

  def __init__(
    self,
    sandbox: Sandbox,
    *,
    max_concurrent: int,
    max_sessions: int = 64,
    num_warm: int = 0,
  ):
    for name, value, least in (
      ("max_concurrent", max_concurrent, 1),
      ("max_sessions", max_sessions, 1),
      ("num_warm", num_warm, 0),
    ):
      if value < least:
        raise ValueError(f"{name} is {value}; expected {least} or more")
    if num_warm and not isinstance(sandbox, _StartsWorkers):
      raise ValueError(
        f"num_warm is {num_warm}, but {type(sandbox).__name__} starts no"
        " processes for programs; expected 0"
      )
    self._sandbox = sandbox
    self._num_warm = num_warm
    self._turns = asyncio.Semaphore(max_concurrent)
    self._sessions = asyncio.Semaphore(max_sessions)
    self._warm: collections.deque[Worker] = collections.deque()
    self._starting: set[asyncio.Task[None]] = set()
    self._closed = False

  async def __aenter__(self) -> Self:
    self._refill()
    return self

  async def __aexit__(self, *error: object) -> None:
    await self.aclose()

  async def run(
    self,
    code: str,
    *,
    timeout_seconds: float,
    memory_mb: int,
    stdin: str = "",
  ) -> SandboxResult:
    """Runs a program when it is its turn; see `Sandbox.run`.

    Waiting is not counted in `timeout_seconds`.
    """
    check_limits(timeout_seconds=timeout_seconds, memory_mb=memory_mb)
    self._check_open()
    limits: dict[str, Any] = {
      "timeout_seconds": timeout_seconds,
      "memory_mb": memory_mb,
      "stdin": stdin,
    }
    async with self._turns:
      self._check_open()
      while self._warm:
        worker = self._warm.popleft()
        self._refill()
        if worker.alive:
          return await worker.run_program(code, **limits)
        await worker.end()
      self._refill()
      return await self._sandbox.run(code, **limits)

  def session(self, *, memory_mb: int) -> Session:
    """Returns a session that is not entered yet; entering it may wait."""
    self._check_open()
    return _PooledSession(self._sandbox.session(memory_mb=memory_mb), self)

  async def aclose(self) -> None:
    """Ends the interpreters that wait, and the sandbox."""
    self._closed = True
    for task in self._starting:
      task.cancel()
    await asyncio.gather(*self._starting, return_exceptions=True)
    while self._warm:
      await self._warm.popleft().end()
    await self._sandbox.aclose()

  def _check_open(self) -> None:
    if self._closed:
      raise RuntimeError("the pool is closed")

  def _refill(self) -> None:
    """Starts interpreters until enough wait or are about to."""
    missing = self._num_warm - len(self._warm) - len(self._starting)
    for _ in range(0 if self._closed else missing):
      task = asyncio.create_task(self._start_worker())
      self._starting.add(task)
      task.add_done_callback(self._starting.discard)

  async def _start_worker(self) -> None:
    assert isinstance(self._sandbox, _StartsWorkers)
    # A call that finds none starts its own, and says why that fails.
    with contextlib.suppress(SandboxStartError):
      self._warm.append(await self._sandbox.start_worker())


class _PooledSession:
  """A session whose calls take turns with all others of the pool."""

  def __init__(self, session: Session, pool: SandboxPool):
    self._session = session
    self._pool = pool

  async def __aenter__(self) -> Self:
    await self._pool._sessions.acquire()
    try:
      await self._session.__aenter__()
    except BaseException:
      self._pool._sessions.release()
      raise
    return self

  async def __aexit__(self, *error: object) -> None:
    try:
      await self._session.__aexit__(*error)
    finally:
      self._pool._sessions.release()

  async def run(
    self, code: str, *, timeout_seconds: float, stdin: str = ""
  ) -> SandboxResult:
    check_limits(timeout_seconds=timeout_seconds)
    async with self._pool._turns:
      return await self._session.run(
        code, timeout_seconds=timeout_seconds, stdin=stdin
      )
