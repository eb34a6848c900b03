"""Hands whole groups from the actors to the learner."""

import asyncio
import collections
from collections.abc import Callable, Iterable

from arl_jax.actors.staleness import StalenessGate
from arl_jax.episode import Group


def oldest_version(group: Group) -> int | None:
  """Version of the oldest weights that sampled a token of the group."""
  versions = [
    int(row.policy_versions[row.action_mask].min())
    for episode in group.episodes
    for row in episode.rows
    if row.action_mask.any()
  ]
  return min(versions, default=None)


class GroupQueue:
  """A bounded queue; a full one holds the actors back.

  It asks the gate for the version of the weights, so that what was fresh
  when it was admitted is checked again when it is consumed.
  """

  def __init__(
    self,
    gate: StalenessGate,
    *,
    max_groups: int,
    on_stale: Callable[[Group], None] | None = None,
  ):
    """Makes an empty queue.

    Args:
      gate: knows the version and the staleness that is allowed.
      max_groups: groups that wait before `put` does.
      on_stale: called with every group that was dropped for its age, so that
        its task can run again or be counted.
    """
    if max_groups < 1:
      raise ValueError(f"max_groups is {max_groups}; expected 1 or more")
    self.num_stale = 0
    self._gate = gate
    self._max_groups = max_groups
    self._on_stale = on_stale
    self._groups: collections.deque[Group] = collections.deque()
    self._batch: list[Group] = []
    self._error: BaseException | None = None
    self._changed = asyncio.Event()

  def __len__(self) -> int:
    """Groups that nobody took yet."""
    return len(self._groups)

  @property
  def waiting(self) -> tuple[Group, ...]:
    """Groups that `get_batch` did not return yet, in the order of putting.

    Those that a call has collected for a batch that is not full are among
    them; one whose `put` still waits for room is not.
    """
    return (*self._batch, *self._groups)

  def restore(self, groups: Iterable[Group]) -> None:
    """Appends the groups of an earlier run, without waiting for room.

    The gate has to count them as accepted; see `StalenessGate.resume`.
    """
    self._groups.extend(groups)
    self._changed.set()

  async def put(self, group: Group) -> None:
    """Appends a group, after waiting for room."""
    while len(self._groups) >= self._max_groups:
      await self._wait()
    # Nothing is awaited from here on: the producer that called goes on to
    # count the group before the consumer can see it.
    self._groups.append(group)
    self._changed.set()

  async def get_batch(self, num_groups: int) -> tuple[Group, ...]:
    """Waits for groups that are fresh enough.

    A cancelled call loses nothing: the next one gets what it had collected.

    Args:
      num_groups: groups in the batch.

    Returns:
      The first `num_groups` that were put, in the order of their ordinals.

    Raises:
      RuntimeError: if the producer stopped; its error is the cause.
    """
    while True:
      self._raise_error()
      while self._groups and len(self._batch) < num_groups:
        self._batch.append(self._groups.popleft())
        self._changed.set()
      self._drop_stale()
      if len(self._batch) >= num_groups:
        break
      if not self._groups:
        await self._wait()
    batch, self._batch = self._batch[:num_groups], self._batch[num_groups:]
    return tuple(sorted(batch, key=lambda group: group.ordinal))

  def fail(self, error: BaseException) -> None:
    """Says that no more groups will come, and why; wakes who waits."""
    self._error = self._error or error
    self._changed.set()

  async def _wait(self) -> None:
    self._changed.clear()
    await self._changed.wait()
    self._raise_error()

  def _raise_error(self) -> None:
    if self._error is not None:
      raise RuntimeError(
        f"the producer of groups stopped: {type(self._error).__name__}: "
        f"{self._error}"
      ) from self._error

  def _drop_stale(self) -> None:
    fresh = []
    for group in self._batch:
      oldest = oldest_version(group)
      if oldest is None or (
        self._gate.version - oldest <= self._gate.max_staleness
      ):
        fresh.append(group)
        continue
      self.num_stale += 1
      self._gate.retract()
      if self._on_stale is not None:
        self._on_stale(group)
    self._batch = fresh
