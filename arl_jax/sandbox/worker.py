"""One interpreter, from its start to its end, and what it is asked to run."""

import dataclasses
import math
import secrets
import signal
import time
from typing import Protocol, Self

from arl_jax.sandbox.child_process import ChildProcess
from arl_jax.sandbox.sandbox import SandboxResult, Status

MEBIBYTE = 1 << 20
# bwrap exits with 128 and the number of the signal that ended its command.
_SHELL_SIGNALS = range(129, 193)
# A fallback for a host that is gone: time itself is kept by the host.
_SPARE_CPU_SECONDS = 1
# Code that has closed its end of the channel may live on.
_EXIT_SECONDS = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessLimits:
  """What an interpreter may use besides time and memory.

  Attributes:
    max_output_bytes: kept of stdout and stderr together; more ends the code.
    disk_mb: mebibytes of a file, and of all files where files are in memory.
    start_timeout_seconds: time for an interpreter to start. It is not counted
      as the code's.
  """

  max_output_bytes: int = MEBIBYTE
  disk_mb: int = 32
  start_timeout_seconds: float = 60.0

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      if not getattr(self, field.name) > 0:
        raise ValueError(
          f"{field.name} is {getattr(self, field.name)}; expected more than 0"
        )


class Launcher(Protocol):
  """Starts interpreters, and removes what they leave.

  Attributes:
    limits: of each.
    max_tasks: threads that the user of one may have; 0 for no bound.
  """

  limits: ProcessLimits
  max_tasks: int

  def start(self) -> ChildProcess:
    """Starts one, which will say when it is ready.

    Raises:
      SandboxStartError: the machine could not start it.
    """
    ...

  async def remove(self, child: ChildProcess) -> None:
    """Removes what a child that has ended left behind."""
    ...


class Worker:
  """An interpreter that waits for one program, or for one after the other."""

  def __init__(self, child: ChildProcess, launcher: Launcher):
    self._child = child
    self._launcher = launcher

  @classmethod
  async def start(cls, launcher: Launcher) -> Self:
    """Starts one and waits until it is ready.

    Raises:
      SandboxStartError: it could not be started, or not in time.
    """
    worker = cls(launcher.start(), launcher)
    try:
      await worker._child.wait_ready(launcher.limits.start_timeout_seconds)
    except BaseException:
      await worker.end()
      raise
    return worker

  @property
  def alive(self) -> bool:
    """Whether it can run anything."""
    return not self._child.exited

  async def end(self) -> None:
    """Kills it, reaps it and removes what it left."""
    try:
      await self._child.end()
    finally:
      await self._launcher.remove(self._child)

  async def run_program(
    self, code: str, *, timeout_seconds: float, memory_mb: int, stdin: str
  ) -> SandboxResult:
    """Runs one program until the process ends, and ends the worker.

    Threads and exit handlers of the program are waited for, within its time.
    """
    child = self._child
    start = time.perf_counter()
    deadline = start + timeout_seconds
    token = secrets.token_hex(16).encode()
    try:
      await child.send(
        self._request(token, code, timeout_seconds, memory_mb, stdin, last=1),
        deadline,
      )
      in_time = await child.wait_until(
        lambda: child.exited or child.overflown, deadline
      )
      seconds = time.perf_counter() - start
      status = None if in_time else Status.TIMEOUT
      if child.exit_code is not None:
        status = _status_at_exit(child.exit_code, child.take_answer(), token)
    finally:
      await self.end()
    stdout, stderr = child.take_output()
    if child.overflown or status is None:
      status = Status.OUTPUT_LIMIT
    return SandboxResult(
      status=status, stdout=stdout, stderr=stderr, seconds=seconds
    )

  async def run_turn(
    self, code: str, *, timeout_seconds: float, memory_mb: int, stdin: str
  ) -> SandboxResult:
    """Runs code in the interpreter that earlier turns left.

    The worker has ended afterwards unless the code answered as it should.
    """
    child = self._child
    start = time.perf_counter()
    deadline = start + timeout_seconds
    token = secrets.token_hex(16).encode()
    try:
      # What came without being asked for can only be forged.
      broken = bool(child.take_answer()) or child.channel_closed
      if not broken:
        await child.send(
          self._request(token, code, timeout_seconds, memory_mb, stdin, last=0),
          deadline,
        )
      in_time = broken or await child.wait_until(
        lambda: child.exited or child.overflown or child.answered, deadline
      )
      seconds = time.perf_counter() - start
      answer = None
      if child.channel_closed and not broken:
        # Its exit, which says why, comes a moment after.
        await child.wait_until(
          lambda: child.exited, time.perf_counter() + _EXIT_SECONDS
        )
      if in_time and not child.exited:
        answer = _status_in(child.take_answer(), token)
      stdout, stderr = child.take_output()
      if answer is None or child.overflown:
        await self.end()
        more = child.take_output()
        stdout, stderr = stdout + more[0], stderr + more[1]
    except BaseException:
      await self.end()
      raise
    if child.overflown:
      status = Status.OUTPUT_LIMIT
    elif not in_time:
      status = Status.TIMEOUT
    elif answer is not None:
      status = answer
    else:
      status = Status.CRASH
      if child.exit_code is not None and _signal(child.exit_code) == (
        signal.SIGXCPU
      ):
        status = Status.TIMEOUT
    return SandboxResult(
      status=status, stdout=stdout, stderr=stderr, seconds=seconds
    )

  def _request(
    self,
    token: bytes,
    code: str,
    timeout_seconds: float,
    memory_mb: int,
    stdin: str,
    *,
    last: int,
  ) -> bytes:
    """Returns a request in the form that child.py reads."""
    # Text of a policy may hold what is no Unicode; the compiler refuses it.
    body = code.encode("utf-8", "surrogatepass")
    given = stdin.encode("utf-8", "surrogatepass")
    numbers = (
      len(body),
      len(given),
      math.ceil(timeout_seconds) + _SPARE_CPU_SECONDS,
      memory_mb * MEBIBYTE,
      self._launcher.limits.disk_mb * MEBIBYTE,
      self._launcher.max_tasks,
      last,
    )
    header = b"%s %s\n" % (token, " ".join(map(str, numbers)).encode())
    return header + body + given


def _status_in(answer: bytes, token: bytes) -> Status | None:
  """Returns the status in an answer, None if it is no answer to `token`."""
  for status in (Status.OK, Status.ERROR, Status.MEMORY):
    if answer == b"%s %s\n" % (token, status.encode()):
      return status
  return None


def _signal(exit_code: int) -> int:
  """Returns the signal that ended a process, 0 if none did."""
  if exit_code < 0:
    return -exit_code
  return exit_code - 128 if exit_code in _SHELL_SIGNALS else 0


def _status_at_exit(exit_code: int, answer: bytes, token: bytes) -> Status:
  """Returns how a program ended that nobody killed."""
  said = _status_in(answer, token)
  # What became of its code is said; exit handlers and threads come later.
  if said is Status.ERROR or said is Status.MEMORY:
    return said
  if number := _signal(exit_code):
    return Status.TIMEOUT if number == signal.SIGXCPU else Status.CRASH
  if said is None:  # ended from within, as by `os._exit`
    return Status.CRASH
  return Status.OK if exit_code == 0 else Status.ERROR
