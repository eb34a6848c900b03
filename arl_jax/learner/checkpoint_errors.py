"""Tells what is wrong when a checkpoint cannot be read or written."""

from collections.abc import Callable
import dataclasses
import errno
import logging
import re
import sys
from typing import Any
import warnings

import jax
import jax.numpy as jnp

from arl_jax.types import PyTree

_MAX_REASON_LENGTH = 240
# Words of the array reader for faults of this machine, not of the files.
_NOT_DAMAGE = ("RESOURCE_EXHAUSTED", "PERMISSION_DENIED")

# Of the coroutines by which arrays are read and written.
_NEVER_BEGUN = r"coroutine '.*(_read_|_write_|serialize).*' was never awaited"


class DamagedError(Exception):
  """Something of a checkpoint cannot be read; the text says what and why."""


def damaged_item(item: str, error: Exception) -> DamagedError:
  """Returns what to raise where an item of a checkpoint cannot be read.

  Args:
    item: which of the checkpoint's items.
    error: what reading it raised.

  Raises:
    Exception: `error` itself, if the files may be whole: where memory is full
      or access is denied, an older checkpoint is no remedy.
  """
  named = any(word in str(error) for word in _NOT_DAMAGE)
  if named or isinstance(error, MemoryError | PermissionError):
    raise error
  return DamagedError(f"its {item} cannot be read ({_reason(error)})")


def check_same_model(saved: PyTree, target: PyTree, *, name: str) -> None:
  """Compares leaf by leaf what was saved with what is to be restored.

  Args:
    saved: a tree of what has a shape, as the checkpoint tells it.
    target: a tree of arrays or `jax.ShapeDtypeStruct`s.
    name: of the checkpoint.

  Raises:
    ValueError: naming the first leaf that only one has or whose shapes differ.
  """
  found, expected = _shapes(saved), _shapes(target)
  for leaf in [*expected, *found]:
    if found.get(leaf) != expected.get(leaf):
      raise ValueError(
        f"checkpoint {name} is of another model or optimizer: {leaf} has shape"
        f" {found.get(leaf, 'none')} in the checkpoint and"
        f" {expected.get(leaf, 'none')} in this run; use the config that it was"
        " trained with, or a new workdir"
      )


def _shapes(tree: PyTree) -> dict[str, str]:
  """Maps each leaf's dotted path to its shape as it is on disk."""
  shapes = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    if hasattr(leaf, "dtype") and jnp.issubdtype(
      leaf.dtype, jax.dtypes.prng_key
    ):
      leaf = jax.eval_shape(jax.random.key_data, leaf)
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    shapes[name] = str(tuple(leaf.shape))
  return shapes


def is_disk_full(error: BaseException) -> bool:
  """True if a write failed for lack of space."""
  # The array writer reports the system's error as text.
  return getattr(
    error, "errno", None
  ) == errno.ENOSPC or "No space left on device" in str(error)


def hide_late_errors() -> None:
  """Keeps what outlives a failed read or write from printing tracebacks.

  The first failure closes the event loop of the array store. Reads and writes
  of other arrays end later, from other threads and at any time, and find no
  loop or no listener, or never begin; what they then print only hides the
  message that matters. So the filters stay.
  """
  warnings.filterwarnings(
    "ignore", message=_NEVER_BEGUN, category=RuntimeWarning
  )
  if not isinstance(sys.unraisablehook, _LateErrorFilter):
    sys.unraisablehook = _LateErrorFilter(sys.unraisablehook)
  logging.getLogger("asyncio").addFilter(_not_a_late_error)


def is_not_from_orbax(record: logging.LogRecord) -> bool:
  """Filters what orbax logs; it is raised too, in one line."""
  return "orbax" not in record.pathname


@dataclasses.dataclass(frozen=True)
class _LateErrorFilter:
  report: Callable[[Any], object]

  def __call__(self, unraisable: Any) -> None:
    text = str(unraisable.exc_value)
    if "Event loop is closed" not in text and "TensorStore" not in text:
      self.report(unraisable)


def _not_a_late_error(record: logging.LogRecord) -> bool:
  text = record.getMessage()
  late = "exception was never retrieved" in text and any(
    name in f"{text}{record.exc_text or ''}{record.exc_info}"
    for name in ("tensorstore", "orbax", "ts_utils", "zarr", "ocdbt")
  )
  return not late and "Event loop is closed" not in text


def _reason(error: Exception) -> str:
  """Returns the error's kind and its text in one line."""
  text = " ".join(str(error).split())
  # The array reader adds how it was called and where in its source it failed.
  text = re.split(r" \[(?:tensorstore_spec|source locations)=", text)[0]
  if len(text) > _MAX_REASON_LENGTH:
    text = f"{text[:_MAX_REASON_LENGTH]}..."
  return f"{type(error).__name__}: {text}"
