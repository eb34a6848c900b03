"""Tasks of BFCL's multi-turn categories, read from the package bfcl-eval.

The package is not imported for that, as its dependencies are many: the data
lie in it as files, and `pip install --no-deps bfcl-eval` brings them.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
import functools
import importlib.util
import json
import pathlib
from typing import Any, Literal

from arl_jax.episode import Task, ToolCall

Variant = Literal["base", "miss_func", "miss_param", "long_context"]
VARIANTS: tuple[Variant, ...] = (
  "base",
  "miss_func",
  "miss_param",
  "long_context",
)
INSTALL = "pip install --no-deps bfcl-eval mpmath"
# The file that describes the methods of each class.
_DOC_FILES = {
  "GorillaFileSystem": "gorilla_file_system",
  "MathAPI": "math_api",
  "MessageAPI": "message_api",
  "TicketAPI": "ticket_api",
  "TradingBot": "trading_bot",
  "TravelAPI": "travel_booking",
  "TwitterAPI": "posting_api",
  "VehicleControlAPI": "vehicle_control",
}
APIS = tuple(_DOC_FILES)
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
# A gold call gives such an id as text, which its class answers like any other
# that it does not know.
_ALSO_TEXT = ("ticket_id",)


def read_tasks(
  variant: Variant = "base", *, apis: Iterable[str] = APIS
) -> tuple[Task, ...]:
  """Reads the tasks of a category, in the order of its file.

  `task.hidden` has what an episode is staged and judged by:

  - `apis`: the classes that the tools belong to;
  - `config`: the state in which each starts;
  - `long_context`: whether the classes add filler to it;
  - `turns`: what the user says in each turn, None where tools are added;
  - `held_back`: the tools that are added, by the turn, which is a string;
  - `gold`: the calls that solve each turn, with `name` and `arguments`.

  A task whose gold calls use a tool before it is added cannot be solved, and is
  left out; there is one, in `miss_func`. The level is the number of the
  user's turns.

  Args:
    variant: one of `VARIANTS`. In `miss_func` a tool is missing until a later
      turn, in `miss_param` the user leaves something out until a later turn.
    apis: classes; a task that needs any other is left out.

  Raises:
    ModuleNotFoundError: bfcl-eval is not installed.
    ValueError: unknown variant or class.
  """
  if variant not in VARIANTS:
    raise ValueError(f"variant is {variant!r}; expected one of {VARIANTS}")
  wanted = frozenset(apis)
  if not wanted <= set(APIS):
    raise ValueError(f"apis has {sorted(wanted - set(APIS))}; known are {APIS}")
  name = f"BFCL_v4_multi_turn_{variant}.json"
  entries = _read_lines(_folder() / "data" / name)
  answers = {
    answer["id"]: answer["ground_truth"]
    for answer in _read_lines(_folder() / "data" / "possible_answer" / name)
  }
  tasks = [
    _task(entry, answers[entry["id"]], variant)
    for entry in entries
    if wanted.issuperset(entry["involved_classes"])
  ]
  return tuple(task for task in tasks if _is_solvable(task))


@functools.cache
def read_schemas(api: str) -> Mapping[str, Mapping[str, Any]]:
  """Reads what a class's methods are for: by name, a schema of each.

  Returns:
    `description` and `parameters`, which is JSON Schema. The types of the file
    are those of Python.
  """
  name = f"{_DOC_FILES[api]}.json"
  methods = _read_lines(_folder() / "data" / "multi_turn_func_doc" / name)
  schemas: dict[str, Mapping[str, Any]] = {}
  for method in methods:
    parameters = _json_schema(method["parameters"])
    if not parameters.get("properties"):
      parameters["additionalProperties"] = False
    schemas[method["name"]] = {
      "description": method["description"],
      "parameters": parameters,
    }
  return schemas


def parse_call(text: str, parameters: Mapping[str, Sequence[str]]) -> ToolCall:
  """Reads a call in Python's syntax; nothing of it is run.

  Args:
    text: such as `mv(source='a', destination='b')`; all arguments are
      literals.
    parameters: the parameter names of each function, in order.

  Raises:
    ValueError: it is no such call.

  Example:
    >>> parse_call("sort('a.txt')", {"sort": ["file_name"]})
    ToolCall(name='sort', arguments={'file_name': 'a.txt'})
  """
  try:
    call = ast.parse(text, mode="eval").body
  except SyntaxError as error:
    raise ValueError(f"{text!r} is not Python: {error.msg}") from error
  if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
    raise ValueError(f"{text!r} is no call; expected name(argument=value)")
  name = call.func.id
  if name not in parameters:
    raise ValueError(f"{text!r} calls {name}, which is unknown")
  order = parameters[name]
  if len(call.args) > len(order):
    raise ValueError(f"{text!r} has more arguments than {list(order)}")
  values = [
    *zip(order, call.args, strict=False),
    *((keyword.arg, keyword.value) for keyword in call.keywords),
  ]
  arguments: dict[str, Any] = {}
  for parameter, value in values:
    if parameter is None or parameter in arguments:
      raise ValueError(f"{text!r} gives an argument twice, or without a name")
    try:
      arguments[parameter] = ast.literal_eval(value)
    except ValueError as error:
      raise ValueError(
        f"{text!r} has an argument {parameter} that is no literal"
      ) from error
  return ToolCall(name=name, arguments=arguments)


def gold_calls(task: Task, turn: int) -> tuple[ToolCall, ...]:
  """Returns the calls that solve a turn; none if nothing is to be done."""
  return tuple(ToolCall(**call) for call in task.hidden["gold"][turn])


def _task(
  entry: Mapping[str, Any], answers: Sequence[Sequence[str]], variant: Variant
) -> Task:
  parameters = {
    name: tuple(schema["parameters"].get("properties", ()))
    for api in entry["involved_classes"]
    for name, schema in read_schemas(api).items()
  }
  turns = [
    "\n".join(message["content"] for message in turn) if turn else None
    for turn in entry["question"]
  ]
  gold = [
    [_record(parse_call(text, parameters)) for text in turn] for turn in answers
  ]
  return Task(
    task_id=entry["id"],
    prompt=turns[0] or "",
    level=len(turns),
    hidden={
      "apis": entry["involved_classes"],
      "config": entry.get("initial_config", {}),
      "long_context": variant == "long_context",
      "turns": turns,
      "held_back": entry.get("missed_function", {}),
      "gold": gold,
    },
  )


def _is_solvable(task: Task) -> bool:
  return not any(
    call.name in names
    for turn, names in task.hidden["held_back"].items()
    for earlier in range(int(turn))
    for call in gold_calls(task, earlier)
  )


def _record(call: ToolCall) -> dict[str, Any]:
  return {"name": call.name, "arguments": dict(call.arguments)}


def _json_schema(schema: Any) -> Any:
  """Names types as JSON Schema does, wherever a type is named."""
  found = dict(schema)
  found["type"] = _JSON_TYPES.get(schema["type"], schema["type"])
  if "properties" in schema:
    found["properties"] = {
      name: _json_schema(child) for name, child in schema["properties"].items()
    }
    for name in found["properties"].keys() & _ALSO_TEXT:
      found["properties"][name]["type"] = ["integer", "string"]
  if "items" in schema:
    found["items"] = _json_schema(schema["items"])
  return found


def _read_lines(path: pathlib.Path) -> Iterator[Any]:
  for line in path.read_text(encoding="utf-8").split("\n"):
    if line.strip():
      yield json.loads(line)


def _folder() -> pathlib.Path:
  spec = importlib.util.find_spec("bfcl_eval")
  if spec is None or spec.origin is None:
    raise ModuleNotFoundError(
      f"the tasks of BFCL need the package bfcl-eval; {INSTALL}"
    )
  return pathlib.Path(spec.origin).parent
