"""The tools of an airline desk over one episode's view of the database."""

from collections.abc import Callable, Mapping
import functools
import inspect
import json
import re
from typing import Any, Literal

from arl_jax.envs import airline_text
from arl_jax.envs.airline_data import AirlineData
from arl_jax.envs.airline_state import AirlineState
from arl_jax.envs.docstrings import read_docstring
from arl_jax.envs.tools import Tool, ToolError

Observations = Literal["json", "brief"]
OBSERVATIONS: tuple[Observations, ...] = ("json", "brief")
TRANSFER = "transfer_to_human_agents"
# The toolkit lets Python evaluate expressions: a power of powers would never
# end, and a number before a parenthesis is a call.
_NOT_ARITHMETIC = re.compile(r"\*\s*\*|[\d.)]\s*\(|\)\s*[\d.]")
_MAX_EXPRESSION_CHARS = 200
# Amounts beyond it have more digits than Python writes.
_MAX_NUMBER = 10**9

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "minimum": -_MAX_NUMBER, "maximum": _MAX_NUMBER}


def _record(**properties: Mapping[str, Any]) -> dict[str, Any]:
  return {
    "type": "object",
    "properties": properties,
    "required": list(properties),
  }


def _list_of(**properties: Mapping[str, Any]) -> dict[str, Any]:
  return {"type": "array", "items": _record(**properties)}


# A parameter means the same in all tools that have it.
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
  "amount": _NUMBER,
  "cabin": {"type": "string", "enum": ["business", "economy", "basic_economy"]},
  "date": _TEXT,
  "destination": _TEXT,
  "expression": {"type": "string", "maxLength": _MAX_EXPRESSION_CHARS},
  "flight_number": _TEXT,
  "flight_type": {"type": "string", "enum": ["round_trip", "one_way"]},
  "flights": _list_of(flight_number=_TEXT, date=_TEXT),
  "insurance": {"type": "string", "enum": ["yes", "no"]},
  "nonfree_baggages": _NUMBER,
  "origin": _TEXT,
  "passengers": _list_of(first_name=_TEXT, last_name=_TEXT, dob=_TEXT),
  "payment_id": _TEXT,
  "payment_methods": _list_of(payment_id=_TEXT, amount=_NUMBER),
  "reservation_id": _TEXT,
  "summary": _TEXT,
  "total_baggages": _NUMBER,
  "user_id": _TEXT,
}


def make_tools(
  data: AirlineData,
  state: AirlineState,
  *,
  observations: Observations = "json",
) -> dict[str, Tool]:
  """Makes the 14 tools of one episode, by name.

  They run on the event loop: each takes microseconds, and the search for
  connections a fraction of a second at the most.

  Args:
    data: whose toolkit they are.
    state: what they read and change.
    observations: `json` shows records as the toolkit has them, `brief` in a
      few labelled lines, and after a change only what was changed.
  """
  if observations not in OBSERVATIONS:
    raise ValueError(
      f"observations is {observations!r}; expected one of {OBSERVATIONS}"
    )
  toolkit = data.toolkit(state)
  write = airline_text.write_brief if observations == "brief" else _write_json
  tools = {}
  for name, description, parameters in _declarations(data.toolkit):
    method = getattr(toolkit, name)
    if name == "calculate":
      method = functools.partial(_calculate, method)
    tools[name] = Tool(
      name=name,
      description=description,
      parameters=parameters,
      function=functools.partial(_run, method, write, name),
      inline=True,
    )
  return tools


@functools.cache
def write_names(toolkit: type[Any]) -> frozenset[str]:
  """Names of the tools that change the database."""
  return frozenset(
    name
    for name, method in inspect.getmembers(toolkit, inspect.isfunction)
    if getattr(method, "__mutates_state__", False)
  )


@functools.cache
def _declarations(
  toolkit: type[Any],
) -> tuple[tuple[str, str, dict[str, Any]], ...]:
  """Name, description and schema of each tool; from its docstring."""
  found = []
  for name, method in inspect.getmembers(toolkit, inspect.isfunction):
    if not hasattr(method, "__tool__"):
      continue
    description, described = read_docstring(inspect.getdoc(method) or "")
    names = [each for each in inspect.signature(method).parameters][1:]
    properties = {
      each: {**_PARAMETERS[each], "description": described[each]}
      for each in names
    }
    found.append((name, description, _record(**properties)))
  return tuple(found)


def _run(
  method: Callable[..., Any],
  write: Callable[[str, Any], str],
  name: str,
  /,
  **arguments: Any,
) -> str:
  try:
    result = method(**arguments)
  except (ValueError, ArithmeticError) as error:
    raise ToolError(str(error)) from error
  return write(name, result)


def _calculate(method: Callable[..., Any], expression: str) -> str:
  if _NOT_ARITHMETIC.search(expression):
    raise ToolError("write numbers, + - * / between them, and parentheses")
  try:
    return method(expression=expression)
  except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
    raise ToolError(f"{expression!r} is no expression") from error


def _write_json(name: str, result: Any) -> str:
  del name  # all look the same
  if isinstance(result, str):
    return result
  return json.dumps(_plain(result), ensure_ascii=False)


def _plain(value: Any) -> Any:
  """Records as JSON values, those in lists, too."""
  if isinstance(value, list | tuple):
    return [_plain(each) for each in value]
  return value.model_dump(mode="json", exclude_none=True)
