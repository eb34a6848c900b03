"""A collector that reads instead of sampling."""

import asyncio
from collections.abc import Callable, Sequence
import pathlib
from typing import Any, Self

from arl_jax.episode import Group
from arl_jax.evaluate import Evaluation
from arl_jax.run.collector import Cursor
from arl_jax.run.settings import RolloutSettings
from arl_jax.trajectories import store


class StoredBatches:
  """Brings back the steps of an earlier run, one for one."""

  def __init__(
    self,
    folder: str | pathlib.Path,
    *,
    version: int,
    rollout: RolloutSettings,
  ):
    """Opens a folder of trajectories.

    Args:
      folder: with a file for each step.
      version: the first step to read.
      rollout: the sizes that a step has to fit.
    """
    self._folder = pathlib.Path(folder)
    self._rollout = rollout
    self._version = version

  async def __aenter__(self) -> Self:
    return self

  async def __aexit__(self, *exc: object) -> None:
    del exc

  async def measure(self) -> Evaluation | None:
    """Returns None: there is no engine."""
    return None

  def start(self) -> None:
    """Does nothing: all is there."""

  async def next_batch(self) -> tuple[Group, ...]:
    """Reads the groups of the next step.

    Raises:
      ValueError: if the store does not have that step, or it does not fit.
    """
    check_steps(self._folder, self._version, self._version + 1)
    groups = await asyncio.to_thread(
      store.read_step, self._folder, self._version
    )
    check_sizes(
      groups, self._rollout, folder=self._folder, version=self._version
    )
    return groups

  def close(self, groups: Sequence[Group]) -> None:
    """Does nothing: no task is in flight."""

  def publish(self, weights: Any, version: int) -> None:
    """Drops the weights: nobody samples."""

  def set_version(self, version: int) -> None:
    """Moves on to the next step."""
    self._version = version

  def cursor(self) -> Cursor:
    """Returns one that a run from a store has no use for."""
    return {"next_ordinal": 0, "open_ordinals": []}

  def waiting(self) -> tuple[Group, ...]:
    """Returns none."""
    return ()

  def metrics(self) -> dict[str, float]:
    """Returns none."""
    return {}

  def components(self) -> dict[str, Callable[[], str]]:
    """Returns how far reading is."""
    return {"store": lambda: f"step {self._version}"}


def check_store(
  folder: str | pathlib.Path, *, num_steps: int, rollout: RolloutSettings
) -> None:
  """Looks whether a run can begin to train on a store.

  Raises:
    ValueError: if a step is missing, or the first does not fit the run.
  """
  check_steps(folder, 0, num_steps)
  check_sizes(store.read_step(folder, 0), rollout, folder=folder, version=0)


def check_steps(folder: str | pathlib.Path, first: int, end: int) -> None:
  """Looks whether a store has the steps from `first` to before `end`.

  Raises:
    ValueError: if the folder is no store, or one of them is missing.
  """
  try:
    steps = store.read_steps(pathlib.Path(folder))
  except ValueError as error:
    raise ValueError(f"config.debug.store: {error}") from error
  for step in range(first, end):
    if step not in steps:
      have = f"steps {min(steps)} to {max(steps)}" if steps else "none"
      raise ValueError(
        f"config.debug.store {folder} has no step {step}; it holds {have}. "
        "Lower config.learner.num_steps, or train from a store whose "
        "config.store.max_gigabytes kept all steps"
      )


def check_sizes(
  groups: Sequence[Group],
  rollout: RolloutSettings,
  *,
  folder: str | pathlib.Path,
  version: int,
) -> None:
  """Looks whether a step of a store fits the sizes of a run.

  Raises:
    ValueError: if it has more or longer rows.
  """
  episodes = [episode for group in groups for episode in group.episodes]
  rows = [row for episode in episodes for row in episode.rows]
  for what, found, key, most in (
    (
      "rows",
      len(rows),
      "tasks_per_step * group_size * max_rows_per_episode",
      rollout.max_rows,
    ),
    (
      "tokens in a row",
      max(map(len, rows), default=0),
      "max_length",
      rollout.max_length,
    ),
    (
      "turns in an episode",
      max(len(episode.turns) for episode in episodes),
      "max_turns",
      rollout.max_turns,
    ),
  ):
    if found > most:
      raise ValueError(
        f"step {version} of config.debug.store {folder} has"
        f" {found} {what}, and config.rollout.{key} is {most}; use the"
        " rollout section of the run that made the store"
      )
