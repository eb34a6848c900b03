"""Holds one child process: its pipes, its answers and its end."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
import contextlib
import os
import signal
import socket
import subprocess
import time

from arl_jax.sandbox.sandbox import SandboxStartError

_CHUNK_BYTES = 1 << 16
_MAX_ANSWER_BYTES = 256
_READY = b"ready\n"


class ChildProcess:
  """A child that leads a process group, and is reaped when it ends.

  Everything happens on the event loop, in callbacks of descriptors: no thread
  waits, and a kill takes effect at once. The group is killed before its leader
  is reaped, so its number cannot belong to anybody else by then.

  Start one with `ChildProcess.start`, inside a running loop.

  Attributes:
    pid: of the leader.
    answer: what came over the channel and was not taken yet.
    exit_code: None while it runs; negative for a signal.
    overflown: it has written more than is kept.
  """

  def __init__(
    self,
    process: subprocess.Popen[bytes],
    channel: socket.socket,
    *,
    max_output_bytes: int,
    kill: Callable[[], None] | None,
  ):
    assert process.stdout is not None
    assert process.stderr is not None
    self._process = process
    self._channel = channel
    self._kill = kill
    self._max_output_bytes = max_output_bytes
    self._pipes = {"stdout": process.stdout, "stderr": process.stderr}
    self._outputs = {name: bytearray() for name in self._pipes}
    self._changed = asyncio.Event()
    self._loop = asyncio.get_running_loop()
    self._pidfd = os.pidfd_open(process.pid)
    self.pid = process.pid
    self.answer = b""
    self.exit_code: int | None = None
    self.overflown = False
    self.channel_closed = False
    self._loop.add_reader(self._pidfd, self._on_exit)
    self._loop.add_reader(channel, self._read_channel)
    for name, pipe in self._pipes.items():
      os.set_blocking(pipe.fileno(), False)
      self._loop.add_reader(pipe, self._read_pipe, name)

  @classmethod
  def start(
    cls,
    command: Callable[[int], Sequence[str]],
    *,
    environment: Mapping[str, str],
    folder: str | None,
    max_output_bytes: int,
    pass_fds: Sequence[int] = (),
    kill: Callable[[int], None] | None = None,
  ) -> "ChildProcess":
    """Starts a child in a session, and a process group, of its own.

    Args:
      command: makes the command of the number of the child's channel.
      environment: all variables that it gets.
      folder: where it starts.
      max_output_bytes: kept of a turn, both streams together.
      pass_fds: more descriptors for it.
      kill: kills it more thoroughly than a signal to its group; gets its pid.

    Raises:
      SandboxStartError: the machine could not start it.
    """
    ours, theirs = socket.socketpair()
    process = None
    try:
      ours.setblocking(False)
      process = subprocess.Popen(
        command(theirs.fileno()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
        pass_fds=(theirs.fileno(), *pass_fds),
      )
      pid = process.pid
      return cls(
        process,
        ours,
        max_output_bytes=max_output_bytes,
        kill=None if kill is None else lambda: kill(pid),
      )
    except OSError as error:
      ours.close()
      if process is not None:
        process.kill()
        process.wait()
      raise SandboxStartError(
        f"no interpreter could be started: {error}"
      ) from error
    finally:
      theirs.close()

  @property
  def exited(self) -> bool:
    """Whether it has ended, and is reaped."""
    return self.exit_code is not None

  @property
  def answered(self) -> bool:
    """Whether a whole answer came, or none can come any more."""
    return (
      b"\n" in self.answer
      or len(self.answer) > _MAX_ANSWER_BYTES
      or self.channel_closed
    )

  async def wait_until(
    self, condition: Callable[[], bool], deadline: float
  ) -> bool:
    """Waits for a condition on the attributes.

    Args:
      condition: is asked whenever something changes.
      deadline: of `time.perf_counter`.

    Returns:
      False if the deadline passed first.
    """
    try:
      async with asyncio.timeout(deadline - time.perf_counter()):
        while not condition():
          self._changed.clear()
          await self._changed.wait()
    except TimeoutError:
      return condition()
    return True

  async def wait_ready(self, timeout_seconds: float) -> None:
    """Waits until the interpreter takes requests.

    Raises:
      SandboxStartError: it ended or was too slow; it is killed by then.
    """
    now = time.perf_counter()
    in_time = await self.wait_until(
      lambda: self.answered or self.exited, now + timeout_seconds
    )
    if self.take_answer() == _READY and not self.exited:
      return
    if in_time:  # its channel closes a moment before its exit
      await self.wait_until(lambda: self.exited, now + timeout_seconds)
    reason = (
      f"did not start within {timeout_seconds:g} seconds"
      if self.exit_code is None
      else f"ended with {self.exit_code} before it started"
    )
    await self.end()
    text = self.take_output()[1].strip()
    raise SandboxStartError(f"an interpreter {reason}. {text}".strip())

  async def send(self, request: bytes, deadline: float) -> None:
    """Sends a request; whether it arrives shows in what comes back."""
    with contextlib.suppress(OSError, TimeoutError):
      async with asyncio.timeout(deadline - time.perf_counter()):
        await self._loop.sock_sendall(self._channel, request)

  def take_answer(self) -> bytes:
    """Returns what came over the channel, once."""
    answer, self.answer = self.answer, b""
    return answer

  def take_output(self) -> tuple[str, str]:
    """Returns what was written to both streams since it was last asked."""
    if not self.exited:
      for name in self._pipes:
        self._read_pipe(name)
    texts = [
      bytes(output).decode("utf-8", "replace")
      for output in self._outputs.values()
    ]
    for output in self._outputs.values():
      output.clear()
    return texts[0], texts[1]

  def kill(self) -> None:
    """Kills it; `wait_until` its exit to know that it is reaped."""
    if self.exited:
      return
    if self._kill is None:
      self._kill_group()
    else:
      self._kill()

  async def end(self) -> None:
    """Kills it and waits until it is reaped, even where that is cancelled."""
    self.kill()
    try:
      await self.wait_until(lambda: self.exited, time.perf_counter() + 2)
      if not self.exited:
        self._kill_group()
        await self.wait_until(lambda: self.exited, time.perf_counter() + 60)
    finally:
      # Cancelled once more: whoever is killed needs no more than an instant.
      if not self.exited:
        self._kill_group()
        with contextlib.suppress(subprocess.TimeoutExpired):
          self._process.wait(10)
        self._on_exit()

  def _kill_group(self) -> None:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self.pid, signal.SIGKILL)

  def _on_exit(self) -> None:
    if self.exited:
      return
    self._kill_group()
    for name in self._pipes:
      self._read_pipe(name)
    self._read_channel()
    exit_code = self._process.poll()
    # A process that even a kill did not end is left to the system.
    self.exit_code = -signal.SIGKILL if exit_code is None else exit_code
    self._loop.remove_reader(self._pidfd)
    self._loop.remove_reader(self._channel)
    os.close(self._pidfd)
    self._channel.close()
    for pipe in self._pipes.values():
      self._loop.remove_reader(pipe)
      pipe.close()
    self._changed.set()

  def _read_channel(self) -> None:
    try:
      part = self._channel.recv(_CHUNK_BYTES)
    except BlockingIOError:
      return
    except OSError:
      part = b""
    self.answer += part
    if not part or len(self.answer) > _MAX_ANSWER_BYTES:
      self.channel_closed = True
      self._loop.remove_reader(self._channel)
    self._changed.set()

  def _read_pipe(self, name: str) -> None:
    """Reads what is there, up to what is kept and a byte more."""
    pipe = self._pipes[name]
    while True:
      room = self._max_output_bytes - sum(map(len, self._outputs.values()))
      try:
        part = os.read(pipe.fileno(), min(_CHUNK_BYTES, room + 1))
      except BlockingIOError:
        return
      if len(part) > room:
        part, self.overflown = part[:room], True
      self._outputs[name] += part
      if not part or self.overflown:
        self._loop.remove_reader(pipe)
        self._changed.set()
        return
