"""An endless stream of tasks whose position is one integer."""

from collections.abc import Sequence

from arl_jax.actors.seeds import mix_seed
from arl_jax.episode import Task


class TaskSource:
  """Goes through the tasks again and again, each epoch in another order.

  The task at an ordinal is a function of (tasks, seed, ordinal) alone, so a
  run that stores the next ordinal continues exactly where it was.
  """

  def __init__(self, tasks: Sequence[Task], *, seed: int):
    if not tasks:
      raise ValueError("tasks is empty; give at least one task")
    self._tasks = tuple(tasks)
    self._seed = seed
    self._orders: dict[int, list[int]] = {}

  def __len__(self) -> int:
    """Tasks in one epoch."""
    return len(self._tasks)

  def task_at(self, ordinal: int) -> Task:
    """Returns the task at a position of the stream, 0 being the first."""
    if ordinal < 0:
      raise ValueError(f"ordinal is {ordinal}; expected 0 or more")
    epoch, offset = divmod(ordinal, len(self._tasks))
    return self._tasks[self._order(epoch)[offset]]

  def _order(self, epoch: int) -> list[int]:
    if epoch not in self._orders:
      # Two epochs may be in flight at their border, no more.
      self._orders = {k: v for k, v in self._orders.items() if k == epoch - 1}
      # Sorting by a mix, not a library's shuffle, which may change with it.
      self._orders[epoch] = sorted(
        range(len(self._tasks)),
        key=lambda index: mix_seed(self._seed, epoch, index),
      )
    return self._orders[epoch]
