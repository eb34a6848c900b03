"""Runs code in interpreters of their own, whatever surrounds these."""

import asyncio
from typing import Self

from arl_jax.sandbox.sandbox import (
  SandboxResult,
  SessionEndedError,
  check_limits,
)
from arl_jax.sandbox.worker import Launcher, Worker


class ProcessSandbox:
  """A `Sandbox` that gives each program an interpreter of its own.

  Args:
    launcher: starts the interpreters.
  """

  def __init__(self, launcher: Launcher):
    self._launcher = launcher

  async def run(
    self,
    code: str,
    *,
    timeout_seconds: float,
    memory_mb: int,
    stdin: str = "",
  ) -> SandboxResult:
    """Runs a program; see `Sandbox.run`."""
    check_limits(timeout_seconds=timeout_seconds, memory_mb=memory_mb)
    worker = await self.start_worker()
    return await worker.run_program(
      code, timeout_seconds=timeout_seconds, memory_mb=memory_mb, stdin=stdin
    )

  async def start_worker(self) -> Worker:
    """Returns an interpreter that is ready, for one program or a session.

    Whoever asks for it ends it, unless it runs a program.

    Raises:
      SandboxStartError: the machine could not start it.
    """
    return await Worker.start(self._launcher)

  def session(self, *, memory_mb: int) -> "ProcessSession":
    """Returns a session that is not entered yet."""
    check_limits(memory_mb=memory_mb)
    return ProcessSession(self, memory_mb=memory_mb)

  async def aclose(self) -> None:
    """Does nothing: every call ends what it has started."""


class ProcessSession:
  """A `Session` in one interpreter; calls wait for each other.

  Args:
    sandbox: starts the interpreter.
    memory_mb: mebibytes that it may use.
  """

  def __init__(self, sandbox: ProcessSandbox, *, memory_mb: int):
    self._sandbox = sandbox
    self._memory_mb = memory_mb
    self._worker: Worker | None = None
    self._turns = asyncio.Lock()
    self._ended = "the session was not entered: use `async with`"

  async def __aenter__(self) -> Self:
    self._worker = await self._sandbox.start_worker()
    self._ended = ""
    return self

  async def __aexit__(self, *error: object) -> None:
    self._ended = "the session was left"
    if self._worker is not None:
      await self._worker.end()

  async def run(
    self, code: str, *, timeout_seconds: float, stdin: str = ""
  ) -> SandboxResult:
    """Runs code after that of earlier calls; see `Session.run`."""
    check_limits(timeout_seconds=timeout_seconds)
    async with self._turns:
      if self._worker is None or self._ended:
        raise SessionEndedError(self._ended)
      try:
        result = await self._worker.run_turn(
          code,
          timeout_seconds=timeout_seconds,
          memory_mb=self._memory_mb,
          stdin=stdin,
        )
      except BaseException:
        self._ended = "a call of the session was interrupted"
        raise
      if not self._worker.alive:
        self._ended = f"an earlier call ended with status {result.status}"
      return result
