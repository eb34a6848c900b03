"""Runs a subset of Python in an interpreter without files and network."""

import asyncio
from collections.abc import Callable
import concurrent.futures
import contextlib
import os
import signal
import threading
import time
from typing import Any, Self, TypeVar

from arl_jax.sandbox.monty_errors import monty_status
from arl_jax.sandbox.sandbox import (
  SandboxResult,
  SandboxStartError,
  SandboxUnavailableError,
  SessionEndedError,
  Status,
  check_limits,
)
from arl_jax.sandbox.worker import MEBIBYTE

# Of lines that a program reads and times that it sleeps.
_MAX_HOST_CALLS = 1_000_000
# The interpreter keeps the time of a program; this is for when it does not.
_GRACE_SECONDS = 0.25
T = TypeVar("T")
_ENDS_SESSION = (Status.TIMEOUT, Status.OUTPUT_LIMIT, Status.CRASH)


class MontySandbox:
  """Runs each program in Monty, an interpreter written in Rust.

  A call takes a tenth of a millisecond. The code has no files, network,
  processes, signals or variables of the environment, because the interpreter
  has none. It has no class inheritance, generators and `del` either, and a part
  of the standard library; what it lacks has the status UNSUPPORTED.

  `input()` reads `stdin`; there is no `sys.stdin`, and `exit`, `sys.exit` and
  `os._exit` are unsupported.

  Not Monty's interface for asyncio: its threads can outlive the interpreter,
  and the process then aborts when it ends. So calls wait in threads.

  Args:
    max_processes: interpreters at once; further calls wait for one, in order.
      A session has one from when it is entered until it is left.
    max_output_bytes: kept of stdout and stderr together; more ends the code.

  Raises:
    SandboxUnavailableError: the package is not installed.
  """

  def __init__(
    self, *, max_processes: int = 4, max_output_bytes: int = MEBIBYTE
  ):
    for name, value in (
      ("max_processes", max_processes),
      ("max_output_bytes", max_output_bytes),
    ):
      if value < 1:
        raise ValueError(f"{name} is {value}; expected 1 or more")
    try:
      import pydantic_monty

      self._monty: Any = pydantic_monty
      self._pool = self._monty.Monty(
        max_processes=max_processes, min_processes=0
      )
      self._pool.__enter__()
      with self._pool.checkout() as session:  # a binary may be missing
        session.feed_run("1")
    except (ImportError, OSError, RuntimeError) as error:
      raise SandboxUnavailableError(
        f"MontySandbox cannot start: {error}. Install it:"
        " pip install 'arl-jax[monty]'"
      ) from error
    self._max_output_bytes = max_output_bytes
    self._turns = asyncio.Semaphore(max_processes)
    self._threads = concurrent.futures.ThreadPoolExecutor(
      max_processes, thread_name_prefix="monty"
    )

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
    session = MontySession(
      self, memory_mb=memory_mb, max_seconds=timeout_seconds
    )
    async with session:
      return await session.run(
        code, timeout_seconds=timeout_seconds, stdin=stdin
      )

  def session(self, *, memory_mb: int) -> "MontySession":
    """Returns a session that is not entered yet."""
    check_limits(memory_mb=memory_mb)
    return MontySession(self, memory_mb=memory_mb)

  async def aclose(self) -> None:
    """Ends the interpreters."""
    self._threads.shutdown(wait=False)
    await asyncio.to_thread(self._pool.__exit__, None, None, None)

  def _checkout(self, memory_mb: int, max_seconds: float | None) -> Any:
    """Returns Monty's session, not entered."""
    return self._pool.checkout(
      limits={
        "max_memory": memory_mb * MEBIBYTE,
        "max_feed_duration_secs": max_seconds,
        "max_suspensions": _MAX_HOST_CALLS,
      },
      os_policy={"sleep": "call_host", "random_start": {"seed": 0}},
    )

  def _call(self, code: str, stdin: str, timeout_seconds: float) -> "_Call":
    return _Call(
      self._monty,
      code,
      stdin,
      timeout_seconds=timeout_seconds,
      max_output_bytes=self._max_output_bytes,
    )

  async def _work(
    self, call: "_Call", work: Callable[[], T], timeout_seconds: float | None
  ) -> T:
    """Waits for work in a thread, which stopping the call ends soon."""
    future = asyncio.get_running_loop().run_in_executor(self._threads, work)
    try:
      done, _ = await asyncio.wait({future}, timeout=timeout_seconds)
      if not done:
        call.stop()
        await asyncio.wait({future})
    except asyncio.CancelledError:
      call.stop()
      await asyncio.wait({future})
      raise
    try:
      return future.result()
    except (self._monty.MontyError, OSError, RuntimeError) as error:
      raise SandboxStartError(f"Monty did not start: {error}") from error


class MontySession:
  """A `Session` in one interpreter of Monty; calls wait for each other.

  Args:
    sandbox: has the interpreters.
    memory_mb: mebibytes that it may use.
    max_seconds: of each call, kept by the interpreter, which then lives on;
      for longer calls and without it, a call that is too long is killed.
  """

  def __init__(
    self,
    sandbox: MontySandbox,
    *,
    memory_mb: int,
    max_seconds: float | None = None,
  ):
    self._sandbox = sandbox
    self._grace = 0.0 if max_seconds is None else _GRACE_SECONDS
    self._inner = sandbox._checkout(memory_mb, max_seconds)
    self._turns = asyncio.Lock()
    self._ended = "the session was not entered: use `async with`"

  async def __aenter__(self) -> Self:
    await self._sandbox._turns.acquire()
    call = self._sandbox._call("", "", 0)
    try:
      await self._sandbox._work(call, self._inner.__enter__, None)
    except BaseException:
      # Cancelled, it may have got an interpreter nevertheless.
      self._sandbox._threads.submit(self._inner.__exit__, None, None, None)
      self._sandbox._turns.release()
      raise
    self._ended = ""
    return self

  async def __aexit__(self, *error: object) -> None:
    self._ended = "the session was left"
    call = self._sandbox._call("", "", 0)
    try:
      await self._sandbox._work(
        call, lambda: self._inner.__exit__(None, None, None), None
      )
    finally:
      self._sandbox._turns.release()

  async def run(
    self, code: str, *, timeout_seconds: float, stdin: str = ""
  ) -> SandboxResult:
    """Runs code after that of earlier calls; see `Session.run`."""
    check_limits(timeout_seconds=timeout_seconds)
    async with self._turns:
      if self._ended:
        raise SessionEndedError(self._ended)
      call = self._sandbox._call(code, stdin, timeout_seconds)
      try:
        result = await self._sandbox._work(
          call,
          lambda: call.feed(self._inner),
          timeout_seconds + self._grace,
        )
      except BaseException:
        self._ended = "a call of the session was interrupted"
        raise
      if result.status in _ENDS_SESSION:
        self._ended = f"an earlier call ended with status {result.status}"
      return result


class _Call:
  """One piece of code, in a thread; `stop` ends it from another."""

  def __init__(
    self,
    monty: Any,
    code: str,
    stdin: str,
    *,
    timeout_seconds: float,
    max_output_bytes: int,
  ):
    self._monty = monty
    self._code = code
    self._lines = iter(stdin.splitlines())
    self._timeout_seconds = timeout_seconds
    self._room = max_output_bytes
    self._printed: dict[str, list[str]] = {"stdout": [], "stderr": []}
    self._lock = threading.Lock()
    self._stopped = threading.Event()
    self._pid = 0

  def stop(self) -> None:
    """Kills the interpreter, if it is running the code."""
    with self._lock:
      self._stopped.set()
      if self._pid:
        with contextlib.suppress(ProcessLookupError):
          os.kill(self._pid, signal.SIGKILL)

  def feed(self, session: Any) -> SandboxResult:
    """Runs the code in a session of Monty that is entered."""
    monty = self._monty
    start = time.perf_counter()
    self._deadline = start + self._timeout_seconds
    status, trace = Status.OK, ""
    with self._lock:
      if self._stopped.is_set():
        return SandboxResult(
          status=Status.TIMEOUT, stdout="", stderr="", seconds=0.0
        )
      self._pid = session.worker_pid or 0
    try:
      session.feed_run(
        # Text of a policy may hold what is no Unicode.
        self._code.encode("utf-8", "replace").decode(),
        print_callback=self._print,
        external_lookup={"input": self._input},
        os=self._ask_system,
      )
    except monty.MontyCrashedError as error:
      late = self._stopped.is_set() or error.timed_out
      status = Status.TIMEOUT if late else Status.CRASH
    except monty.MontyError as error:
      status = monty_status(error)
      trace = "" if status is Status.OK else error.display() + "\n"
      if self._stopped.is_set():
        status = Status.TIMEOUT
    finally:
      with self._lock:
        self._pid = 0
    if self._room < 0:
      status = Status.OUTPUT_LIMIT
    return SandboxResult(
      status=status,
      stdout="".join(self._printed["stdout"]),
      stderr="".join(self._printed["stderr"]) + trace,
      seconds=time.perf_counter() - start,
    )

  def _print(self, stream: str, text: str) -> None:
    """Keeps what is printed, and stops a program that prints too much."""
    if self._room < 0:
      return
    data = text.encode()
    kept = data[: self._room].decode("utf-8", "ignore")
    self._printed[stream].append(kept)
    self._room -= len(data)
    if self._room < 0:
      self.stop()

  def _input(self, *prompt: object) -> str:
    self._print("stdout", "".join(map(str, prompt)))
    for line in self._lines:
      return line
    raise EOFError("EOF when reading a line")

  def _ask_system(self, *, name: str, args: tuple[Any, ...], **_: Any) -> Any:
    """Answers what Monty asks its host."""
    if name.endswith("sleep"):
      rest = self._deadline - time.perf_counter()
      if args and args[0] > rest:
        self._stopped.wait(max(rest, 0))
        raise TimeoutError("sleep limit exceeded")
      self._stopped.wait(args[0] if args else 0)
      return None
    if name == "os.environ":
      return {}
    return self._monty.NOT_HANDLED
