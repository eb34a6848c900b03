"""A JSON Schema subset that checks the arguments of tool calls.

An unsupported keyword is an error when the tool is declared, because a rule
that is silently not enforced is worse than a missing one.
"""

from collections.abc import Mapping
import re
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
  "object": Mapping,
  "array": (list, tuple),
  "string": str,
  "integer": int,
  "number": (int, float),
  "boolean": bool,
  "null": type(None),
}
_ANNOTATIONS = {"description", "title", "default", "examples"}
_RULES = {
  "type",
  "enum",
  "properties",
  "required",
  "additionalProperties",
  "items",
  "minimum",
  "maximum",
  "minLength",
  "maxLength",
  "pattern",
}


def check_schema(schema: Mapping[str, Any], *, where: str) -> None:
  """Raises ValueError if the schema uses something that is not enforced."""
  unknown = set(schema) - _ANNOTATIONS - _RULES
  if unknown:
    raise ValueError(
      f"{where} uses {sorted(unknown)}; supported are {sorted(_RULES)}"
    )
  for name in _type_names(schema):
    if name not in _TYPES:
      raise ValueError(
        f"{where} has type {name!r}; expected one of {sorted(_TYPES)}"
      )
  for name, child in schema.get("properties", {}).items():
    check_schema(child, where=f"{where}.{name}")
  missing = set(schema.get("required", ())) - set(schema.get("properties", {}))
  if missing:
    raise ValueError(f"{where} requires undeclared {sorted(missing)}")
  if not isinstance(schema.get("additionalProperties", False), bool):
    raise ValueError(f"{where}.additionalProperties is not true or false")
  if "items" in schema:
    check_schema(schema["items"], where=f"{where}[]")


def argument_error(
  value: Any, schema: Mapping[str, Any], *, where: str = ""
) -> str:
  """Says what is wrong with a value, in words for the policy; empty if fine.

  Where a schema declares properties, others are refused unless it sets
  `additionalProperties`.
  """
  label = where or "arguments"
  types = _type_names(schema)
  if types and not any(_has_type(value, name) for name in types):
    return f"{label} must be {' or '.join(types)}"
  if "enum" in schema and value not in schema["enum"]:
    return f"{label} must be {' or '.join(map(str, schema['enum']))}"
  if isinstance(value, str):
    return _string_error(value, schema, label)
  if isinstance(value, Mapping):
    return _object_error(value, schema, where)
  if isinstance(value, list | tuple):
    return _first(
      argument_error(item, schema.get("items", {}), where=f"{label}[{index}]")
      for index, item in enumerate(value)
    )
  if isinstance(value, int | float) and not isinstance(value, bool):
    if value < schema.get("minimum", value):
      return f"{label} must be at least {schema['minimum']}"
    if value > schema.get("maximum", value):
      return f"{label} must be at most {schema['maximum']}"
  return ""


def coerce_text(
  arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> dict[str, Any]:
  """Reads textual arguments as the types that the schema declares.

  Text that does not read as its type stays text, for `argument_error` to
  report.
  """
  properties = schema.get("properties", {})
  return {
    name: _read(value, _type_names(properties.get(name, {})))
    for name, value in arguments.items()
  }


def _read(value: Any, types: tuple[str, ...]) -> Any:
  if not isinstance(value, str) or "string" in types:
    return value
  if "integer" in types and re.fullmatch(r"[+-]?\d{1,18}", value):
    return int(value)
  if "number" in types and re.fullmatch(r"[+-]?\d{1,18}(\.\d{1,18})?", value):
    return float(value)
  if "boolean" in types and value in ("true", "false"):
    return value == "true"
  return value


def _type_names(schema: Mapping[str, Any]) -> tuple[str, ...]:
  declared = schema.get("type", ())
  return (declared,) if isinstance(declared, str) else tuple(declared)


def _has_type(value: Any, name: str) -> bool:
  if isinstance(value, bool):  # Python's bool is an int, JSON's is not
    return name == "boolean"
  return isinstance(value, _TYPES[name])


def _string_error(value: str, schema: Mapping[str, Any], label: str) -> str:
  if len(value) < schema.get("minLength", 0):
    return f"{label} is shorter than {schema['minLength']}"
  if len(value) > schema.get("maxLength", len(value)):
    return f"{label} is longer than {schema['maxLength']}"
  if "pattern" in schema and not re.search(schema["pattern"], value):
    return f"{label} must match {schema['pattern']}"
  return ""


def _object_error(
  value: Mapping[str, Any], schema: Mapping[str, Any], where: str
) -> str:
  properties = schema.get("properties", {})
  missing = [name for name in schema.get("required", ()) if name not in value]
  if missing:
    return f"missing argument {missing[0]}"
  unknown = [name for name in value if name not in properties]
  if unknown and not schema.get("additionalProperties", not properties):
    return f"unknown argument {unknown[0]}"
  prefix = f"{where}." if where else ""
  return _first(
    argument_error(value[name], child, where=f"{prefix}{name}")
    for name, child in properties.items()
    if name in value
  )


def _first(errors: Any) -> str:
  return next((error for error in errors if error), "")
