"""Makes a tool of a Python function with type hints and a docstring."""

from collections.abc import Callable, Mapping
import dataclasses
import enum
import functools
import inspect
import json
import typing
from typing import Any

from arl_jax.envs import tool_arguments
from arl_jax.envs.docstrings import read_docstring
from arl_jax.envs.hint_schemas import HintError, HintSchema, schema_of_hint
from arl_jax.envs.tools import Tool, ToolError

# What `Tool` takes besides what the function tells.
_OPTIONS = {field.name for field in dataclasses.fields(Tool)} - {
  "name",
  "description",
  "parameters",
  "function",
}


def tool_from_function(
  function: Callable[..., Any],
  *,
  name: str | None = None,
  description: str | None = None,
  **options: Any,
) -> Tool:
  """Makes a tool of a function; its signature becomes the JSON Schema.

  A hint may be `str`, `int`, `float`, `bool`, `list[T]`, `dict[str, T]`,
  `Literal`, an `Enum`, a dataclass or a `TypedDict`, each also `| None`; and a
  union of the first four. `Annotated[T, "text"]` describes an argument, as
  does the section `Args:` of a Google-style docstring. An argument with a
  default may be left out.

  The policy's arguments are checked against the schema. The function gets
  members of its enums and instances of its dataclasses, not their JSON; what a
  dataclass refuses with a ValueError is a refusal of the tool.

  Args:
    function: plain or a coroutine function, a method, or a callable object.
    name: of the tool, if it is not that of the function.
    description: for the policy, if it is not the docstring up to its first
      section.
    **options: of `Tool`, such as `timeout_seconds` or `cost`.

  Raises:
    ValueError: names the function and the parameter whose hint is missing or
      not supported, or says what else the function lacks.

  Example:
    >>> def add(a: int, b: int = 1) -> int:
    ...   '''Adds two numbers.
    ...
    ...   Args:
    ...     a: the first.
    ...   '''
    ...   return a + b
    >>> tool_from_function(add).parameters["properties"]["a"]
    {'type': 'integer', 'description': 'the first.'}
  """
  name = _function_name(function) if name is None else name
  unknown = sorted(set(options) - _OPTIONS)
  if unknown:
    raise ValueError(
      f"tool {name} got the options {unknown}; expected some of"
      f" {sorted(_OPTIONS)}"
    )
  text, described = read_docstring(inspect.getdoc(function) or "")
  # The class of a callable object describes how it is made, not called.
  if not (inspect.isroutine(function) or _is_partial(function)):
    text, described = read_docstring(inspect.getdoc(_called(function)) or "")
  description = text if description is None else description
  if not description:
    raise ValueError(
      f"tool {name} has no docstring, so a policy cannot know what it is for;"
      " write one, or pass description"
    )
  hints = _hints(function, name)
  properties: dict[str, Any] = {}
  required: list[str] = []
  converters: dict[str, Callable[[Any], Any]] = {}
  for parameter in inspect.signature(function).parameters.values():
    found = _read_parameter(parameter, hints, name)
    schema = dict(found.schema)
    if parameter.name in described:
      schema["description"] = described[parameter.name]
    if parameter.default is parameter.empty:
      required.append(parameter.name)
    else:
      schema |= _shown_default(parameter.default, schema)
    properties[parameter.name] = schema
    if found.convert is not None:
      converters[parameter.name] = found.convert
  strangers = sorted(set(described) - set(properties))
  if strangers:
    raise ValueError(
      f"the docstring of tool {name} describes {strangers}; its parameters are"
      f" {list(properties)}"
    )
  parameters: dict[str, Any] = {"type": "object", "properties": properties}
  if required:
    parameters["required"] = required
  if not properties:
    parameters["additionalProperties"] = False
  return Tool(
    name=name,
    description=description,
    parameters=parameters,
    function=_converting(function, converters),
    **options,
  )


@typing.overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@typing.overload
def tool(**options: Any) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
  """Decorates a function that is a tool; see `tool_from_function`.

  Example:
    @tool(timeout_seconds=5.0, cost=0.1)
    async def search(query: str) -> str:
      '''Searches the corpus.'''
  """
  if function is None:
    return functools.partial(tool_from_function, **options)
  return tool_from_function(function, **options)


def _function_name(function: Callable[..., Any]) -> str:
  inner = function.func if _is_partial(function) else function
  name = getattr(inner, "__name__", type(inner).__name__)
  if not name.isidentifier():
    raise ValueError(f"a tool cannot be called {name!r}; pass name")
  return name


def _is_partial(function: Any) -> typing.TypeGuard[functools.partial[Any]]:
  return isinstance(function, functools.partial)


def _called(function: Callable[..., Any]) -> Any:
  """Returns the function whose hints and docstring count."""
  if _is_partial(function):
    return _called(function.func)
  if inspect.isroutine(function):
    return function
  return type(function).__call__


def _hints(function: Callable[..., Any], name: str) -> Mapping[str, Any]:
  if inspect.isclass(function):
    raise ValueError(f"tool {name} is a class; expected a function")
  try:
    return typing.get_type_hints(_called(function), include_extras=True)
  except Exception as error:
    raise ValueError(
      f"the type hints of tool {name} cannot be read: {error}; write hints"
      " whose names are known where the function is defined"
    ) from error


def _read_parameter(
  parameter: inspect.Parameter, hints: Mapping[str, Any], name: str
) -> HintSchema:
  label = f"parameter {parameter.name} of tool {name}"
  if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
    raise ValueError(
      f"{label} takes any number of arguments; name each, or use list[T] or"
      " dict[str, T]"
    )
  if parameter.kind == parameter.POSITIONAL_ONLY:
    raise ValueError(
      f"{label} is positional only; arguments of tools are passed by name"
    )
  if parameter.name not in hints:
    raise ValueError(f"{label} has no type hint; add one, such as str")
  try:
    return schema_of_hint(hints[parameter.name])
  except HintError as error:
    raise ValueError(f"{label}: {error}") from error


def _shown_default(default: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the default as a rule of the schema, if JSON can write it."""
  default = default.value if isinstance(default, enum.Enum) else default
  if tool_arguments.argument_error(default, schema):
    return {}
  try:
    json.dumps(default, allow_nan=False)
  except (TypeError, ValueError):
    return {}
  return {"default": default}


def _converting(
  function: Callable[..., Any],
  converters: Mapping[str, Callable[[Any], Any]],
) -> Callable[..., Any]:
  """Wraps a function so that it gets what its hints say instead of JSON."""

  def convert(arguments: dict[str, Any]) -> dict[str, Any]:
    for name in converters.keys() & arguments.keys():
      try:
        arguments[name] = converters[name](arguments[name])
      except ValueError as error:
        raise ToolError(f"{name}: {error}") from error
    return arguments

  if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
    _called(function)
  ):

    @functools.wraps(_called(function))
    async def call_later(**arguments: Any) -> Any:
      return await function(**convert(arguments))

    return call_later
  if not converters:
    return function

  @functools.wraps(_called(function))
  def call(**arguments: Any) -> Any:
    return function(**convert(arguments))

  return call
