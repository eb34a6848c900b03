"""Turns sections of a configuration file into checked records.

A configuration is a `ConfigDict` as far down as `train.py`. Below it, code
takes frozen dataclasses that are defined next to their users; `build` makes
one from a section.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import difflib
import pathlib
import traceback
import types
import typing
from typing import Any, TypeVar

from ml_collections import config_dict

_PACKAGE = pathlib.Path(__file__).resolve().parent
T = TypeVar("T")
Section = Mapping[str, Any] | config_dict.ConfigDict


class ConfigError(ValueError):
  """A mistake in a configuration; the message is meant for its author."""


def build(
  dataclass_type: type[T],
  section: Section,
  *,
  path: str,
  ignore: Sequence[str] = (),
  given: Mapping[str, Any] | None = None,
) -> T:
  """Makes a dataclass from a section, checking its keys and their types.

  An int is accepted where a float is expected, a list where a tuple is; a
  bool is not an int. A section may leave out fields that have a default.

  Args:
    dataclass_type: the record to make.
    section: the values, by field name.
    path: dotted name of the section, for messages.
    ignore: keys of the section that belong to somebody else.
    given: fields that the caller sets itself; the section may not set them.

  Returns:
    An instance of `dataclass_type`.

  Raises:
    ConfigError: naming the key, what was found and what is allowed.
  """
  given = dict(given or {})
  values = {k: v for k, v in items(section, path) if k not in ignore}
  hints = typing.get_type_hints(dataclass_type)
  fields = {
    field.name: field
    for field in dataclasses.fields(typing.cast(Any, dataclass_type))
    if field.init and field.name not in given
  }
  for key in values:
    if key not in fields:
      raise ConfigError(unknown_key(f"{path}.{key}", key, fields))
  for name, field in fields.items():
    if name not in values and _is_required(field):
      raise ConfigError(
        f"{path}.{name} is missing; expected {_describe(hints[name])}."
      )
  converted = {
    key: _convert(value, hints[key], f"{path}.{key}")
    for key, value in values.items()
  }
  try:
    return dataclass_type(**converted, **given)
  except ConfigError:
    raise
  except ValueError as error:
    raise ConfigError(f"{path}: {error}") from error


def unknown_key(full_name: str, key: str, allowed: Sequence[str] | Mapping):
  """Returns the message for a key that nothing reads."""
  names = sorted(allowed)
  near = difflib.get_close_matches(key, names, n=1)
  hint = f" Did you mean {near[0]}?" if near else ""
  return (
    f"{full_name} is not a known key.{hint} Allowed here: {', '.join(names)}."
  )


def is_section(value: Any) -> bool:
  """True for a mapping or a ConfigDict."""
  return isinstance(value, Mapping | config_dict.ConfigDict)


def items(section: Any, path: str = "") -> list[tuple[str, Any]]:
  """Returns the pairs of a section; ConfigError if `section` is not one."""
  if not is_section(section):
    raise ConfigError(
      f"{path or 'the configuration'} must be a section with named values; "
      f"found {section!r}."
    )
  return [(str(key), value) for key, value in section.items()]


def get(config: Section, key: str) -> Any:
  """Returns the value of a dotted key, or raises a ConfigError naming it."""
  value: Any = config
  for depth, part in enumerate(key.split(".")):
    found = dict(items(value, ".".join(key.split(".")[:depth])))
    if part not in found:
      raise ConfigError(f"{key} is missing from the configuration.")
    value = found[part]
  return value


@contextlib.contextmanager
def blame(key: str, value: Any) -> Iterator[None]:
  """Says which key is to blame for what goes wrong inside.

  Args:
    key: dotted name, `config` at its beginning.
    value: what it is.

  Raises:
    ConfigError: naming both, for a ValueError, an error of the system, what is
      not installed, and a RuntimeError that this package raised.
  """
  try:
    yield
  except ConfigError:
    raise
  except (ValueError, OSError, RuntimeError, ModuleNotFoundError) as error:
    if isinstance(error, RuntimeError) and not raised_in(error, _PACKAGE):
      raise
    raise ConfigError(f"{key} is {value!r}: {error}") from error


def raised_in(error: BaseException, place: pathlib.Path) -> bool:
  """True if the frame that raised lies in a file or folder."""
  frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
  if not frames:
    return False
  file = pathlib.Path(frames[-1].f_code.co_filename).resolve()
  return file == place or place in file.parents


def _is_required(field: dataclasses.Field) -> bool:
  return (
    field.default is dataclasses.MISSING
    and field.default_factory is dataclasses.MISSING
  )


def _convert(value: Any, hint: Any, key: str) -> Any:
  """Returns `value` as `hint` wants it, or raises a ConfigError."""
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if hint is Any or hint is object:
    return value
  if origin is typing.Literal:
    for allowed in arguments:
      if value == allowed and type(value) is type(allowed):
        return value
  elif origin in (typing.Union, types.UnionType):
    for option in arguments:
      try:
        return _convert(value, option, key)
      except ConfigError:
        continue
  elif hint is None or hint is type(None):
    if value is None:
      return None
  elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
    if is_section(value):
      return build(hint, value, path=key)
  elif origin in (tuple, list) or hint in (tuple, list):
    if isinstance(value, tuple | list):
      return _convert_sequence(value, hint, key)
  elif origin in (dict, Mapping) or hint is dict:
    if is_section(value):
      element = arguments[1] if arguments else Any
      return {
        name: _convert(item, element, f"{key}.{name}")
        for name, item in items(value, key)
      }
  elif origin is Callable:
    if callable(value):
      return value
  elif hint is float:
    if isinstance(value, int | float) and not isinstance(value, bool):
      return float(value)
  elif hint is int:
    if isinstance(value, int) and not isinstance(value, bool):
      return value
  elif isinstance(hint, type) and isinstance(value, hint):
    return value
  raise ConfigError(f"{key} is {value!r}; expected {_describe(hint)}.")


def _convert_sequence(value: Sequence[Any], hint: Any, key: str) -> Any:
  """Returns a tuple or list with every element converted."""
  container = list if hint is list or typing.get_origin(hint) is list else tuple
  arguments = typing.get_args(hint)
  if not arguments:
    return container(value)
  if container is list or (len(arguments) == 2 and arguments[1] is Ellipsis):
    elements = [arguments[0]] * len(value)
  else:
    elements = list(arguments)
  if len(elements) != len(value):
    raise ConfigError(
      f"{key} is {value!r}; expected {len(elements)} values, found "
      f"{len(value)}."
    )
  return container(
    _convert(item, element, f"{key}[{index}]")
    for index, (item, element) in enumerate(zip(value, elements, strict=True))
  )


def _describe(hint: Any) -> str:
  """Returns a type in the words of someone who edits a configuration."""
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin is typing.Literal:
    return "one of " + ", ".join(repr(value) for value in arguments)
  if origin in (typing.Union, types.UnionType):
    return " or ".join(_describe(option) for option in arguments)
  if hint is type(None):
    return "None"
  if origin in (tuple, list):
    inner = [_describe(item) for item in arguments if item is not Ellipsis]
    return "a tuple of " + ", ".join(inner)
  if origin is Callable:
    return "a function"
  if dataclasses.is_dataclass(hint):
    return "a section"
  names = {int: "an int", float: "a number", bool: "True or False"}
  names[str] = "a string"
  return names.get(hint, getattr(hint, "__name__", str(hint)))
