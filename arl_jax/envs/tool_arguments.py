"""A JSON Schema subset that checks the arguments of tool calls.

An unsupported keyword is an error when the tool is declared, because a rule
that is silently not enforced is worse than a missing one.
"""

from collections.abc import Mapping
import json
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
# What a schema may say of a value, and what is checked of it.
ANNOTATIONS = frozenset({"description", "title", "default", "examples"})
RULES = frozenset(
  {
    "type",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
  }
)


def check_schema(schema: Mapping[str, Any], *, where: str) -> None:
  """Raises ValueError if the schema uses something that is not enforced."""
  unknown = set(schema) - ANNOTATIONS - RULES
  if unknown:
    raise ValueError(
      f"{where} uses {sorted(unknown)}; supported are {sorted(RULES)}"
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
  extra = schema.get("additionalProperties", False)
  if isinstance(extra, Mapping):
    check_schema(extra, where=f"{where}.*")
  elif not isinstance(extra, bool):
    raise ValueError(
      f"{where}.additionalProperties is {extra!r}; expected true, false or a"
      " schema"
    )
  if "items" in schema:
    check_schema(schema["items"], where=f"{where}[]")
  for choice in schema.get("anyOf", ()):
    check_schema(choice, where=f"{where}|")


def argument_error(
  value: Any, schema: Mapping[str, Any], *, where: str = ""
) -> str:
  """Says what is wrong with a value, in words for the policy; empty if fine.

  Where a schema declares properties, others are refused unless it sets
  `additionalProperties`, which may be a schema for them.
  """
  label = where or "arguments"
  types = _type_names(schema)
  if types and not any(_has_type(value, name) for name in types):
    return f"{label} must be {' or '.join(types)}"
  if "enum" in schema and value not in schema["enum"]:
    return f"{label} must be {' or '.join(map(_written, schema['enum']))}"
  if schema.get("anyOf"):
    problem = _choice_error(value, schema["anyOf"], where)
    if problem:
      return problem
  if isinstance(value, str):
    return _string_error(value, schema, label)
  if isinstance(value, Mapping):
    return _object_error(value, schema, where)
  if isinstance(value, list | tuple):
    return _array_error(value, schema, label)
  if isinstance(value, int | float) and not isinstance(value, bool):
    return _number_error(value, schema, label)
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
    name: _read(value, _accepted_types(properties.get(name, {})))
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
  if "null" in types and value == "null":
    return None
  if not {"array", "object"}.isdisjoint(types):
    try:
      read = json.loads(value)
    except (ValueError, RecursionError):
      return value
    return read if isinstance(read, list | dict) else value
  return value


def _type_names(schema: Mapping[str, Any]) -> tuple[str, ...]:
  declared = schema.get("type", ())
  return (declared,) if isinstance(declared, str) else tuple(declared)


def _accepted_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
  choices = schema.get("anyOf", ())
  return sum(map(_accepted_types, choices), _type_names(schema))


def _has_type(value: Any, name: str) -> bool:
  if isinstance(value, bool):  # Python's bool is an int, JSON's is not
    return name == "boolean"
  return isinstance(value, _TYPES[name])


def _choice_error(value: Any, choices: Any, where: str) -> str:
  """Says what is wrong by the choice that is for such values, if one is."""
  problems = [argument_error(value, choice, where=where) for choice in choices]
  if not all(problems):
    return ""
  for choice, problem in zip(choices, problems, strict=True):
    if any(_has_type(value, name) for name in _type_names(choice)):
      return problem
  types = dict.fromkeys(_accepted_types({"anyOf": choices}))
  if not types:
    return problems[0]
  return f"{where or 'arguments'} must be {' or '.join(types)}"


def _number_error(value: float, schema: Mapping[str, Any], label: str) -> str:
  if value < schema.get("minimum", value):
    return f"{label} must be at least {schema['minimum']}"
  if value > schema.get("maximum", value):
    return f"{label} must be at most {schema['maximum']}"
  if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
    return f"{label} must be more than {schema['exclusiveMinimum']}"
  if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
    return f"{label} must be less than {schema['exclusiveMaximum']}"
  return ""


def _array_error(value: Any, schema: Mapping[str, Any], label: str) -> str:
  if len(value) < schema.get("minItems", 0):
    return f"{label} needs at least {schema['minItems']} items"
  if len(value) > schema.get("maxItems", len(value)):
    return f"{label} takes at most {schema['maxItems']} items"
  return _first(
    argument_error(item, schema.get("items", {}), where=f"{label}[{index}]")
    for index, item in enumerate(value)
  )


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
  prefix = f"{where}." if where else ""
  missing = [name for name in schema.get("required", ()) if name not in value]
  if missing:
    return f"missing argument {prefix}{missing[0]}"
  unknown = [name for name in value if name not in properties]
  extra = schema.get("additionalProperties", not properties)
  if unknown and extra is False:
    return f"unknown argument {prefix}{unknown[0]}"
  children = dict(properties)
  if isinstance(extra, Mapping):
    children |= dict.fromkeys(unknown, extra)
  return _first(
    argument_error(value[name], child, where=f"{prefix}{name}")
    for name, child in children.items()
    if name in value
  )


def _written(value: Any) -> str:
  return value if isinstance(value, str) else json.dumps(value)


def _first(errors: Any) -> str:
  return next((error for error in errors if error), "")
