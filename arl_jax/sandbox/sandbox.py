"""What a sandbox is asked, and what it answers."""

import dataclasses
import enum
import math
from typing import Protocol, Self

MIN_MEMORY_MB = 32


class Status(enum.StrEnum):
  """How a piece of code ended.

  Attributes:
    OK: it ran to its end, or exited with 0 or without a code.
    ERROR: it raised an exception, or exited with another code or a text.
    TIMEOUT: it was ended when its time was over.
    MEMORY: it wanted more memory than it may have.
    OUTPUT_LIMIT: it was ended when it had written more than is kept.
    UNSUPPORTED: it is Python, but uses what this sandbox does not have. Says
      nothing about the code; do not count it against a policy.
    CRASH: its interpreter ended in its midst: by a signal, by `os._exit` with
      whatever code, or by becoming another program.
  """

  OK = "ok"
  ERROR = "error"
  TIMEOUT = "timeout"
  MEMORY = "memory"
  OUTPUT_LIMIT = "output_limit"
  UNSUPPORTED = "unsupported"
  CRASH = "crash"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SandboxResult:
  """What became of a piece of code.

  Attributes:
    status: how it ended.
    stdout: what it wrote; bytes that are not UTF-8 are replaced.
    stderr: the same; here is the traceback of an exception.
    seconds: how long it ran, without the start of an interpreter and without
      waiting for a turn.
  """

  status: Status
  stdout: str
  stderr: str
  seconds: float


class SandboxUnavailableError(RuntimeError):
  """The isolation that was asked for cannot be had on this machine."""


class SandboxStartError(RuntimeError):
  """An interpreter did not start: the machine's failure, not the code's."""


class SessionEndedError(RuntimeError):
  """The interpreter of a session is gone, with all its variables."""


class Session(Protocol):
  """Keeps variables from one piece of code to the next.

  An async context manager: entering starts the interpreter, leaving ends it.
  """

  async def __aenter__(self) -> Self:
    """Starts the interpreter."""
    ...

  async def __aexit__(self, *error: object) -> None:
    """Ends the interpreter."""
    ...

  async def run(
    self, code: str, *, timeout_seconds: float, stdin: str = ""
  ) -> SandboxResult:
    """Runs code after that of earlier calls.

    The statuses TIMEOUT, OUTPUT_LIMIT and CRASH end the session; so may MEMORY.

    Raises:
      SessionEndedError: an earlier call ended the session. Open another one,
        and tell the policy that its variables are gone.
    """
    ...


class Sandbox(Protocol):
  """Runs Python code; any number of calls at once."""

  async def run(
    self,
    code: str,
    *,
    timeout_seconds: float,
    memory_mb: int,
    stdin: str = "",
  ) -> SandboxResult:
    """Runs a program in an interpreter of its own.

    Whatever the code does is a result. Being cancelled kills it at once.

    Args:
      code: the program.
      timeout_seconds: wall time that it may take.
      memory_mb: mebibytes that it may use, its interpreter included.
      stdin: what it can read from its standard input.

    Raises:
      ValueError: a limit is out of its range.
      SandboxStartError: the machine could not start it.
    """
    ...

  def session(self, *, memory_mb: int) -> Session:
    """Returns a session that is not entered yet."""
    ...

  async def aclose(self) -> None:
    """Ends what the sandbox keeps running; `contextlib.aclosing` calls it."""
    ...


def check_limits(
  *, timeout_seconds: float | None = None, memory_mb: int | None = None
) -> None:
  """Raises ValueError for a limit that cannot be meant."""
  if timeout_seconds is not None and not (
    math.isfinite(timeout_seconds) and timeout_seconds > 0
  ):
    raise ValueError(
      f"timeout_seconds is {timeout_seconds}; expected a finite number above 0"
    )
  if memory_mb is not None and memory_mb < MIN_MEMORY_MB:
    raise ValueError(
      f"memory_mb is {memory_mb}; expected {MIN_MEMORY_MB} or more, which an"
      " interpreter needs for itself"
    )
