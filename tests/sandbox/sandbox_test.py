"""What every sandbox refuses, and how calls are cancelled."""

import asyncio
import os
import pathlib

import pytest

from arl_jax.sandbox.sandbox import Status, check_limits
from arl_jax.sandbox.worker import ProcessLimits
from tests.sandbox.backends import (
  BACKENDS,
  PROCESSES,
  open_backend,
  processes_with,
  wait_until,
)


def children() -> dict[int, str]:
  """Returns the state of each child of this process."""
  found = {}
  for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
    try:
      fields = path.read_text().rpartition(")")[2].split()
    except OSError:
      continue
    if int(fields[1]) == os.getpid():
      found[int(path.parent.name)] = fields[0]
  return found


@pytest.mark.parametrize(
  ("limits", "message"),
  [
    ({"timeout_seconds": 0}, "timeout_seconds is 0; expected a finite"),
    ({"timeout_seconds": -1.0}, "timeout_seconds is -1.0"),
    ({"timeout_seconds": float("nan")}, "timeout_seconds is nan"),
    ({"timeout_seconds": float("inf")}, "timeout_seconds is inf"),
    ({"memory_mb": 31}, "memory_mb is 31; expected 32 or more"),
  ],
)
def test_limits_that_cannot_be_meant_are_refused(limits, message):
  with pytest.raises(ValueError, match=message):
    check_limits(**limits)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_sandbox_checks_its_limits(backend, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    with pytest.raises(ValueError, match="timeout_seconds is 0"):
      await sandbox.run("1", timeout_seconds=0, memory_mb=64)
    with pytest.raises(ValueError, match="memory_mb is 1;"):
      await sandbox.run("1", timeout_seconds=1, memory_mb=1)
    with pytest.raises(ValueError, match="memory_mb is 1;"):
      sandbox.session(memory_mb=1)
    await sandbox.aclose()

  asyncio.run(main())


def test_limits_of_processes_are_checked():
  with pytest.raises(ValueError, match="disk_mb is 0; expected more than 0"):
    ProcessLimits(disk_mb=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_smallest_memory_is_enough_to_print(backend, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    result = await sandbox.run("print(1)", timeout_seconds=60, memory_mb=32)
    await sandbox.aclose()
    return result

  assert asyncio.run(main()).stdout == "1\n"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
  "code", ["while True: pass", "import time\ntime.sleep(600)"]
)
def test_cancellation_kills_and_reaps(backend, code, tmp_path):
  async def main():
    before = children()
    sandbox = open_backend(backend, tmp_path)
    call = asyncio.create_task(
      sandbox.run(code, timeout_seconds=600, memory_mb=128)
    )
    for _ in range(6000):
      if children() != before:
        break
      await asyncio.sleep(0.01)
    assert children() != before
    assert not call.done()
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
      await call
    if backend in PROCESSES:
      assert processes_with(tmp_path) == []
      assert children() == before
    await sandbox.aclose()
    wait_until(lambda: children() == before)

  asyncio.run(main())


@pytest.mark.parametrize("backend", PROCESSES)
@pytest.mark.parametrize("pauses", [0, 1, 2, 3, 5, 9])
def test_cancellation_at_any_moment_leaves_nothing(backend, pauses, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    before, descriptors = children(), len(os.listdir("/proc/self/fd"))
    for again in (False, True):
      call = asyncio.create_task(
        sandbox.run("print(1)", timeout_seconds=60, memory_mb=128)
      )
      for _ in range(pauses):
        await asyncio.sleep(0.005)
      call.cancel()
      if again:  # while it waits for the end of its process
        await asyncio.sleep(0)
        call.cancel()
      await asyncio.wait({call})
      assert call.cancelled() or call.result().status is Status.OK
    wait_until(lambda: processes_with(tmp_path) == [])
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors

  asyncio.run(main())


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_event_loop_goes_on(backend, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    call = asyncio.create_task(
      sandbox.run("while True: pass", timeout_seconds=1.5, memory_mb=128)
    )
    num_ticks = 0
    while not call.done():
      await asyncio.sleep(0.01)
      num_ticks += 1
    await sandbox.aclose()
    return num_ticks

  assert asyncio.run(main()) > 10


@pytest.mark.parametrize("backend", PROCESSES)
def test_calls_use_up_no_descriptors_and_leave_no_files(
  backend, tmp_path, monkeypatch
):
  folders = tmp_path / "folders"
  folders.mkdir()
  monkeypatch.setattr("tempfile.tempdir", str(folders))
  # Deep, unreadable and linked: as hard to remove as it gets.
  code = """
import os
os.symlink("/usr", "link")
for _ in range(300):
  os.mkdir("a")
  os.chdir("a")
os.chmod(".", 0)
"""

  async def main():
    sandbox = open_backend(backend, tmp_path)
    num_open = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
      result = await sandbox.run(code, timeout_seconds=60, memory_mb=128)
      assert result.status is Status.OK, result.stderr
    assert len(os.listdir("/proc/self/fd")) == num_open

  asyncio.run(main())
  assert list(folders.iterdir()) == []


@pytest.mark.parametrize("backend", PROCESSES)
def test_sets_print_in_the_same_order_every_time(backend, tmp_path):
  async def main():
    sandbox = open_backend(backend, tmp_path)
    code = "print({str(i) for i in range(50)})"
    return {
      (await sandbox.run(code, timeout_seconds=60, memory_mb=128)).stdout
      for _ in range(3)
    }

  assert len(asyncio.run(main())) == 1


@pytest.mark.parametrize("backend", PROCESSES)
def test_import_paths_can_be_imported_from(backend, tmp_path):
  (tmp_path / "given.py").write_text("ANSWER = 42")
  (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')")

  async def main():
    sandbox = open_backend(backend, tmp_path)
    code = "import given, json\nprint(given.ANSWER)"
    return await sandbox.run(code, timeout_seconds=60, memory_mb=128)

  assert asyncio.run(main()).stdout == "42\n"


@pytest.mark.parametrize("backend", PROCESSES)
def test_import_paths_have_to_be_there(backend, tmp_path):
  open_backend(backend, tmp_path)  # skips where there is none
  with pytest.raises(ValueError, match="import_paths has .*nowhere"):
    open_backend(backend, tmp_path / "nowhere")
