"""Makes a JSON Schema of a type hint, with a way back from JSON."""

from collections.abc import Callable, Mapping
import dataclasses
import enum
import inspect
import types
import typing
from typing import Any, Literal

from arl_jax.envs.docstrings import read_docstring

_SCALARS: dict[type, str] = {
  str: "string",
  int: "integer",
  float: "number",
  bool: "boolean",
}
_SUPPORTED = (
  "str, int, float, bool, list[T], dict[str, T], Literal, Enum, a dataclass, a"
  " TypedDict, or one of these with | None"
)
_UNIONS = (typing.Union, types.UnionType)
_WRAPPERS = (typing.Required, typing.NotRequired)

Convert = Callable[[Any], Any]


class HintError(ValueError):
  """A hint has no JSON Schema here."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class HintSchema:
  """A hint in JSON.

  Attributes:
    schema: JSON Schema of a value.
    convert: makes the Python value of a checked JSON value; None if it is the
      same. Raises ValueError for what a dataclass refuses.
  """

  schema: Mapping[str, Any]
  convert: Convert | None = None


def schema_of_hint(hint: Any, *, outer: tuple[type, ...] = ()) -> HintSchema:
  """Returns the schema of a resolved hint.

  Args:
    hint: no string; see `typing.get_type_hints`.
    outer: the classes that the hint is a part of.

  Raises:
    HintError: says which hint is not supported, and what is.
  """
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin is typing.Annotated:
    return _annotated(arguments, outer)
  if isinstance(hint, type) and hint in _SCALARS:
    return HintSchema(schema={"type": _SCALARS[hint]})
  if origin is Literal:
    return HintSchema(schema=_choice(arguments, hint))
  if origin in _UNIONS:
    return _union(arguments, hint, outer)
  if origin is list:
    return _list(schema_of_hint(arguments[0], outer=outer))
  if origin is dict and arguments[0] is str:
    return _dict(schema_of_hint(arguments[1], outer=outer))
  if inspect.isclass(hint) and origin is None:
    if hint in outer:
      raise HintError(f"{hint.__name__} is a part of itself")
    if issubclass(hint, enum.Enum):
      values = [member.value for member in hint]
      return HintSchema(schema=_choice(values, hint), convert=hint)
    if typing.is_typeddict(hint):
      return _typed_dict(hint, (*outer, hint))
    if dataclasses.is_dataclass(hint):
      return _dataclass(hint, (*outer, hint))
  raise HintError(f"the hint {_show(hint)} is not supported; use {_SUPPORTED}")


def _show(hint: Any) -> str:
  plain = inspect.isclass(hint) and typing.get_origin(hint) is None
  return hint.__name__ if plain else str(hint).replace("typing.", "")


def _annotated(arguments: tuple[Any, ...], outer: Any) -> HintSchema:
  inner = schema_of_hint(arguments[0], outer=outer)
  texts = [extra for extra in arguments[1:] if isinstance(extra, str)]
  if not texts:
    return inner
  schema = {**inner.schema, "description": texts[0]}
  return dataclasses.replace(inner, schema=schema)


def _choice(values: Any, hint: Any) -> dict[str, Any]:
  """Returns the schema of one of several values."""
  found = []
  for value in values:
    # Members of an IntEnum are ints as well, but not those of JSON.
    if value is not None and type(value) not in _SCALARS:
      raise HintError(
        f"{_show(hint)} has the value {value!r}; expected values that are str,"
        " int, float, bool or None"
      )
    found.append("null" if value is None else _SCALARS[type(value)])
  if not found:
    raise HintError(f"{_show(hint)} has no values")
  return {"type": _few(found), "enum": list(values)}


def _few(names: Any) -> Any:
  """Returns one name as it is, and several as a list."""
  names = list(dict.fromkeys(names))
  return names[0] if len(names) == 1 else names


def _union(arguments: tuple[Any, ...], hint: Any, outer: Any) -> HintSchema:
  kinds = [kind for kind in arguments if kind is not types.NoneType]
  if len(kinds) > 1 and not all(kind in _SCALARS for kind in kinds):
    raise HintError(
      f"the hint {_show(hint)} is not supported; a union may hold str, int,"
      " float and bool, or any one hint and None"
    )
  if len(kinds) > 1:
    names = [_SCALARS[kind] for kind in kinds]
    if len(kinds) < len(arguments):
      names.append("null")
    return HintSchema(schema={"type": _few(names)})
  inner = schema_of_hint(kinds[0], outer=outer)
  schema, convert = dict(inner.schema), inner.convert
  declared = schema["type"]
  declared = [declared] if isinstance(declared, str) else declared
  schema["type"] = _few([*declared, "null"])
  if "enum" in schema:
    schema["enum"] = list(dict.fromkeys([*schema["enum"], None]))
  if convert is None:
    return HintSchema(schema=schema)
  return HintSchema(
    schema=schema,
    convert=lambda value: None if value is None else convert(value),
  )


def _list(inner: HintSchema) -> HintSchema:
  schema = {"type": "array", "items": inner.schema}
  convert = inner.convert
  if convert is None:
    return HintSchema(schema=schema)
  return HintSchema(
    schema=schema, convert=lambda values: [convert(value) for value in values]
  )


def _dict(inner: HintSchema) -> HintSchema:
  schema = {"type": "object", "additionalProperties": inner.schema}
  convert = inner.convert
  if convert is None:
    return HintSchema(schema=schema)
  return HintSchema(
    schema=schema,
    convert=lambda values: {
      name: convert(value) for name, value in values.items()
    },
  )


def _typed_dict(hint: type, outer: Any) -> HintSchema:
  required, parts = [], {}
  for name, kind in _fields(hint).items():
    wrapper = typing.get_origin(kind)
    # With postponed annotations the class does not know of these.
    if wrapper in _WRAPPERS:
      kind = typing.get_args(kind)[0]
      needed = wrapper is typing.Required
    else:
      needed = name in getattr(hint, "__required_keys__", ())
    parts[name] = _field(kind, hint, name, outer)
    required += [name] if needed else []
  return _object(hint, parts, required, make=None)


def _dataclass(hint: type, outer: Any) -> HintSchema:
  hints, required, parts = _fields(hint), [], {}
  for field in dataclasses.fields(hint):
    if not field.init:
      continue
    parts[field.name] = _field(hints[field.name], hint, field.name, outer)
    missing = dataclasses.MISSING
    if field.default is missing and field.default_factory is missing:
      required.append(field.name)
  return _object(hint, parts, required, make=lambda read: hint(**read))


def _fields(hint: type) -> Mapping[str, Any]:
  try:
    return typing.get_type_hints(hint, include_extras=True)
  except Exception as error:
    raise HintError(
      f"the fields of {hint.__name__} cannot be read: {error}"
    ) from error


def _field(kind: Any, hint: type, name: str, outer: Any) -> HintSchema:
  try:
    return schema_of_hint(kind, outer=outer)
  except HintError as error:
    raise HintError(f"{hint.__name__}.{name}: {error}") from None


def _object(
  hint: type,
  parts: Mapping[str, HintSchema],
  required: list[str],
  *,
  make: Convert | None,
) -> HintSchema:
  """Returns the schema of an object with named parts.

  Args:
    hint: its docstring describes the parts.
    parts: by name.
    required: names of parts that may not be left out.
    make: makes the Python value of the converted parts; None for a dict.
  """
  text, described = read_docstring(hint.__doc__ or "")
  properties = {
    name: {**part.schema}
    | ({"description": described[name]} if name in described else {})
    for name, part in parts.items()
  }
  schema: dict[str, Any] = {"type": "object", "properties": properties}
  # Python writes a docstring for a dataclass that has none.
  if text and not text.startswith(f"{hint.__name__}("):
    schema["description"] = text
  if required:
    schema["required"] = required
  if not properties:
    schema["additionalProperties"] = False

  def convert(value: Mapping[str, Any]) -> Any:
    read = dict(value)
    for name in parts.keys() & read.keys():
      part = parts[name].convert
      if part is not None:
        read[name] = part(read[name])
    return read if make is None else make(read)

  plain = make is None and all(part.convert is None for part in parts.values())
  return HintSchema(schema=schema, convert=None if plain else convert)
