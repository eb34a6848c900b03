"""A folder of checkpoints that survives bad disks with a clear message."""

from collections.abc import Callable, Mapping
import dataclasses
import errno
import json
import logging
import pathlib
import shutil
import sys
from typing import Any, Self

import jax
import jax.numpy as jnp

from arl_jax.types import PyTree

_STATE, _REFERENCE, _EXTRAS = "state", "reference", "extras"


def has_checkpoint(folder: str) -> bool:
  """True if the folder holds a checkpoint; a local one is not opened."""
  if "://" in folder:
    with CheckpointStore(folder) as store:
      return store.latest_step() is not None
  path = pathlib.Path(folder)
  return path.is_dir() and any(file.name.isdecimal() for file in path.iterdir())


class CheckpointStore:
  """Saves and restores learner states below one folder.

  A checkpoint is written beside the others and renamed when it is whole, so a
  save that fails or is killed never costs an earlier one.
  """

  def __init__(
    self,
    folder: str,
    *,
    keep: int = 3,
    create: bool = True,
    asynchronous: bool = True,
  ) -> None:
    """Opens the folder.

    Args:
      folder: where checkpoints are, one folder per step.
      keep: how many of the latest are kept.
      create: make the folder if there is none; False to only read.
      asynchronous: write while training goes on; errors then surface at the
        next `save`, `wait` or `close`.

    Raises:
      ValueError: if the folder is missing and not to be made, or is a file.
    """
    import orbax.checkpoint as ocp

    # A bucket's address is left alone; a local path has to be absolute.
    local = "://" not in folder
    self._folder = str(pathlib.Path(folder).absolute()) if local else folder
    if local and pathlib.Path(self._folder).is_file():
      raise ValueError(
        f"checkpoint folder {self._folder} is a file; name a folder"
      )
    if local and not create and not pathlib.Path(self._folder).exists():
      raise ValueError(
        f"checkpoint folder {self._folder} does not exist; train first, or"
        " check the path"
      )
    # What orbax logs from its threads is raised here too, in one line.
    logging.getLogger("absl").addFilter(_not_from_orbax)
    self._ocp = ocp
    self._manager = ocp.CheckpointManager(
      self._folder,
      item_names=(_STATE, _REFERENCE, _EXTRAS),
      item_handlers={
        _STATE: ocp.StandardCheckpointHandler(),
        _REFERENCE: ocp.StandardCheckpointHandler(),
        _EXTRAS: ocp.JsonCheckpointHandler(),
      },
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        create=create,
        cleanup_tmp_directories=create,
        enable_async_checkpointing=asynchronous,
      ),
    )

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def latest_step(self) -> int | None:
    """Returns the step of the newest checkpoint, None if there is none."""
    return self._manager.latest_step()

  def save(
    self,
    step: int,
    state: PyTree,
    extras: Mapping[str, Any],
    *,
    ref_params: PyTree | None = None,
  ) -> None:
    """Saves a state under its step.

    The arrays are copied before this returns, so the state may be donated.

    Args:
      step: higher than that of any checkpoint in the folder.
      state: a tree of arrays; typed keys are allowed.
      extras: values of JSON: data cursor, versions, fingerprint of the config.
      ref_params: parameters of the reference policy, if there is one.

    Raises:
      ValueError: if the step is not new or extras is not JSON.
      OSError: if the disk is full; earlier checkpoints are kept.
    """
    latest = self.latest_step()
    if latest is not None and step <= latest:
      raise ValueError(
        f"step is {step} but {self._folder} already holds step {latest}; save"
        " a later step, or use a new folder"
      )
    try:
      plain = json.loads(json.dumps(dict(extras)))
    except TypeError as error:
      raise ValueError(f"extras must be values of JSON: {error}") from error
    args = {
      _STATE: self._ocp.args.StandardSave(state),
      _EXTRAS: self._ocp.args.JsonSave(plain),
    }
    if ref_params is not None:
      args[_REFERENCE] = self._ocp.args.StandardSave(ref_params)
    _hide_late_errors()
    try:
      self._manager.save(step, args=self._ocp.args.Composite(**args))
    except Exception as error:
      if not _is_disk_full(error):
        raise
      raise self._full_disk() from error

  def restore(
    self, step: int | None, target: PyTree
  ) -> tuple[PyTree, dict[str, Any]]:
    """Restores a state onto the mesh of `target`, whatever mesh it came from.

    Args:
      step: which checkpoint, None for the newest.
      target: a state of arrays, or of `jax.ShapeDtypeStruct`s with shardings
        such as `state.abstract_state` makes.

    Returns:
      The state and its extras.

    Raises:
      ValueError: if there is no such checkpoint, it cannot be read, or it is
        of another model.
    """
    return self._restore(step, _STATE, target), self.read_extras(step)

  def restore_reference(self, step: int | None, target: PyTree) -> PyTree:
    """Restores the reference policy's parameters, see `restore`."""
    return self._restore(step, _REFERENCE, target)

  def read_extras(self, step: int | None) -> dict[str, Any]:
    """Reads only the extras, to compare fingerprints before restoring."""
    return self._read(
      self._existing(step), _EXTRAS, self._ocp.args.JsonRestore()
    )

  def wait(self) -> None:
    """Waits until the last save is on disk; raises what went wrong in it."""
    try:
      self._manager.wait_until_finished()
    except Exception as error:
      if not _is_disk_full(error):
        raise
      raise self._full_disk() from error

  def close(self) -> None:
    """Finishes the last save and lets go of the folder."""
    try:
      self.wait()
    finally:
      self._manager.close()
      logging.getLogger("absl").removeFilter(_not_from_orbax)

  def _existing(self, step: int | None) -> int:
    steps = sorted(self._manager.all_steps())
    if not steps:
      raise ValueError(
        f"no checkpoint in {self._folder}; train first, or check the path"
      )
    if step is not None and step not in steps:
      raise ValueError(
        f"no checkpoint of step {step} in {self._folder}; found {steps}"
      )
    return steps[-1] if step is None else step

  def _restore(self, step: int | None, item: str, target: PyTree) -> PyTree:
    step = self._existing(step)
    abstract = jax.tree.map(self._ocp.utils.to_shape_dtype_struct, target)
    self._check_same_model(step, item, abstract)
    return self._read(step, item, self._ocp.args.StandardRestore(abstract))

  def _read(self, step: int, item: str, args: Any) -> Any:
    composite = self._ocp.args.Composite(**{item: args})
    _hide_late_errors()
    try:
      return self._manager.restore(step, args=composite)[item]
    except Exception as error:
      raise self._unreadable(step, item) from error

  def _check_same_model(self, step: int, item: str, target: PyTree) -> None:
    """Compares leaf by leaf before any value is read."""
    _hide_late_errors()
    try:
      saved = _shapes(self._manager.item_metadata(step)[item].tree)
    except Exception as error:
      raise self._unreadable(step, item) from error
    wanted = _shapes(target)
    for name in [*wanted, *saved]:
      if saved.get(name) != wanted.get(name):
        found, expected = saved.get(name), wanted.get(name)
        raise ValueError(
          f"checkpoint {self._folder}/{step} is of another model or"
          f" optimizer: {name} has shape {found or 'none'} in the checkpoint"
          f" and {expected or 'none'} in this run; use the config that it was"
          " trained with, or a new workdir"
        )

  def _unreadable(self, step: int, item: str) -> ValueError:
    others = sorted(set(self._manager.all_steps()) - {step})
    remedy = f"; whole steps may be {others}" if others else ""
    return ValueError(
      f"checkpoint {self._folder}/{step} is damaged: its {item} cannot be"
      f" read. Delete that folder to go on from an earlier step{remedy}"
    )

  def _full_disk(self) -> OSError:
    # What was written of the failed step takes space that nobody can use.
    for partial in pathlib.Path(self._folder).glob("*.orbax-checkpoint-tmp"):
      shutil.rmtree(partial, ignore_errors=True)
    self._manager.reload()
    return OSError(
      errno.ENOSPC,
      f"the disk is full: could not save a checkpoint in {self._folder}. Free"
      " space there or lower how many checkpoints are kept, then resume;"
      f" steps {sorted(self._manager.all_steps())} are whole",
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


def _is_disk_full(error: BaseException) -> bool:
  # The array writer reports the system's error as text.
  return getattr(
    error, "errno", None
  ) == errno.ENOSPC or "No space left on device" in str(error)


def _hide_late_errors() -> None:
  """Keeps what outlives a failed read or write from printing tracebacks.

  The first failure closes the event loop of the array store. Reads and writes
  of other arrays end later, from other threads and at any time, and find no
  loop or no listener; what they then print only hides the message that
  matters. So the filters stay.
  """
  if not isinstance(sys.unraisablehook, _LateErrorFilter):
    sys.unraisablehook = _LateErrorFilter(sys.unraisablehook)
  logging.getLogger("asyncio").addFilter(_not_a_late_error)


@dataclasses.dataclass(frozen=True)
class _LateErrorFilter:
  report: Callable[[Any], object]

  def __call__(self, unraisable: Any) -> None:
    if "Event loop is closed" not in str(unraisable.exc_value):
      self.report(unraisable)


def _not_a_late_error(record: logging.LogRecord) -> bool:
  text = record.getMessage()
  late = "exception was never retrieved" in text and any(
    name in f"{text}{record.exc_text or ''}{record.exc_info}"
    for name in ("tensorstore", "orbax", "ts_utils", "zarr", "ocdbt")
  )
  return not late and "Event loop is closed" not in text


def _not_from_orbax(record: logging.LogRecord) -> bool:
  return "orbax" not in record.pathname
