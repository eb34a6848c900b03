"""Keeps a run's folder to one configuration."""

from collections.abc import Iterator, Mapping
import contextlib
import fcntl
import json
import os
import pathlib
import tempfile
from typing import Any

from arl_jax import config as config_lib

# What must not change between a run and its resume: it would be another run.
# A name that ends in a dot stands for the whole section.
FINGERPRINT_KEYS = (
  "seed",
  "policy.",
  "environment.",
  "warmup.",
  "rollout.tasks_per_step",
  "rollout.group_size",
  "rollout.temperature",
  "rollout.top_k",
  "rollout.top_p",
  "rollout.max_turns",
  "rollout.max_tokens_per_turn",
  "rollout.max_length",
  "rollout.max_observation_chars",
  "rollout.mode",
  "rollout.max_staleness",
  "rollout.max_replaced_groups",
  "shaping.",
  "filters.",
  "advantage.",
  "loss.",
  "optimizer.",
  "learner.minibatches_per_step",
  "learner.min_minibatch_rows",
  "learner.recompute_logprobs",
  "learner.reference_reset_every",
  "debug.mode",
  "debug.store",
)
# Within those: what costs memory or time only.
FREE_KEYS = (
  "policy.remat",
  "policy.scan_unroll",
  "warmup.micro_batch_rows",
  "warmup.length_buckets",
  "warmup.logprob_chunk",
  "loss.logprob_chunk",
)
_FILE_NAME = "fingerprint.json"
_LOCK_NAME = ".lock"
_NUM_SHOWN = 5


def fingerprint(config: config_lib.Section) -> str:
  """Returns the parts that a resume must share, as stable JSON."""
  flat = {
    key: value
    for key, value in _flatten(config)
    if key not in FREE_KEYS
    and any(
      key == kept or (kept.endswith(".") and key.startswith(kept))
      for kept in FINGERPRINT_KEYS
    )
  }
  return json.dumps(flat, sort_keys=True, indent=1) + "\n"


def check_writable(workdir: str | pathlib.Path) -> None:
  """Tries whether the folder can be made, or written to; leaves nothing.

  Raises:
    ConfigError: if it cannot.
  """
  folder = pathlib.Path(workdir)
  found = folder
  try:
    # The nearest that is there.
    for found in (folder, *folder.parents):
      with contextlib.suppress(FileNotFoundError):
        found.lstat()
        break
    # Permissions alone would not do: root has all of them, in /proc as well.
    with tempfile.TemporaryDirectory(prefix=".try-", dir=found):
      pass
  except OSError as error:
    raise config_lib.ConfigError(
      f"--workdir is {str(workdir)!r}, but nothing can be written to {found}:"
      f" {error.strerror}; name a folder that you can write to, or a new one"
      " in such a folder."
    ) from error


def has_lock(workdir: str | pathlib.Path) -> bool:
  """True if a run has begun in the folder, which may be over by now."""
  return (pathlib.Path(workdir) / _LOCK_NAME).exists()


@contextlib.contextmanager
def lock_workdir(workdir: str | pathlib.Path) -> Iterator[None]:
  """Keeps other processes from writing into the folder meanwhile.

  The system lets go of the lock when the process ends, however it ends.

  Raises:
    ConfigError: if another process holds it.
  """
  folder = pathlib.Path(workdir)
  folder.mkdir(parents=True, exist_ok=True)
  with (folder / _LOCK_NAME).open("a+", encoding="utf-8") as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      file.seek(0)
      raise config_lib.ConfigError(
        f"workdir {workdir} is in use by process {file.read().strip()}; wait"
        " for it, or give another --workdir."
      ) from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    yield


def claim_workdir(
  config: config_lib.Section, workdir: str | pathlib.Path
) -> None:
  """Says that the folder's run has this configuration from now on."""
  file = pathlib.Path(workdir) / _FILE_NAME
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(fingerprint(config), encoding="utf-8")


def check_no_trajectories(workdir: str | pathlib.Path) -> None:
  """Refuses to begin anew where an earlier run left its episodes.

  Raises:
    ConfigError: if there are any.
  """
  folder = pathlib.Path(workdir) / "trajectories"
  if any(folder.glob("step-*.jsonl")):
    raise config_lib.ConfigError(
      f"workdir {workdir} has no checkpoint to go on from, but {folder} holds"
      " the episodes of an earlier run, which this one would write over. Move"
      " them away, or give another --workdir."
    )


def check_workdir(
  config: config_lib.Section, workdir: str | pathlib.Path
) -> None:
  """Refuses a workdir that was written with another configuration.

  Args:
    config: the whole configuration of this run.
    workdir: the run's folder; one that nobody claimed is fine.

  Raises:
    ConfigError: listing the first keys that differ.
  """
  file = pathlib.Path(workdir) / _FILE_NAME
  ours = fingerprint(config)
  if not file.exists():
    return
  try:
    theirs = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(theirs, dict):
      raise ValueError("it holds no JSON object")
  except ValueError as error:
    raise config_lib.ConfigError(
      f"{file} cannot be read ({error}); restore it or use a new --workdir."
    ) from error
  lines = _differences(theirs, json.loads(ours))
  if lines:
    shown = "".join(f"\n  {line}" for line in lines[:_NUM_SHOWN])
    more = len(lines) - _NUM_SHOWN
    rest = f"\n  (and {more} more)" if more > 0 else ""
    raise config_lib.ConfigError(
      f"workdir {workdir} holds a run with another configuration:{shown}{rest}"
      "\nGo on with the same values, or give another --workdir."
    )


def _differences(
  theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> list[str]:
  """Returns one line per key that differs, in the order of the names."""
  absent = object()

  def show(value: Any) -> str:
    return "not set" if value is absent else repr(value)

  lines: list[str] = []
  for key in sorted(theirs.keys() | ours.keys()):
    before, now = theirs.get(key, absent), ours.get(key, absent)
    if before != now:
      lines.append(f"{key}: {show(before)} there, {show(now)} here")
  return lines


def _flatten(
  section: config_lib.Section, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
  for key, value in config_lib.items(section, prefix):
    if config_lib.is_section(value):
      yield from _flatten(value, f"{prefix}{key}.")
    else:
      yield f"{prefix}{key}", _plain(value)


def _plain(value: Any) -> Any:
  """Returns a value of JSON; a function of one's own is known by its name."""
  if isinstance(value, tuple | list):
    return [_plain(item) for item in value]
  if callable(value):
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', '')}.{name}"
  return value
