"""Calls per second of the search tools, alone and with many at once.

    python experiments/search/search_speed.py --seconds 10

The corpus is the factbook. The queries are those of careful experts, the
passages to open those that they opened; each
call goes through the tool, as an action's call does. Latencies are medians in
milliseconds. One table row per line of JSON.
"""

import argparse
import asyncio
from collections.abc import Sequence
import itertools
import json
import os
import statistics
import time

from arl_jax.envs.search_index import Index, Passage
from arl_jax.envs.search_tags import parse_tags
from arl_jax.envs.search_tools import SearchDesk
from arl_jax.envs.tools import RunStatus, run_tool
from arl_jax.run.search_suite import (
  FACTBOOK,
  SearchSettings,
  load_corpus,
  open_index,
  search_suite,
)

# What a tag's body is called as an argument.
_PARAMETERS = {"search": "query", "open": "id"}


def expert_calls(number: int) -> dict[str, list[str]]:
  """What experts looked for and opened, in `number` episodes."""
  calls: dict[str, list[str]] = {"search": [], "open": []}
  suite = search_suite(SearchSettings())
  for episode in suite.demonstrate(number, 0, 1.0, False):
    for _, action in episode.turns:
      for attempt in parse_tags(action, names=tuple(calls)):
        calls[attempt.name].append(attempt.body)
  return calls


async def call_rate(
  index: Index,
  tool: str,
  bodies: Sequence[str],
  *,
  concurrent: int,
  seconds: float,
) -> dict[str, float]:
  """Calls a tool again and again, from so many episodes at once."""
  latencies: list[float] = []
  source = itertools.cycle(bodies)
  start = time.perf_counter()

  async def play() -> None:
    desk = SearchDesk(index)
    while time.perf_counter() - start < seconds:
      begin = time.perf_counter()
      answer = await run_tool(
        desk.tools[tool], {_PARAMETERS[tool]: next(source)}
      )
      latencies.append(time.perf_counter() - begin)
      if answer.status is not RunStatus.OK:
        raise RuntimeError(f"a call failed: {answer}")

  await asyncio.gather(*(play() for _ in range(concurrent)))
  elapsed = time.perf_counter() - start
  return {
    "calls_per_second": round(len(latencies) / elapsed, 1),
    "median_ms": round(1000 * statistics.median(latencies), 3),
  }


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--seconds", type=float, default=10.0)
  parser.add_argument("--concurrent", type=int, nargs="+", default=[1, 16])
  parser.add_argument("--engines", nargs="+", default=["fts5", "tantivy"])
  args = parser.parse_args()
  calls = expert_calls(500)
  passages: list[Passage] = load_corpus(FACTBOOK)
  for engine in args.engines:
    begin = time.perf_counter()
    index = open_index(passages, SearchSettings(engine=engine))
    seconds = time.perf_counter() - begin
    for concurrent in args.concurrent:
      row: dict[str, object] = {
        "engine": engine,
        "concurrent": concurrent,
        "passages": len(passages),
        "index_seconds": round(seconds, 2),
        "processors": os.cpu_count(),
      }
      for tool, bodies in calls.items():
        row[tool] = asyncio.run(
          call_rate(
            index,
            tool,
            bodies,
            concurrent=concurrent,
            seconds=args.seconds,
          )
        )
      print(json.dumps(row), flush=True)
    index.close()


if __name__ == "__main__":
  main()
