"""Runs that differ in one thing and share their warm start.

It is made once and copied into the folder of each run, so that all begin with
the same weights, the same tokenizer and the same tasks.
"""

from collections.abc import Mapping, Sequence
import functools
import gc
import json
import os
import pathlib
import resource
import runpy
import shutil
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

from arl_jax.reporting.metrics import read_metrics
from arl_jax.train import train

_CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
_DECODE_ROWS = (32, 128, 512)


def make_config(
  *,
  tiny: bool,
  changes: Mapping[str, Any],
  file: str = "flight_booking.py",
) -> Any:
  """Returns a configuration with some keys changed.

  Args:
    tiny: whether it is the variant of two steps of a toy policy.
    changes: values by dotted key.
    file: which of `configs/` it is.
  """
  config = _config_file(file)["get_config"]("runlocal" if tiny else None)
  with config.unlocked():
    for key, value in changes.items():
      section, _, name = key.rpartition(".")
      (config[section] if section else config)[name] = value
  return config


@functools.cache
def _config_file(name: str) -> Mapping[str, Any]:
  """Reads a file once: whoever edits it changes no run of a long study."""
  return runpy.run_path(str(_CONFIGS / name))


def many_slots(num_episodes: int) -> dict[str, Any]:
  """Returns the changes with which so many episodes decode at once.

  With fewer slots than episodes, one that is admitted would wait for a slot
  and be sampled by newer weights, and data would be younger than allowed.
  """
  rows = tuple(size for size in _DECODE_ROWS if size < num_episodes)
  return {"engine.num_slots": num_episodes, "engine.decode_rows": rows}


def keep_compiled(folder: pathlib.Path) -> None:
  """Keeps what is compiled in a folder, for later runs and processes."""
  folder.mkdir(parents=True, exist_ok=True)
  jax.config.update("jax_compilation_cache_dir", str(folder.absolute()))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def make_warm_start(config: Any, folder: pathlib.Path) -> None:
  """Makes a warm start, unless the folder holds one.

  Args:
    config: of the runs; the warm start depends on its seed, policy,
      environment and warm-up alone.
    folder: it is there when the warm start is whole.
  """
  if folder.exists():
    return
  config = config.copy_and_resolve_references()
  with config.unlocked():
    config.learner.num_steps = 1
    config.rollout.update(mode="sync", max_staleness=0, max_concurrent_groups=0)
    config.evaluation.update(num_tasks=1, every=0)
    config.checkpoint.update(every=1, keep=2)
  made = folder.with_name(f"{folder.name}.making")
  shutil.rmtree(made, ignore_errors=True)
  _train(config, made)
  made.rename(folder)


def train_from(
  warm_start: pathlib.Path, config: Any, folder: pathlib.Path
) -> list[dict[str, Any]]:
  """Trains from a warm start, in a folder that is made anew.

  Args:
    warm_start: the folder that `make_warm_start` left.
    config: of the run.
    folder: of the run; its checkpoints are deleted when it is done.

  Returns:
    The records of its metrics.
  """
  shutil.rmtree(folder, ignore_errors=True)
  for name in ("checkpoints/0", "tokenizer"):
    shutil.copytree(warm_start / name, folder / name)
  _train(config, folder)
  shutil.rmtree(folder / "checkpoints")
  return read_metrics(folder / "metrics.jsonl")


def _train(config: Any, folder: pathlib.Path) -> None:
  measured = train(config, str(folder))
  # Each run has functions of its own, and JAX would keep them all.
  jax.clear_caches()
  gc.collect()
  if not measured:
    raise SystemExit("stopped; the same command begins with this run again")


def peak_megabytes() -> float:
  """Returns the most memory that this process has used."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def check_options(folder: pathlib.Path, options: Mapping[str, Any]) -> None:
  """Keeps a folder to one set of options.

  Raises:
    SystemExit: if its results were measured with others.
  """
  path = folder / "options.json"
  ours = json.loads(json.dumps(options))
  if not path.exists():
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(ours, indent=1) + "\n", encoding="utf-8")
    return
  theirs = json.loads(path.read_text(encoding="utf-8"))
  other = [
    f"--{name} {theirs.get(name)}, now {ours.get(name)}"
    for name in sorted(theirs.keys() | ours.keys())
    if theirs.get(name) != ours.get(name)
  ]
  if other:
    raise SystemExit(
      f"{folder} holds results of {'; '.join(other)}; use the same options, or"
      " another --workdir"
    )


def read_results(path: pathlib.Path) -> list[dict[str, Any]]:
  """Returns the results so far, none if there is no file."""
  return read_metrics(path) if path.exists() else []


def add_result(path: pathlib.Path, result: Mapping[str, Any]) -> None:
  """Appends a result; whoever stops the script leaves whole lines."""
  lines = [json.dumps(line) + "\n" for line in [*read_results(path), result]]
  temporary = path.with_suffix(".tmp")
  temporary.write_text("".join(lines), encoding="utf-8")
  temporary.replace(path)


def mean_of(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
  """Returns the mean over the records that have the metric, None if none."""
  found = [r[name] for r in records if r.get(name) is not None]
  return sum(found) / len(found) if found else None


def max_of(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
  """Returns the largest over the records that have the metric."""
  found = [r[name] for r in records if r.get(name) is not None]
  return max(found, default=None)


def failed_of(records: Sequence[Mapping[str, Any]]) -> float:
  """Returns the largest share of episodes that failed with an error."""
  return max_of(records, "failed_fraction") or 0.0


def failures_note(results: Sequence[Mapping[str, Any]]) -> str:
  """Says in how many runs episodes failed; empty if in none."""
  shares = [share for r in results if (share := r.get("failed", 0.0)) > 0]
  if not shares:
    return ""
  return (
    f"\n\nIn {len(shares)} of {len(results)} runs episodes failed with an"
    f" error, up to {max(shares):.3f} of a step or an evaluation; they count as"
    " not solved."
  )


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns a table; the first column is text, the others are as given."""
  lines = [header, ["---"] * len(header), *rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)
