"""Checks of arguments, each of which names the argument that is wrong."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from typing import Any, cast

from jax import core
import jax.numpy as jnp
import numpy as np

from arl_jax.types import Array


def is_concrete(*values: Any) -> bool:
  """True if every value can be looked at now, outside of a trace."""
  return not any(isinstance(value, core.Tracer) for value in values)


def _check_shape(
  name: str, array: Array, layout: str, shape: Sequence[int | None]
) -> None:
  """Raises if `array` is not laid out as said; None fits any size."""
  fits = len(array.shape) == len(shape) and all(
    want is None or want == have
    for want, have in zip(shape, array.shape, strict=True)
  )
  if not fits:
    sizes = ", ".join("any" if n is None else str(n) for n in shape)
    raise ValueError(
      f"{name} has shape {array.shape}; expected {layout}, here ({sizes}). "
      "Every array of one call must agree on its axes."
    )


def array(name: str, value: Any) -> Array:
  """Turns a list, NumPy array or JAX array into a JAX array of numbers."""
  try:
    return jnp.asarray(value)
  except (TypeError, ValueError) as error:
    raise ValueError(
      f"{name} is a {type(value).__name__}; expected an array of numbers"
    ) from error


def floats(
  name: str, value: Any, layout: str, shape: Sequence[int | None] | None
) -> Array:
  """Returns `value` as float32, of any shape if `shape` is None."""
  numbers = array(name, value)
  if jnp.issubdtype(numbers.dtype, jnp.complexfloating):
    raise ValueError(f"{name} has dtype {numbers.dtype}; expected real numbers")
  if shape is not None:
    _check_shape(name, numbers, layout, shape)
  return numbers.astype(jnp.float32)


def mask(
  name: str, value: Any, layout: str, shape: Sequence[int | None] | None
) -> Array:
  """Returns `value` as bool; refuses weights and ids, which a cast would hide.

  Integers other than 0 and 1 are found outside of a trace only.

  Args:
    name: the argument's.
    value: bool, or integers that are 0 or 1.
    layout: the axes in words.
    shape: the size of each axis, None for any; None for any shape.
  """
  numbers = array(name, value)
  if shape is not None:
    _check_shape(name, numbers, layout, shape)
  if numbers.dtype == jnp.bool_:
    return numbers
  advice = (
    "A mask says what counts, not how much: multiply weights into the values, "
    f"or pass {name} != 0"
  )
  if not jnp.issubdtype(numbers.dtype, jnp.integer):
    raise ValueError(
      f"{name} has dtype {numbers.dtype}; expected bool, or integers that are "
      f"0 and 1. {advice}"
    )
  if is_concrete(numbers):
    others = np.asarray(numbers)
    others = others[(others != 0) & (others != 1)]
    if others.size:
      raise ValueError(f"{name} holds {others[0]}; expected 0 and 1. {advice}")
  return numbers.astype(jnp.bool_)


def ids(
  name: str, value: Any, layout: str, shape: Sequence[int | None]
) -> Array:
  """Returns `value` as int32; refuses anything but integers."""
  numbers = array(name, value)
  if not jnp.issubdtype(numbers.dtype, jnp.integer):
    raise ValueError(
      f"{name} has dtype {numbers.dtype}; expected integers. "
      "dense_ids() turns any hashable keys into ids."
    )
  _check_shape(name, numbers, layout, shape)
  return numbers.astype(jnp.int32)


def ids_in_range(
  name: str,
  values: Array,
  live: Array,
  *,
  num_name: str,
  num: int,
  lowest: int = 0,
) -> None:
  """Raises if a live id is outside `[lowest, num)`; silent under a trace."""
  if not is_concrete(values, live):
    return
  counted = np.asarray(values)[np.asarray(live)]
  if counted.size and counted.min() < lowest:
    raise ValueError(
      f"{name} holds {counted.min()}; the smallest id allowed is {lowest}"
    )
  if counted.size and counted.max() >= num:
    raise ValueError(
      f"{name} holds {counted.max()}, but {num_name} is {num}; "
      f"{num_name} must be larger than every id"
    )


def count(name: str, value: Any) -> int:
  """Returns a static, positive int; shapes depend on it."""
  if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
    raise ValueError(
      f"{name} is {value!r}; expected a Python int. Under jax.jit pass it "
      "through static_argnames, because shapes depend on it."
    )
  number = int(cast(int, value))
  if number < 1:
    raise ValueError(f"{name} is {number}; expected at least 1")
  return number


def choice(name: str, value: Any, allowed: Sequence[str]) -> None:
  """Raises if `value` is not one of the allowed words."""
  if value not in allowed:
    raise ValueError(f"{name} is {value!r}; expected one of {tuple(allowed)}")


def within(
  name: str, value: Any, low: float, high: float = float("inf")
) -> None:
  """Raises if a number is outside `[low, high]`; silent under a trace."""
  if not is_concrete(value):
    return
  number = np.asarray(value)
  if not np.all((number >= low) & (number <= high)):
    raise ValueError(f"{name} is {value}; expected it in [{low}, {high}]")


def positive(name: str, value: Any) -> None:
  """Raises if a number is not above 0; silent under a trace."""
  if is_concrete(value) and not np.all(np.asarray(value) > 0):
    raise ValueError(f"{name} is {value}; expected it above 0")
