"""The sandboxes that are tested, and the processes that they leave."""

import asyncio
import contextlib
import importlib.util
import pathlib
import time

import pytest

from arl_jax.sandbox.bubblewrap_sandbox import BubblewrapSandbox
from arl_jax.sandbox.monty_sandbox import MontySandbox
from arl_jax.sandbox.sandbox import (
  Sandbox,
  SandboxResult,
  SandboxUnavailableError,
)
from arl_jax.sandbox.subprocess_sandbox import SubprocessSandbox
from arl_jax.sandbox.worker import ProcessLimits

BACKENDS = ("subprocess", "bubblewrap", "monty")
PROCESSES = ("subprocess", "bubblewrap")


def open_backend(
  name: str, marker: pathlib.Path, limits: ProcessLimits | None = None
) -> Sandbox:
  """Returns a sandbox, or skips the test with the reason why there is none.

  Args:
    name: one of `BACKENDS`.
    marker: a folder of the test; it is in the command of every process.
    limits: of processes.
  """
  if name == "monty":
    if importlib.util.find_spec("pydantic_monty") is None:
      pytest.skip("pydantic-monty is not installed")
    if limits is None:
      return MontySandbox()
    return MontySandbox(max_output_bytes=limits.max_output_bytes)
  if marker.is_dir():
    marker.chmod(0o755)
  if name == "subprocess":
    return SubprocessSandbox(import_paths=(marker,), limits=limits)
  try:
    return BubblewrapSandbox(import_paths=(marker,), limits=limits)
  except SandboxUnavailableError as error:
    pytest.skip(str(error))


def run_once(backend, marker, code, **options) -> SandboxResult:
  """Runs code in a sandbox of its own, which keeps 100,000 bytes of output."""
  options = {"timeout_seconds": 60.0, "memory_mb": 256} | options
  limits = ProcessLimits(max_output_bytes=100_000)

  async def main():
    sandbox = open_backend(backend, marker, limits)
    try:
      return await sandbox.run(code, **options)
    finally:
      await sandbox.aclose()

  return asyncio.run(main())


def processes_with(marker: pathlib.Path) -> list[int]:
  """Returns the processes that have a folder in their command."""
  found = []
  for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    with contextlib.suppress(OSError):
      if str(marker).encode() in path.read_bytes():
        found.append(int(path.parent.name))
  return found


def is_running(pid: int) -> bool:
  """Whether a process is there, and is not only waiting to be reaped."""
  try:
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
  except OSError:
    return False
  return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_until(condition, seconds: float = 30.0) -> None:
  """Waits for what another process does."""
  deadline = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < deadline, "it did not happen"
    time.sleep(0.01)
