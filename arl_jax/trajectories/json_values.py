"""Nested Python values as strict JSON, equal again when they are read."""

from collections.abc import Mapping
import math
from typing import Any

# A JSON object with one of these as its only key stands for what JSON lacks.
_TUPLE, _FLOAT, _DICT = "$tuple", "$float", "$dict"
_NOT_FINITE = ("nan", "inf", "-inf")


def encode_value(value: Any, where: str) -> Any:
  """Turns a value into one that JSON can hold.

  Tuples, numbers that are not finite and dicts with a key that begins with `$`
  become an object with the only key `$tuple`, `$float` or `$dict`.

  Args:
    value: None, text, booleans, numbers, and lists, tuples and mappings with
      text as keys, of such values.
    where: names the value in errors.

  Raises:
    ValueError: something else is in it; says where and what.
  """
  try:
    return _encode(value, where)
  except RecursionError:
    raise ValueError(
      f"{where} is nested too deeply, or holds itself; expected values of JSON"
    ) from None


def decode_value(value: Any, where: str) -> Any:
  """Undoes `encode_value`.

  Raises:
    ValueError: an object that stands for another value is not one of those
      that `encode_value` writes.
  """
  if isinstance(value, list):
    return [_decode(item, where, index) for index, item in enumerate(value)]
  if not isinstance(value, dict):
    return value
  tag = next(iter(value), "")
  if not tag.startswith("$"):
    return {key: _decode(item, where, key) for key, item in value.items()}
  (content, *more) = value.values()
  if not more and tag == _TUPLE and isinstance(content, list):
    return tuple(decode_value(content, where))
  if not more and tag == _DICT and isinstance(content, dict):
    return {key: _decode(item, where, key) for key, item in content.items()}
  if not more and tag == _FLOAT and content in _NOT_FINITE:
    return float(content)
  raise ValueError(
    f"{where} is {value!r}; expected one of {_TUPLE}, {_FLOAT} and {_DICT}"
    " where a key begins with $"
  )


def encode_float(value: float) -> float | str:
  """A float as JSON: text where it is not finite."""
  number = float(value)
  return number if math.isfinite(number) else str(number)


def decode_float(value: Any, where: str) -> float:
  """Undoes `encode_float`.

  Raises:
    ValueError: it is no number.
  """
  fine = isinstance(value, int | float) and not isinstance(value, bool)
  if not fine and value not in _NOT_FINITE:
    raise ValueError(
      f"{where} is {value!r}; expected a number or one of"
      f" {', '.join(_NOT_FINITE)}"
    )
  return float(value)


def _encode(value: Any, where: str) -> Any:
  if isinstance(value, float):
    number = encode_float(value)
    return {_FLOAT: number} if isinstance(number, str) else number
  if value is None or isinstance(value, str | bool | int):
    return value
  if isinstance(value, list | tuple):
    items = [
      _encode(item, f"{where}[{index}]") for index, item in enumerate(value)
    ]
    return {_TUPLE: items} if isinstance(value, tuple) else items
  if not isinstance(value, Mapping):
    raise ValueError(
      f"{where} is a {type(value).__name__}; expected values of JSON: None,"
      " text, booleans, numbers, lists, tuples, dicts. Convert it where it is"
      " made"
    )
  for key in value:
    if not isinstance(key, str):
      raise ValueError(
        f"{where} has the key {key!r}; expected text as keys, as JSON has no"
        " others. Convert it where it is made"
      )
  items = {key: _encode(item, f"{where}.{key}") for key, item in value.items()}
  return {_DICT: items} if any(key[:1] == "$" for key in items) else items


def _decode(item: Any, where: str, key: str | int) -> Any:
  """Spares plain values the name that only an error needs."""
  if not isinstance(item, list | dict):
    return item
  inner = f"[{key}]" if isinstance(key, int) else f".{key}"
  return decode_value(item, where + inner)
