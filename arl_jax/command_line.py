"""Reads a command line, presenting the user's own errors without a traceback.

A mistake of the user ends as one message on stderr with exit code 2. A bug
keeps its traceback. `ARL_JAX_TRACEBACK=1` keeps it for both.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import errno
import os
import pathlib
import re
import sys
from typing import Any

from absl import flags
from ml_collections import config_dict, config_flags

from arl_jax import config as config_lib

_PACKAGE = pathlib.Path(__file__).resolve().parent
_OVERRIDE = re.compile(r"-{1,2}(?:no)?config\.([^=]+)")
_TRACEBACK_VARIABLE = "ARL_JAX_TRACEBACK"
_DISK_ERRORS = (
  errno.ENOSPC,
  errno.EDQUOT,
  errno.EROFS,
  errno.EACCES,
  errno.ENOTDIR,
  errno.EISDIR,
  errno.EEXIST,
)
_INTERRUPTED = 130  # what shells report for a process that SIGINT ended
_TYPE_NAMES = {int: "an int", float: "a number", bool: "true or false"}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
  """What a command was asked to do.

  Attributes:
    config: the configuration, a locked ConfigDict with overrides applied.
    workdir: the run's folder.
    distributed: whether this process is one of several.
    coordinator: host and port of process 0; empty where the platform knows.
    num_processes: how many there are; 0 where the platform knows.
    process_id: which one this is; -1 where the platform knows.
  """

  config: Any
  workdir: str
  distributed: bool = False
  coordinator: str = ""
  num_processes: int = 0
  process_id: int = -1


def run(
  command: Callable[[Arguments], object],
  argv: Sequence[str] | None = None,
  *,
  description: str = "",
) -> None:
  """Calls `command` with the parsed arguments; exits 2 on a user's error."""
  argv = sys.argv if argv is None else argv
  if any(re.fullmatch(r"--?h(elp)?", argument) for argument in argv[1:]):
    print(f"{description}\n{_define_flags(argv).get_help()}".strip())
    return
  try:
    command(parse(argv))
  except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(_INTERRUPTED)
  except Exception as error:
    found = user_error(error)
    if found is None or os.environ.get(_TRACEBACK_VARIABLE):
      raise
    print(f"error: {found}", file=sys.stderr)
    sys.exit(2)


def parse(argv: Sequence[str]) -> Arguments:
  """Parses a command line; `argv[0]` is the program's name.

  Args:
    argv: program name and arguments.

  Returns:
    The arguments.

  Raises:
    ConfigError: for a mistake on the command line, naming key and cause.
  """
  registry = _define_flags(argv)
  try:
    rest = registry(argv)
  except Exception as error:
    message = _explain(error, argv)
    if message is None:
      raise
    raise config_lib.ConfigError(message) from error
  if len(rest) > 1:
    raise config_lib.ConfigError(
      f"{rest[1]!r} is not understood; arguments have the form --name=value."
    )
  config = registry["config"].value
  if config is None:
    raise config_lib.ConfigError(
      "--config is missing; for example --config=configs/flight_booking.py."
    )
  if not isinstance(config, config_dict.ConfigDict):
    raise config_lib.ConfigError(_no_config(argv))
  if not registry["workdir"].value:
    raise config_lib.ConfigError(
      "--workdir is missing; name a folder for checkpoints and metrics, for "
      "example --workdir=runs/flight_booking."
    )
  others = [field.name for field in dataclasses.fields(Arguments)][1:]
  values: Any = {name: registry[name].value for name in others}
  return Arguments(config=config, **values)


def connect(arguments: Arguments) -> None:
  """Joins the other processes; call it before jax looks for devices."""
  if arguments.distributed:
    import jax

    jax.distributed.initialize(
      coordinator_address=arguments.coordinator or None,
      num_processes=arguments.num_processes or None,
      process_id=arguments.process_id if arguments.process_id >= 0 else None,
    )


def user_error(error: BaseException) -> str | None:
  """Returns the message for a mistake of the user, None for a bug.

  The user's are every ConfigError, a ValueError that this package itself
  raised, and a disk that is full or closed to us; also when one of these is
  the only exception in a group.
  """
  while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
    error = error.exceptions[0]
  if isinstance(error, config_lib.ConfigError):
    return str(error)
  if isinstance(error, ValueError) and config_lib.raised_in(error, _PACKAGE):
    return str(error)
  if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
    place = f": {error.filename}" if error.filename else ""
    advice = ""
    if error.errno == errno.ENOSPC and "Free" not in str(error.strerror):
      advice = "; free space on the disk of --workdir, then run it again"
    return f"{error.strerror}{place}{advice}"
  return None


def _define_flags(argv: Sequence[str]) -> flags.FlagValues:
  """Returns a registry of its own, so that a process can parse twice."""
  registry = flags.FlagValues()
  config_flags.DEFINE_config_file(
    "config",
    help_string="configuration file, with an optional :variant.",
    flag_values=registry,
    lock_config=True,
    sys_argv=list(argv),
  )
  flags.DEFINE_string(
    "workdir", None, "folder for all that a run writes.", flag_values=registry
  )
  flags.DEFINE_bool(
    "distributed", False, "one of several processes.", flag_values=registry
  )
  flags.DEFINE_string(
    "coordinator", "", "host:port of process 0.", flag_values=registry
  )
  flags.DEFINE_integer(
    "num_processes", 0, "how many processes.", flag_values=registry
  )
  flags.DEFINE_integer(
    "process_id", -1, "which process this is.", flag_values=registry
  )
  return registry


def _explain(error: Exception, argv: Sequence[str]) -> str | None:
  """Returns what the user did wrong, None if the configuration has a bug."""
  path = _config_path(argv)
  root = _root_cause(error)
  if path and any(
    config_lib.raised_in(root, place)
    for place in (pathlib.Path(path).resolve(), _PACKAGE)
  ):
    # get_config: a ValueError is its way to refuse a variant.
    return f"{path}: {root}" if isinstance(root, ValueError) else None
  if isinstance(error, SyntaxError | OSError):
    return _no_config(argv, f": {root}")
  if isinstance(error, AttributeError | KeyError):
    return _unknown_override(argv)
  if isinstance(error, flags.IllegalFlagValueError):
    return _wrong_type(error, argv)
  if isinstance(error, flags.UnrecognizedFlagError) and not path:
    return f"{error} (--config=FILE comes first.)"
  return str(error) if isinstance(error, flags.Error) else None


def _no_config(argv: Sequence[str], cause: str = "") -> str:
  path = pathlib.Path(_config_path(argv))
  if not path.is_file():
    return f"--config: there is no file {path}."
  return f"--config: {path} cannot be loaded as a configuration{cause}"


def _unknown_override(argv: Sequence[str]) -> str | None:
  """Returns the message for the first override of a key that is not there."""
  config: Any = _load(argv)
  for key in _overrides(argv):
    section: Any = config
    path = "config"
    for part in key.split("."):
      if not config_lib.is_section(section):
        return f"--{path} is a value ({section!r}), not a section."
      if part not in section:
        return config_lib.unknown_key(f"--config.{key}", part, list(section))
      section, path = section[part], f"{path}.{part}"
  return None


def _wrong_type(error: Exception, argv: Sequence[str]) -> str:
  """Returns the message for a value that its key cannot take."""
  match = re.match(r"flag --config\.([^=]+)=(.*?): ", str(error), re.DOTALL)
  if not match:
    return str(error)
  key, text = match.groups()
  before = config_lib.get(_load(argv), key)
  if config_lib.is_section(before):
    names = ", ".join(f"--config.{key}.{name}" for name in before)
    return f"--config.{key} is a section; override one of {names}."
  expected = _TYPE_NAMES.get(type(before), f"a {type(before).__name__}")
  return f"--config.{key} is {text!r}; expected {expected}, as {before!r} is."


def _config_path(argv: Sequence[str]) -> str:
  """Returns the file that --config names, without the variant."""
  return _config_argument(argv).split(":", 1)[0]


def _config_argument(argv: Sequence[str]) -> str:
  for index, argument in enumerate(argv):
    name, equals, value = argument.partition("=")
    if name in ("--config", "-config"):
      return value if equals else "".join(argv[index + 1 : index + 2])
  return ""


def _overrides(argv: Sequence[str]) -> Iterator[str]:
  for argument in argv:
    match = _OVERRIDE.match(argument)
    if match:
      yield match.group(1)


def _load(argv: Sequence[str]) -> Any:
  """Returns the configuration without overrides."""
  registry = _define_flags(argv[:1])
  return registry["config"].parser.parse(_config_argument(argv))


def _root_cause(error: BaseException) -> BaseException:
  """Returns where it began: the libraries re-raise with less information."""
  while error.__cause__ or error.__context__:
    error = error.__cause__ or error.__context__ or error
  return error
