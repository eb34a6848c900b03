"""A folder of checkpoints that survives bad disks with a clear message."""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import errno
import json
import logging
import pathlib
import shutil
from typing import Any, Self, TypeVar

import jax

from arl_jax.learner.checkpoint_errors import (
  DamagedError,
  check_same_model,
  damaged_item,
  hide_late_errors,
  is_disk_full,
  is_not_from_orbax,
)
from arl_jax.types import PyTree

_STATE, _REFERENCE, _EXTRAS = "state", "reference", "extras"
_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restored:
  """What was saved under one step.

  Attributes:
    step: under which step.
    state: the saved state, on the mesh of the target.
    extras: what was saved with it as JSON.
    reference: parameters of the reference policy; None if they were not asked
      for, or were not saved.
  """

  step: int
  state: PyTree
  extras: dict[str, Any]
  reference: PyTree | None


def has_checkpoint(folder: str) -> bool:
  """True if the folder holds a checkpoint, whole or damaged.

  Where all are damaged, `CheckpointStore.restore` says so: a run must not begin
  again over what may be repaired. A local folder is not opened.
  """
  if "://" in folder:
    with CheckpointStore(folder, create=False) as store:
      return store.latest_step() is not None
  path = pathlib.Path(folder)
  return path.is_dir() and any(
    inner.name.isdecimal() and inner.is_dir() for inner in path.iterdir()
  )


class CheckpointStore:
  """Saves and restores learner states below one folder.

  A checkpoint is written beside the others and renamed when it is whole, so a
  save that fails or is killed never costs an earlier one. One that is damaged
  later is skipped for the one before.
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
      create: make the folder if there is none; False to only read: nothing in
        the folder is then changed.
      asynchronous: write while training goes on; errors then surface at the
        next `save`, `restore`, `wait` or `close`.

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
    logging.getLogger("absl").addFilter(is_not_from_orbax)
    self._ocp = ocp
    self._may_write = create
    self._options = ocp.CheckpointManagerOptions(
      max_to_keep=keep,
      create=create,
      cleanup_tmp_directories=create,
      enable_async_checkpointing=asynchronous,
      # Else one step with wrong metadata would keep the folder shut.
      lightweight_initialize=True,
    )
    self._manager = self._open()

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def latest_step(self) -> int | None:
    """Returns the newest step, whole or damaged, None if there is none."""
    return self._manager.latest_step()

  def all_steps(self) -> list[int]:
    """Returns the steps that are kept, whole or damaged, oldest first."""
    return sorted(self._manager.all_steps())

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
    hide_late_errors()
    try:
      self._manager.save(step, args=self._ocp.args.Composite(**args))
    except Exception as error:
      if not is_disk_full(error):
        raise
      raise self._full_disk() from error

  def restore(
    self, step: int | None, target: PyTree, *, with_reference: bool = False
  ) -> Restored:
    """Restores a state onto the mesh of `target`, whatever mesh it came from.

    With None for the step, damaged checkpoints are skipped with a warning, and
    all items are of the newest one that is whole. In a store that may write,
    those skipped are renamed to `damaged-<step>`, so that the run can save
    these steps again; they are for the user to look at and delete.

    Args:
      step: which checkpoint, None for the newest that is whole.
      target: a state of arrays, or of `jax.ShapeDtypeStruct`s with shardings
        such as `state.abstract_state` makes.
      with_reference: also restore the reference policy's parameters, onto the
        mesh of `target.params`.

    Raises:
      ValueError: if there is no such checkpoint or it is damaged; without a
        step, if all are, with the reason for each; or if it is of another
        model.
    """

    def read(step: int) -> Restored:
      items, extras = self._saved_items(step)
      reference = None
      state = self._restore_item(step, _STATE, target)
      if with_reference and _REFERENCE in items:
        reference = self._restore_item(step, _REFERENCE, target.params)
      return Restored(
        step=step, state=state, extras=extras, reference=reference
      )

    restored, damaged = self._read_whole(step, read)
    if damaged and self._may_write:
      self._set_aside(damaged)
    return restored

  def read_extras(self, step: int | None) -> dict[str, Any]:
    """Reads only the extras, to compare fingerprints before restoring.

    With None for the step, checkpoints are skipped whose damage shows without
    reading arrays; `restore` may have to skip more.
    """
    return self._read_whole(step, lambda step: self._saved_items(step)[1])[0]

  def wait(self) -> None:
    """Waits until the last save is on disk; raises what went wrong in it."""
    try:
      self._manager.wait_until_finished()
    except Exception as error:
      if not is_disk_full(error):
        raise
      raise self._full_disk() from error

  def close(self) -> None:
    """Finishes the last save and lets go of the folder."""
    try:
      self.wait()
    finally:
      self._manager.close()
      logging.getLogger("absl").removeFilter(is_not_from_orbax)

  def _open(self) -> Any:
    ocp = self._ocp
    return ocp.CheckpointManager(
      self._folder,
      item_names=(_STATE, _REFERENCE, _EXTRAS),
      item_handlers={
        _STATE: ocp.StandardCheckpointHandler(),
        _REFERENCE: ocp.StandardCheckpointHandler(),
        _EXTRAS: ocp.JsonCheckpointHandler(),
      },
      options=self._options,
    )

  def _read_whole(
    self, step: int | None, read: Callable[[int], _T]
  ) -> tuple[_T, list[int]]:
    """Reads a step, or the newest that can be read, and lists those skipped."""
    self.wait()  # a save that is not finished would look like damage
    steps = self.all_steps()
    if not steps:
      raise ValueError(
        f"no checkpoint in {self._folder}; train first, or check the path"
      )
    if step is not None and step not in steps:
      raise ValueError(
        f"no checkpoint of step {step} in {self._folder}; found {steps}"
      )
    reasons: dict[int, str] = {}
    for candidate in reversed(steps) if step is None else [step]:
      try:
        found = read(candidate)
      except DamagedError as error:
        # Only the text: the error holds arrays that were read already.
        reasons[candidate] = str(error)
        continue
      for other, reason in reasons.items():
        _LOGGER.warning(
          "checkpoint %s/%d is damaged: %s; using step %d instead",
          self._folder,
          other,
          reason,
          candidate,
        )
      return found, list(reasons)
    if step is not None:
      others = [other for other in steps if other != step]
      remedy = f"; others are {others}" if others else ""
      raise ValueError(
        f"checkpoint {self._folder}/{step} is damaged: {reasons[step]}. Ask for"
        f" another step{remedy}"
      )
    listed = "".join(f"\n  step {s}: {text}" for s, text in reasons.items())
    raise ValueError(
      f"no checkpoint in {self._folder} is whole:{listed}\nBring one back from"
      " a copy, or begin again in a new folder"
    )

  def _saved_items(self, step: int) -> tuple[set[str], dict[str, Any]]:
    """Returns the names of a step's items, and its extras.

    Raises:
      DamagedError: if anything is missing that shows without reading arrays.
    """
    folder = self._manager.directory / str(step)
    try:
      items = set(_read_json(folder / "_CHECKPOINT_METADATA")["item_handlers"])
    except Exception as error:
      raise damaged_item("metadata", error) from error
    for item in sorted({_STATE, _EXTRAS, *items}):
      if item not in items or not (folder / item).is_dir():
        raise DamagedError(f"its {item} is missing")
    extras = self._read(step, _EXTRAS, self._ocp.args.JsonRestore())
    if not isinstance(extras, dict):
      raise DamagedError(f"its extras are {extras!r}, not a JSON object")
    for item in sorted(items - {_EXTRAS}):
      try:
        _read_json(folder / item / "_METADATA")
      except Exception as error:
        raise damaged_item(item, error) from error
    return items, extras

  def _restore_item(self, step: int, item: str, target: PyTree) -> PyTree:
    abstract = jax.tree.map(self._ocp.utils.to_shape_dtype_struct, target)
    self._check_same_model(step, item, abstract)
    return self._read(step, item, self._ocp.args.StandardRestore(abstract))

  def _read(self, step: int, item: str, args: Any) -> Any:
    composite = self._ocp.args.Composite(**{item: args})
    hide_late_errors()
    try:
      return self._manager.restore(step, args=composite)[item]
    except Exception as error:
      raise damaged_item(item, error) from error

  def _check_same_model(self, step: int, item: str, target: PyTree) -> None:
    """Compares leaf by leaf before any value is read."""
    hide_late_errors()
    try:
      saved = self._manager.item_metadata(step)[item].tree
    except Exception as error:
      raise damaged_item(item, error) from error
    check_same_model(saved, target, name=f"{self._folder}/{step}")

  def _set_aside(self, steps: Iterable[int]) -> None:
    """Renames damaged steps, so that they can be saved again."""
    directory = self._manager.directory
    for step in steps:
      name = f"damaged-{step}"
      number = 1
      while (directory / name).exists():
        number += 1
        name = f"damaged-{step}-{number}"
      (directory / str(step)).rename(directory / name)
      _LOGGER.warning(
        "renamed the damaged checkpoint %s/%d to %s; delete it when you have"
        " seen what is wrong",
        self._folder,
        step,
        name,
      )
    self._manager.close()
    self._manager = self._open()

  def _full_disk(self) -> OSError:
    # What was written of the failed step takes space that nobody can use.
    for partial in pathlib.Path(self._folder).glob("*.orbax-checkpoint-tmp"):
      shutil.rmtree(partial, ignore_errors=True)
    self._manager.reload()
    return OSError(
      errno.ENOSPC,
      f"the disk is full: could not save a checkpoint in {self._folder}. Free"
      " space there or lower how many checkpoints are kept, then resume;"
      f" steps {self.all_steps()} are whole",
    )


def _read_json(file: Any) -> dict[str, Any]:
  found = json.loads(file.read_text())
  if not isinstance(found, dict):
    raise ValueError(f"{file.name} holds no JSON object")
  return found
