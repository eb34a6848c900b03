"""Runs programs that we wrote ourselves, in this very process."""

import builtins
import functools
import io
import time
import traceback
from typing import Any, Self

from arl_jax.sandbox.sandbox import SandboxResult, Status, check_limits


class TrustedSandbox:
  """A `Sandbox` that is none: for programs of scripted experts alone.

  Nothing limits what a program does, in time, in memory or otherwise. NEVER
  run what a policy wrote.

  A call takes some ten microseconds and never waits, so scripted episodes need
  no event loop; see `inline.run_inline`.
  """

  async def run(
    self,
    code: str,
    *,
    timeout_seconds: float,
    memory_mb: int,
    stdin: str = "",
  ) -> SandboxResult:
    """Runs a program to its end."""
    check_limits(timeout_seconds=timeout_seconds, memory_mb=memory_mb)
    return _execute(code, {}, stdin)

  def session(self, *, memory_mb: int) -> "TrustedSession":
    """Returns a session."""
    check_limits(memory_mb=memory_mb)
    return TrustedSession()

  async def aclose(self) -> None:
    """Does nothing: nothing is kept running."""


class TrustedSession:
  """Keeps the variables of one `TrustedSandbox` session."""

  def __init__(self):
    self._variables: dict[str, Any] = {}

  async def __aenter__(self) -> Self:
    return self

  async def __aexit__(self, *error: object) -> None:
    """Forgets the variables."""
    self._variables.clear()

  async def run(
    self, code: str, *, timeout_seconds: float, stdin: str = ""
  ) -> SandboxResult:
    """Runs code after that of earlier calls."""
    check_limits(timeout_seconds=timeout_seconds)
    return _execute(code, self._variables, stdin)


def _execute(code: str, variables: dict[str, Any], stdin: str) -> SandboxResult:
  printed, trace, status = io.StringIO(), "", Status.OK
  lines = iter(stdin.splitlines())

  def read(prompt: object = "") -> str:
    printed.write(str(prompt))
    for line in lines:
      return line
    raise EOFError("EOF when reading a line")

  known = vars(builtins) | {
    "input": read,
    "print": functools.partial(print, file=printed),
  }
  variables |= {"__name__": "__main__", "__builtins__": known}
  start = time.perf_counter()
  try:
    exec(compile(code, "<program>", "exec"), variables)
  except Exception as error:
    status, trace = Status.ERROR, "".join(traceback.format_exception(error))
  return SandboxResult(
    status=status,
    stdout=printed.getvalue(),
    stderr=trace,
    seconds=time.perf_counter() - start,
  )
