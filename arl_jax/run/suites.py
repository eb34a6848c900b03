"""The environments that a configuration can name."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import importlib
import pathlib
from typing import Any, NamedTuple, ParamSpec, TypeVar

from arl_jax import config as config_lib
from arl_jax.run.airline_suite import AirlineSettings, airline_suite
from arl_jax.run.code_suite import CodeSettings, code_suite
from arl_jax.run.flight_suite import FlightSettings, flight_booking_suite
from arl_jax.run.search_suite import SearchSettings, search_suite
from arl_jax.run.suite import Suite
from arl_jax.sandbox.sandbox import SandboxUnavailableError

P = ParamSpec("P")
T = TypeVar("T")
_PACKAGE = pathlib.Path(config_lib.__file__).resolve().parent


class SuiteKind(NamedTuple):
  """An environment that a configuration can name.

  Attributes:
    settings: a frozen dataclass of its section, with `name` and
      `reward_weights` at least. It may have `RANGES`, the numbers that are
      allowed, and `problems()`, which yields what else is wrong.
    make: makes the suite from them.
  """

  settings: type[Any]
  make: Callable[[Any], Suite]


SUITES: Mapping[str, SuiteKind] = {
  "flight_booking": SuiteKind(FlightSettings, flight_booking_suite),
  "search": SuiteKind(SearchSettings, search_suite),
  "code": SuiteKind(CodeSettings, code_suite),
  "airline": SuiteKind(AirlineSettings, airline_suite),
}


def find_suite(name: str) -> SuiteKind:
  """Returns one of `SUITES`, or one of your own.

  Args:
    name: a key of `SUITES`, or `module:attribute` of a `SuiteKind`.

  Raises:
    ValueError: there is none of that name.
  """
  if name in SUITES:
    return SUITES[name]
  known = f"{', '.join(SUITES)}, or module:attribute of a SuiteKind of your own"
  module_name, colon, attribute = name.partition(":")
  if not (module_name and colon and attribute):
    raise ValueError(f"config.environment.name is {name!r}; expected {known}.")
  try:
    module = importlib.import_module(module_name)
  except ModuleNotFoundError as error:
    # One that it imports itself is another mistake.
    if error.name and not f"{module_name}.".startswith(f"{error.name}."):
      raise
    raise ValueError(
      f"config.environment.name is {name!r}, but there is no module"
      f" {module_name}; is its folder on PYTHONPATH? Expected {known}."
    ) from error
  kind = getattr(module, attribute, None)
  if not isinstance(kind, SuiteKind):
    raise ValueError(
      f"config.environment.name is {name!r}, but {attribute} in {module_name}"
      f" is {kind!r}; expected a SuiteKind."
    )
  return kind


def make_suite(settings: Any) -> Suite:
  """Makes the suite of an environment.

  Args:
    settings: its record, as `read_settings` makes it.

  Raises:
    ConfigError: they do not work, or something that they need is missing.
  """
  with blame_environment(settings):
    make = _noted(find_suite(settings.name).make, "make", settings)
    suite = make(settings)
    if not isinstance(suite, Suite):
      raise ValueError(f"make returned {suite!r}; expected a Suite")
  return dataclasses.replace(
    suite,
    train_tasks=_noted(suite.train_tasks, "train_tasks", settings),
    heldout_tasks=_noted(suite.heldout_tasks, "heldout_tasks", settings),
    demonstrate=_noted(suite.demonstrate, "demonstrate", settings),
  )


@contextlib.contextmanager
def note_function(name: str, settings: Any) -> Iterator[None]:
  """Adds to what is raised inside which function of an environment it was.

  Its author needs the traceback; this is the last line of it.

  Args:
    name: of the function.
    settings: the record of the section.
  """
  try:
    yield
  except Exception as error:
    error.add_note(
      f"config.environment, whose name is {settings.name!r}: its function"
      f" {name} failed, as shown above."
    )
    raise


def _noted(function: Callable[P, T], name: str, settings: Any):
  """Returns the function, which tells its name where it fails."""

  def call(*args: P.args, **kwargs: P.kwargs) -> T:
    with note_function(name, settings):
      return function(*args, **kwargs)

  return call


@contextlib.contextmanager
def blame_environment(settings: Any) -> Iterator[None]:
  """Says that `config.environment` is to blame for what is refused inside.

  That is what this package raises itself; all else may be a bug.

  Args:
    settings: the record of the section. A message that begins with one of its
      fields is taken to be about it.

  Raises:
    ConfigError: instead of a ValueError, a missing package or sandbox.
  """
  try:
    yield
  except config_lib.ConfigError:
    raise
  except (ValueError, ModuleNotFoundError, SandboxUnavailableError) as error:
    if not config_lib.raised_in(error, _PACKAGE):
      raise
    text = str(error)
    if hasattr(settings, text.partition(" ")[0]):
      message = f"config.environment.{text}"
    else:
      key = "name"
      if isinstance(error, SandboxUnavailableError):
        key = "sandbox"
      value = getattr(settings, key, None)
      message = f"config.environment.{key} is {value!r}: {text}"
    raise config_lib.ConfigError(message) from error
