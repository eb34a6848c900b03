"""Tells what a program did wrong from what Monty does not have."""

import builtins
import importlib
import re
import sys
from typing import Any

from arl_jax.sandbox.sandbox import Status

# Modules that Monty has a part of; importing them here does nothing else.
_PARTIAL_MODULES = frozenset(
  "asyncio base64 bisect collections copy csv dataclasses datetime decimal"
  " functools hashlib itertools json math os pathlib random re sys time"
  " typing".split()
)
_NAME = re.compile(r"name '(\w+)' is not defined")
_MODULE = re.compile(r"No module named '(\w+)")
_IMPORT = re.compile(r"cannot import name '(\w+)' from '(\w+)'")
_MODULE_ATTRIBUTE = re.compile(r"module '(\w+)' has no attribute '(\w+)'")
_ATTRIBUTE = re.compile(
  r"(?:type object )?'(\w+)'(?: object)? has no attribute '(\w+)'"
)


def monty_status(error: Any) -> Status:
  """Returns the status of a program that ended with an error of Monty.

  Python has more than Monty. A name, module or attribute that Python has and
  Monty misses is unsupported, as is syntax that Monty cannot read.

  Args:
    error: a `pydantic_monty.MontyError` that is no crash.
  """
  inner = error.exception()
  text = str(inner)
  if isinstance(inner, MemoryError):
    return Status.MEMORY
  if isinstance(inner, TimeoutError) and "limit exceeded" in text:
    return Status.TIMEOUT
  if isinstance(inner, SystemExit):  # with a text, or without anything
    return Status.ERROR if text else Status.OK
  if isinstance(inner, SyntaxError):
    return Status.ERROR
  frames = error.traceback()
  # Such an error has no frame of the program, which cannot imitate it so.
  unreadable = isinstance(inner, NotImplementedError) and bool(
    frames and frames[-1].function_name is None
  )
  unknown = (
    "Internal error in monty" in text
    or "is not supported in this environment" in text
  )
  if unreadable or unknown or _is_in_python(inner, text):
    return Status.UNSUPPORTED
  return Status.ERROR


def _is_in_python(error: BaseException, text: str) -> bool:
  """Whether Python has what the error says is missing."""
  if isinstance(error, ModuleNotFoundError):
    found = _MODULE.match(text)
    return bool(found) and found[1] in sys.stdlib_module_names
  if isinstance(error, ImportError):
    found = _IMPORT.match(text)
    return bool(found) and _module_has(found[2], found[1])
  if isinstance(error, NameError):
    found = _NAME.match(text)
    return bool(found) and hasattr(builtins, found[1])
  if isinstance(error, AttributeError):
    if found := _MODULE_ATTRIBUTE.match(text):
      return _module_has(found[1], found[2])
    if found := _ATTRIBUTE.match(text):
      kind = getattr(builtins, found[1], None)
      return isinstance(kind, type) and hasattr(kind, found[2])
  return False


def _module_has(module: str, name: str) -> bool:
  if module not in _PARTIAL_MODULES:
    return False
  return hasattr(importlib.import_module(module), name)
