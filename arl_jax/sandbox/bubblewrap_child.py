"""Ends what bwrap has started, and sees that it is over."""

import asyncio
from collections.abc import Iterator
import contextlib
import json
import os
import pathlib
import signal

# Longer than a killed process needs.
_END_SECONDS = 10.0


class BubblewrapChild:
  """The child of one bwrap, which is the first process of its namespace.

  bwrap reaps it when it is killed, but does not wait for it when it ends; and
  nobody may be there to reap whom a killed bwrap leaves, as in a container
  whose first process is this one.

  Args:
    info_fd: where bwrap writes the number of its child; closed at the end.
  """

  def __init__(self, info_fd: int):
    os.set_blocking(info_fd, False)
    self._info_fd = info_fd
    self._child = 0

  def kill(self, pid: int) -> None:
    """Kills the child of bwrap, whose number is `pid`, or bwrap itself."""
    child = self._child_pid()
    if not child:  # it has not come that far
      with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
      return
    with contextlib.suppress(OSError), _pidfd(child) as pidfd:
      # A number may have been given to somebody else meanwhile.
      stat = pathlib.Path(f"/proc/{child}/stat").read_text()
      if int(stat.rpartition(")")[2].split()[1]) == pid:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)

  async def close(self) -> None:
    """Waits for the child's end, a moment after that of bwrap."""
    child = self._child_pid()
    os.close(self._info_fd)
    if not child:
      return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    with contextlib.suppress(OSError, TimeoutError), _pidfd(child) as pidfd:
      loop.add_reader(pidfd, ended.set)
      try:
        async with asyncio.timeout(_END_SECONDS):
          await ended.wait()
      finally:
        loop.remove_reader(pidfd)
    _reap(child)

  def _child_pid(self) -> int:
    """Returns the number of the child, 0 as long as there is none."""
    if not self._child:
      with contextlib.suppress(OSError, ValueError):
        self._child = json.loads(os.read(self._info_fd, 4096))["child-pid"]
    return self._child


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int]:
  pidfd = os.pidfd_open(pid)
  try:
    yield pidfd
  finally:
    os.close(pidfd)


def _reap(pid: int) -> None:
  with contextlib.suppress(ChildProcessError):
    os.waitpid(pid, os.WNOHANG)
