"""Reads the schemas and results of MCP servers into what tools here know."""

from collections.abc import Mapping
import json
import re
from typing import Any

from arl_jax.envs import tool_arguments

# Rules that are given in other words or that say nothing about a value.
_DROPPED = {
  "$schema",
  "$defs",
  "$id",
  "definitions",
  "const",
  "oneOf",
  "required",
  "title",
}
_KNOWN = tool_arguments.RULES | tool_arguments.ANNOTATIONS - {"title"}


def supported_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a schema that `Tool` takes, as strict as it can be.

  References inside the schema are written out. `const` becomes an `enum` of
  one, `oneOf` becomes `anyOf`. All other rules that are not checked here are
  moved to the description, so that the policy reads them; the server checks
  them.

  Args:
    schema: JSON Schema of a tool's arguments.
  """
  return _convert(schema, schema, ()) | {"type": "object"}


def content_text(result: Any) -> str:
  """Returns what a tool of an MCP server answered as text.

  Args:
    result: the SDK's `CallToolResult`. Parts that are no text are named; where
      there are no parts, the structured content is written as JSON.
  """
  if not result.content and result.structured_content is not None:
    return json.dumps(result.structured_content, ensure_ascii=False)
  return "\n".join(map(_part_text, result.content))


def _part_text(part: Any) -> str:
  if part.type == "text":
    return part.text
  if part.type == "resource_link":
    return part.uri
  if part.type == "resource":
    text = getattr(part.resource, "text", None)
    return part.resource.uri if text is None else text
  return f"[{part.type}, {part.mime_type}: left out]"


def _convert(
  schema: Any, root: Mapping[str, Any], seen: tuple[str, ...]
) -> dict[str, Any]:
  """Converts one part; `seen` are the references that lead to it."""
  if not isinstance(schema, Mapping):
    return {}  # true: anything goes
  reference = schema.get("$ref")
  if isinstance(reference, str):
    if reference in seen:
      return {}  # a part of itself: the server will see
    rest = {name: rule for name, rule in schema.items() if name != "$ref"}
    seen = (*seen, reference)
    schema = {**_find(root, reference), **rest}
    return _convert(schema, root, seen)
  found = {name: rule for name, rule in schema.items() if _is_known(name, rule)}
  if "const" in schema:
    found["enum"] = [schema["const"]]
  choices = schema.get("anyOf", schema.get("oneOf"))
  if choices:
    found["anyOf"] = [_convert(choice, root, seen) for choice in choices]
  if "properties" in schema:
    found["properties"] = {
      name: _convert(child, root, seen)
      for name, child in schema["properties"].items()
    }
  declared = found.get("properties", {})
  needed = [name for name in found.pop("required", ()) if name in declared]
  if needed:
    found["required"] = needed
  if isinstance(schema.get("additionalProperties"), Mapping):
    extra = _convert(schema["additionalProperties"], root, seen)
    found["additionalProperties"] = extra
  if "items" in schema:
    found["items"] = _convert(schema["items"], root, seen)
  moved = {
    name: rule
    for name, rule in schema.items()
    if name not in found and name not in _DROPPED
  }
  if moved:
    rules = json.dumps(moved, ensure_ascii=False, default=str)
    text = found.get("description", "")
    found["description"] = f"{text} {rules}".strip()
  return found


def _is_known(name: str, rule: Any) -> bool:
  if name == "pattern":  # that of another language's regular expressions
    try:
      re.compile(rule)
    except (re.error, TypeError):
      return False
  # In old drafts this says of `minimum` that it is exclusive.
  return name in _KNOWN and not (
    name.startswith("exclusive") and isinstance(rule, bool)
  )


def _find(root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
  """Returns the part that a reference such as `#/$defs/Place` names."""
  found: Any = root
  if not reference.startswith("#"):
    return {}
  for part in reference[1:].split("/")[1:]:
    name = part.replace("~1", "/").replace("~0", "~")
    found = found.get(name) if isinstance(found, Mapping) else None
  return found if isinstance(found, Mapping) else {}
