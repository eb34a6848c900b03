"""Calls per second of each sandbox, alone and with many at once.

    python experiments/code/sandbox_speed.py --seconds 10

A call runs `print(sum(range(1000)))` in its own interpreter. `cold` starts
the interpreter in the call; `warm` takes one that has started before, from a
pool that starts the next ones meanwhile; `session` is one more call in an
interpreter that is there. Latencies are medians in milliseconds. One table row
per line of JSON.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
import json
import os
import statistics
import time

from arl_jax.sandbox.bubblewrap_sandbox import BubblewrapSandbox
from arl_jax.sandbox.monty_sandbox import MontySandbox
from arl_jax.sandbox.pool import SandboxPool
from arl_jax.sandbox.sandbox import (
  Sandbox,
  SandboxResult,
  SandboxUnavailableError,
  Status,
)
from arl_jax.sandbox.subprocess_sandbox import SubprocessSandbox

CODE = "print(sum(range(1000)))"
SANDBOXES: dict[str, Callable[[int], Sandbox]] = {
  "subprocess": lambda concurrent: SubprocessSandbox(),
  "bubblewrap": lambda concurrent: BubblewrapSandbox(),
  "monty": lambda concurrent: MontySandbox(max_processes=concurrent),
}


async def call_rate(
  call: Callable[[], Awaitable[SandboxResult]],
  *,
  concurrent: int,
  seconds: float,
) -> dict[str, float]:
  """Calls again and again, from so many tasks at once.

  Returns:
    `calls_per_second`, and `median_ms` of one call.
  """
  latencies: list[float] = []
  start = time.perf_counter()

  async def work() -> None:
    while time.perf_counter() - start < seconds:
      begin = time.perf_counter()
      result = await call()
      latencies.append(time.perf_counter() - begin)
      if result.status is not Status.OK:
        raise RuntimeError(f"a call failed: {result}")

  await asyncio.gather(*(work() for _ in range(concurrent)))
  elapsed = time.perf_counter() - start
  return {
    "calls_per_second": round(len(latencies) / elapsed, 1),
    "median_ms": round(1000 * statistics.median(latencies), 3),
  }


async def measure(
  name: str, *, concurrent: int, seconds: float
) -> dict[str, dict[str, float]]:
  """Measures one sandbox; the keys are the ways to call it."""
  sandbox = SANDBOXES[name](concurrent)

  async def cold() -> SandboxResult:
    return await sandbox.run(CODE, timeout_seconds=60, memory_mb=256)

  options = {"concurrent": concurrent, "seconds": seconds}
  rates = {"cold": await call_rate(cold, **options)}
  if name != "monty":  # which keeps its processes by itself
    async with SandboxPool(
      sandbox, max_concurrent=concurrent, num_warm=concurrent
    ) as pool:

      async def warm() -> SandboxResult:
        return await pool.run(CODE, timeout_seconds=60, memory_mb=256)

      rates["warm"] = await call_rate(warm, **options)
  sessions = [sandbox.session(memory_mb=256) for _ in range(concurrent)]
  for session in sessions:
    await session.__aenter__()
  free = list(sessions)

  async def turn() -> SandboxResult:
    session = free.pop()
    try:
      return await session.run(CODE, timeout_seconds=60)
    finally:
      free.append(session)

  try:
    rates["session"] = await call_rate(turn, **options)
  finally:
    for session in sessions:
      await session.__aexit__(None, None, None)
    await sandbox.aclose()
  return rates


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--seconds", type=float, default=10.0)
  parser.add_argument("--concurrent", type=int, nargs="+", default=[1, 16])
  parser.add_argument(
    "--sandboxes", nargs="+", default=list(SANDBOXES), choices=SANDBOXES
  )
  args = parser.parse_args()
  for name in args.sandboxes:
    for concurrent in args.concurrent:
      row: dict[str, object] = {
        "sandbox": name,
        "concurrent": concurrent,
        "processors": os.cpu_count(),
      }
      try:
        row |= asyncio.run(
          measure(name, concurrent=concurrent, seconds=args.seconds)
        )
      except SandboxUnavailableError as error:
        row["unavailable"] = str(error)
      print(json.dumps(row), flush=True)


if __name__ == "__main__":
  main()
