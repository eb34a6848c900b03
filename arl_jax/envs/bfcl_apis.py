"""The stateful classes that BFCL's tools belong to, one set for an episode."""

from collections.abc import Callable, Iterable, Mapping
import copy
import functools
import hashlib
import importlib
import json
import math
import threading
from typing import Any

from arl_jax.envs import bfcl_tasks
from arl_jax.envs.tools import Tool, ToolError

_SOURCES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_MODULES = {
  "GorillaFileSystem": "gorilla_file_system",
  "MathAPI": "math_api",
  "MessageAPI": "message_api",
  "TicketAPI": "ticket_api",
  "TradingBot": "trading_bot",
  "TravelAPI": "travel_booking",
  "TwitterAPI": "posting_api",
  "VehicleControlAPI": "vehicle_control",
}
# Arithmetic on longer numbers would hold up all episodes; Python refuses to
# print integers from 4300 digits on.
_MAX_DIGITS = 1000
# The precision of mpmath is the same for all threads.
_MATH_LOCK = threading.Lock()
_MISSING = object()


class BfclApis:
  """Instances of the classes of one episode, which no other one shares.

  Args:
    apis: names of classes.
    config: the state in which each starts, by class; it is copied.
    long_context: whether the classes add filler to it.

  Raises:
    ModuleNotFoundError: bfcl-eval or mpmath is not installed.
  """

  def __init__(
    self,
    apis: Iterable[str],
    config: Mapping[str, Any],
    *,
    long_context: bool = False,
  ):
    self._instances: dict[str, Any] = {}
    self._methods: dict[str, Callable[..., Any]] = {}
    for api in apis:
      instance = _load_class(api)()
      if hasattr(instance, "_load_scenario"):
        scenario = copy.deepcopy(config.get(api, {}))
        instance._load_scenario(scenario, long_context=long_context)
        # The filler is shared by all instances, and calls change it.
        instance = copy.deepcopy(instance)
      self._instances[api] = instance
      for name in bfcl_tasks.read_schemas(api):
        self._methods[name] = getattr(instance, name)
    self._math = frozenset(
      bfcl_tasks.read_schemas("MathAPI") if "MathAPI" in self._instances else ()
    )

  def call(self, name: str, arguments: Mapping[str, Any]) -> str:
    """Runs a method; returns its result as BFCL writes it.

    Raises:
      ToolError: it would compute with too many digits.
      Exception: whatever the method raises.
    """
    # What a class keeps of an argument, later calls may change.
    arguments = copy.deepcopy(dict(arguments))
    if name not in self._math:
      return _written(self._methods[name](**arguments))
    _check_digits(name, arguments)
    with _MATH_LOCK:
      return _written(self._methods[name](**arguments))

  def tools(self, run: Callable[..., str]) -> dict[str, Tool]:
    """Makes a tool of each documented method, by name.

    Args:
      run: called with the name, and with the arguments by name.
    """
    return {
      name: Tool(
        name=name,
        description=schema["description"],
        parameters=schema["parameters"],
        function=functools.partial(_call_by_name, run, name),
        inline=True,
      )
      for api in self._instances
      for name, schema in bfcl_tasks.read_schemas(api).items()
    }

  def has_state_of(self, gold: "BfclApis") -> bool:
    """Compares all public attributes of all instances.

    Where the policy got its files into a loop, so that the comparison has no
    end, they differ from the gold ones.
    """
    try:
      return all(
        getattr(self._instances[api], name, _MISSING) == value
        for api, instance in gold._instances.items()
        for name, value in vars(instance).items()
        if not name.startswith("_")
      )
    except RecursionError:
      return False

  def state_key(self) -> str | None:
    """Names the state by its public attributes; None if they have no end."""
    try:
      state = repr(
        [
          sorted(
            (name, value)
            for name, value in vars(instance).items()
            if not name.startswith("_")
          )
          for instance in self._instances.values()
        ]
      )
    except RecursionError:
      return None
    return hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()


def _call_by_name(
  run: Callable[..., str], name: str, /, **arguments: Any
) -> str:
  return run(name, arguments)


def _load_class(api: str) -> Any:
  try:
    module = importlib.import_module(f"{_SOURCES}.{_MODULES[api]}")
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      f"{api} of BFCL needs the package {error.name}; {bfcl_tasks.INSTALL}"
    ) from error
  return getattr(module, api)


def _written(result: Any) -> str:
  if isinstance(result, str):
    return result
  if isinstance(result, dict):
    try:
      return json.dumps(result)
    except (TypeError, ValueError):
      pass  # such as a number of mpmath
  return str(result)


def _check_digits(name: str, arguments: Mapping[str, Any]) -> None:
  for digits in ("precision", "decimal_places"):
    if abs(arguments.get(digits, 0)) > _MAX_DIGITS:
      raise ToolError(f"{digits} may be {_MAX_DIGITS} at most")
  if name == "power":
    base, exponent = arguments["base"], arguments["exponent"]
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
      if abs(exponent) * math.log10(abs(base)) > _MAX_DIGITS:
        raise ToolError(f"the result has more than {_MAX_DIGITS} digits")
