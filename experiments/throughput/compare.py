"""Runs both programs in turn, each time afresh, and prints a table.

  python experiments/throughput/compare.py --peer_python PATH --runs 5

PATH is the Python of a virtual environment that has google-tunix 0.1.7. Nothing
else should run meanwhile. A ratio is that of a run of arl_jax to the run of
google-tunix after it, so that a change of the machine's speed touches both.
"""

import argparse
from collections.abc import Sequence
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any

FOLDER = pathlib.Path(__file__).parent
TIMEOUT_SECONDS = 1800.0

WORKLOADS = {
  "plain": ("--mode=plain",),
  "agentic": ("--mode=agentic",),
  "plain_49152": ("--mode=plain", "--vocab_size=49152"),
}
# What a program reports: how it is called, and its decimals.
QUANTITIES = {
  "cpu_seconds": ("CPU-seconds a step", 2),
  "wall_seconds": ("wall seconds a step", 2),
  "first_step_seconds": ("seconds of the first step", 1),
  "compilations": ("compilations", 0),
  "compilations_after_warmup": ("compilations after warm-up", 0),
  "peak_mb": ("peak MB", 0),
}
COLUMNS = ("workload", "quantity", "arl_jax", "google-tunix", "ratio")

# Prints the versions of Python, of jax, and of the distribution that is named.
VERSIONS = """
import importlib.metadata, platform, sys
print(platform.python_version(), *map(importlib.metadata.version, sys.argv[1:]))
"""

Result = dict[str, Any]
# A run of arl_jax, and the run of google-tunix after it.
Pair = tuple[Result, Result]


def parse_result(stdout: str) -> Result:
  """Returns what a program reported.

  Raises:
    ValueError: if there is no such line, or more than one.
  """
  lines = [
    line.removeprefix("RESULT ")
    for line in stdout.splitlines()
    if line.startswith("RESULT ")
  ]
  if len(lines) != 1:
    raise ValueError(f"found {len(lines)} lines with a RESULT; expected 1")
  return json.loads(lines[0])


def parse_cpu(cpuinfo: str) -> str:
  """Returns the model of the first processor in /proc/cpuinfo."""
  for line in cpuinfo.splitlines():
    name, _, value = line.partition(":")
    if name.strip() == "model name":
      return value.strip()
  return "unknown CPU"


def describe(numbers: Sequence[float], decimals: int) -> str:
  """Writes a median with its range, or the number if all are equal."""
  low, middle, high = (
    f"{f(numbers):.{decimals}f}" for f in (min, statistics.median, max)
  )
  return middle if low == high else f"{middle} ({low} to {high})"


def ratios(pairs: Sequence[Pair], quantity: str) -> list[float]:
  """Returns ours / theirs for each pair; empty if one of theirs is 0."""
  if any(not theirs[quantity] for _, theirs in pairs):
    return []
  return [ours[quantity] / theirs[quantity] for ours, theirs in pairs]


def table(measured: dict[str, list[Pair]]) -> str:
  """Returns a Markdown table with a line for each quantity of a workload."""
  lines = [COLUMNS, ("---",) * len(COLUMNS)]
  for workload, pairs in measured.items():
    for quantity, (label, decimals) in QUANTITIES.items():
      ours, theirs = (
        describe([pair[side][quantity] for pair in pairs], decimals)
        for side in (0, 1)
      )
      shares = ratios(pairs, quantity)
      share = describe(shares, 2) if shares else ""
      lines.append((workload, label, ours, theirs, share))
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def make_environment(
  variables: dict[str, str], hugepages: bool
) -> dict[str, str]:
  """Returns the environment of both programs; neither keeps compilations."""
  child = dict(variables)
  child.pop("JAX_COMPILATION_CACHE_DIR", None)
  if hugepages:
    child["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
  return child


def run(command: Sequence[str], environment: dict[str, str]) -> str:
  """Returns what a command prints; its failure ends the comparison."""
  try:
    done = subprocess.run(
      command,
      env=environment,
      capture_output=True,
      text=True,
      timeout=TIMEOUT_SECONDS,
    )
  except subprocess.TimeoutExpired:
    sys.exit(f"{command} took more than {TIMEOUT_SECONDS:g} seconds")
  if done.returncode:
    sys.exit(f"{done.stderr}\n{command} ended with {done.returncode}")
  return done.stdout


def measure(
  python: str, file: str, arguments: Sequence[str], environment: dict[str, str]
) -> Result:
  """Runs a program once; what it reports is shown at once, on stderr."""
  command = [python, str(FOLDER / file), *arguments]
  result = parse_result(run(command, environment))
  print(json.dumps(result), file=sys.stderr, flush=True)
  return result


def headline(
  peer_python: str, hugepages: bool, environment: dict[str, str]
) -> str:
  """Says when, where and on which versions this was measured."""
  cpuinfo = pathlib.Path("/proc/cpuinfo")
  cpu = parse_cpu(cpuinfo.read_text() if cpuinfo.exists() else "")
  parts = [
    datetime.date.today().isoformat(),
    f"{cpu}, {os.cpu_count()} cores",
    f"huge pages {'on' if hugepages else 'off'}",
  ]
  for python, name in (
    (sys.executable, "arl-jax"),
    (peer_python, "google-tunix"),
  ):
    command = [python, "-c", VERSIONS, "jax", name]
    version, jax, own = run(command, environment).split()
    parts.append(f"{name} {own} on Python {version} and jax {jax}")
  return "; ".join(parts)


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument("--peer_python", required=True)
  parser.add_argument("--runs", type=int, default=5)
  parser.add_argument(
    "--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS)
  )
  parser.add_argument("--hugepages", action="store_true")
  options = parser.parse_args()
  if options.runs < 1:
    parser.error(f"runs is {options.runs}; expected 1 or more")
  environment = make_environment(dict(os.environ), options.hugepages)
  head = headline(options.peer_python, options.hugepages, environment)
  measured = {
    name: [
      (
        measure(sys.executable, "ours.py", WORKLOADS[name], environment),
        measure(options.peer_python, "peer.py", WORKLOADS[name], environment),
      )
      for _ in range(options.runs)
    ]
    for name in options.workloads
  }
  print(f"{head}\n\n{table(measured)}")


if __name__ == "__main__":
  main()
