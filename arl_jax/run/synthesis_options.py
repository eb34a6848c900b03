"""What a synthesis is asked to do, by flags, and what of it cannot work."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import re
from typing import Any

from absl import flags

from arl_jax import config as config_lib
from arl_jax.synthesis import episode_dataset

METHODS = ("experts", "recovery", "graph", "rejection", "hindsight")
_POLICY_METHODS = ("rejection", "hindsight")
FILE_SUFFIX = ".jsonl"
# Nobody calls a folder so.
_LIKE_A_FILE = (".json", ".jsonlines", ".ndjson", ".gz", ".txt")
# Easy, middling and hard.
_NUM_MIXED = 3

_HELP = {
  "out": (
    "a new file .jsonl of JSON lines; any other name is a dataset's folder."
  ),
  "method": (
    "experts: scripted ones, careful and careless. recovery: theirs, with a"
    " mistake that is made good. graph: paths through the tools' signatures."
    " rejection: successes of a policy. hindsight: failures of a policy, or"
    " without --workdir of the experts, as what they achieved."
  ),
  "number": "tasks that are played; for graph, episodes that are made.",
  "workdir": "folder of the run whose policy plays.",
  "num_samples": "episodes that a policy plays of each task.",
  "max_per_task": "episodes of a task that rejection keeps.",
  "filters": (
    "drop failures, duplicates, and what is too short, or too long for"
    " config.rollout.max_length."
  ),
  "mix": "keep 30 % easy, 50 % middling and 20 % hard ones, by level.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What is asked for; `--help` says what each means."""

  out: str
  method: str = "experts"
  number: int = 1000
  workdir: str | None = None
  num_samples: int = 8
  max_per_task: int = 1
  filters: bool = True
  mix: bool = False


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
  """Divides a command line into what is of `Options`, and all else."""
  names = "|".join(field.name for field in dataclasses.fields(Options))
  own = re.compile(rf"--?(no)?({names})(=|$)")
  ours = [one for one in argv if own.match(one)]
  return ours, [one for one in argv if not own.match(one)]


def describe_flags() -> str:
  """Returns the help text of the flags."""
  lines = _define_flags().get_help().partition("absl.flags:")[0]
  return lines.strip()


def read_options(arguments: Sequence[str]) -> Options:
  """Reads what is asked for.

  Args:
    arguments: those of `Options`, without the program's name.

  Raises:
    ConfigError: one is missing, or not what it should be.
  """
  registry = _define_flags()
  try:
    registry(["synthesize", *arguments])
  except flags.Error as error:
    raise config_lib.ConfigError(str(error)) from None
  values: Any = {
    field.name: registry[field.name].value
    for field in dataclasses.fields(Options)
  }
  if not values["out"]:
    raise config_lib.ConfigError(
      "--out is missing; name a file such as --out=episodes.jsonl, or the"
      " folder of a dataset."
    )
  return Options(**values)


def check(options: Options, environment: Any) -> None:
  """Finds what cannot work before anything is played.

  Args:
    options: as they were asked for.
    environment: the settings of its section.

  Raises:
    ConfigError: naming the flag, what it is and what was expected.
  """
  method, workdir = options.method, options.workdir
  if method == "rejection" and workdir is None:
    raise config_lib.ConfigError(
      "--workdir is missing; --method=rejection plays the policy of a run."
    )
  if workdir is not None and method not in _POLICY_METHODS:
    raise config_lib.ConfigError(
      f"--workdir is {workdir}, but --method={method} plays no policy; that is"
      f" for {' and '.join(_POLICY_METHODS)}."
    )
  if options.max_per_task != Options.max_per_task and method != "rejection":
    raise config_lib.ConfigError(
      f"--max_per_task is {options.max_per_task}, but --method={method} keeps"
      " all that it makes; that is for rejection."
    )
  if options.num_samples != Options.num_samples and workdir is None:
    raise config_lib.ConfigError(
      f"--num_samples is {options.num_samples}, but without --workdir no policy"
      " plays; leave it out."
    )
  levels = getattr(environment, "levels", None)
  if options.mix and levels is not None and len(set(levels)) < _NUM_MIXED:
    raise config_lib.ConfigError(
      "--mix needs easy, middling and hard tasks, but"
      f" config.environment.levels is {tuple(levels)}; name {_NUM_MIXED} levels"
      " or more, or leave --mix out."
    )
  _check_out(options.out)


def _check_out(out: str) -> None:
  """Finds what is in the way of the output, which replaces nothing."""
  path = pathlib.Path(out)
  if path.suffix in _LIKE_A_FILE:
    raise config_lib.ConfigError(
      f"--out is {out}; expected a file that ends in {FILE_SUFFIX}, or the"
      " folder of a dataset."
    )
  if path.is_dir() and out.endswith(FILE_SUFFIX):
    raise config_lib.ConfigError(
      f"--out is {out}, a folder; expected a new file {FILE_SUFFIX}, or for a"
      " dataset a folder of another name."
    )
  if path.exists() and not path.is_dir():
    raise config_lib.ConfigError(
      f"--out is {out}, a file that is there already; delete it, or name"
      f" another that ends in {FILE_SUFFIX}, or the folder of a dataset."
    )
  if not out.endswith(FILE_SUFFIX):
    with config_lib.blame("--out", out):
      episode_dataset.check_new(out)
  places = [path, *path.absolute().parents]
  place = next(place for place in places if place.exists())
  if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
    raise config_lib.ConfigError(
      f"--out is {out}, but nothing can be written in {place}; name another"
      " place."
    )


def _define_flags() -> flags.FlagValues:
  registry = flags.FlagValues()
  for field in dataclasses.fields(Options):
    name, text, default = field.name, _HELP[field.name], field.default
    if name == "method":
      flags.DEFINE_enum(name, str(default), METHODS, text, flag_values=registry)
    elif isinstance(default, bool):
      flags.DEFINE_bool(name, default, text, flag_values=registry)
    elif isinstance(default, int):
      flags.DEFINE_integer(
        name, default, text, lower_bound=1, flag_values=registry
      )
    else:
      flags.DEFINE_string(name, None, text, flag_values=registry)
  return registry
