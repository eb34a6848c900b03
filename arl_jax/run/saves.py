"""What a run leaves on disk to be gone on with, and to be learned from."""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import pathlib
from typing import Any, Self

from arl_jax.episode import Group
from arl_jax.learner.checkpoint import CheckpointStore
from arl_jax.run.learners import Advantages
from arl_jax.run.parts import RunParts
from arl_jax.run.settings import Settings
from arl_jax.trajectories import pending
from arl_jax.trajectories.store import TrajectoryStore
from arl_jax.types import LearnerState

_NEW_STREAM = {"next_ordinal": 0, "open_ordinals": ()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
  """Where a run begins or goes on.

  Attributes:
    state: of the learner.
    reference: parameters of the reference policy, None where unused.
    version: of the weights.
    cursor: where the stream of tasks stands.
    waiting: groups that are finished and not trained on.
  """

  state: LearnerState
  reference: Any = None
  version: int = 0
  cursor: Mapping[str, Any] = dataclasses.field(
    default_factory=lambda: dict(_NEW_STREAM)
  )
  waiting: tuple[Group, ...] = ()


class Saves:
  """Owns a run's checkpoints, its finished groups, and its trajectories.

  A checkpoint names the tasks that were given out and not trained on, and a
  resume runs them again. The groups among them that had finished lie beside
  it, and are used instead where they can be read.
  """

  def __init__(self, folder: pathlib.Path, settings: Settings):
    """Opens the folders below `folder`."""
    self._pending = folder / "pending"
    self._checkpoints = CheckpointStore(
      str(folder / "checkpoints"), keep=settings.checkpoint.keep
    )
    self._every = settings.checkpoint.every
    self._trajectories = TrajectoryStore(
      folder / "trajectories",
      max_bytes=math.ceil(settings.store.max_gigabytes * 2**30) or None,
    )
    self._stores = settings.store.max_gigabytes > 0 and settings.debug.samples
    self._saved: int | None = None

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *_: object) -> None:
    self._checkpoints.close()

  def restore(self, parts: RunParts) -> Start | None:
    """Returns where the newest whole checkpoint left the run, None if new."""
    if self._checkpoints.latest_step() is None:
      return None
    found = self._checkpoints.restore(
      None,
      parts.abstract_state(),
      with_reference=parts.settings.loss.kl_weight > 0,
    )
    self._saved = found.step
    # Also where none are stored from now on: what is there stays true.
    self._trajectories.truncate(found.step)
    cursor, waiting = {name: found.extras[name] for name in _NEW_STREAM}, ()
    finished = pending.load_pending(self._pending, found.step)
    if finished is not None:
      cursor, waiting = finished
    return Start(
      state=found.state,
      reference=found.reference,
      version=found.step,
      cursor=cursor,
      waiting=waiting,
    )

  def save(
    self,
    version: int,
    state: LearnerState,
    reference: Any,
    cursor: Mapping[str, Any],
    waiting: Sequence[Group],
  ) -> None:
    """Saves a run; at a version that was saved, only what finished since.

    Args:
      version: of the weights.
      state: of the learner.
      reference: parameters of the reference policy, None where unused.
      cursor: where the stream of tasks stands.
      waiting: groups that are finished and not trained on.
    """
    # Also where none waits: an older file of this version must not be believed.
    kept = {*self._checkpoints.all_steps(), self._saved or 0}
    pending.save_pending(
      self._pending, version, cursor, waiting, keep_versions=kept
    )
    if self._saved == version:
      return
    extras = {"version": version, **cursor}
    self._checkpoints.save(version, state, extras, ref_params=reference)
    self._saved = version

  def is_due(self, version: int) -> bool:
    """True if this version is one of those to be saved."""
    return version % self._every == 0

  def store(
    self,
    step: int,
    groups: Sequence[Group],
    advantages: Advantages | None,
  ) -> None:
    """Writes the episodes that a step was trained on."""
    if self._stores:
      self._trajectories.write(step, groups, advantages)

  def wait(self) -> None:
    """Waits until all is on disk; raises what went wrong."""
    self._checkpoints.wait()
