"""Says when there are too many failures to be bad luck."""

import collections
from collections.abc import Iterable
import logging

from arl_jax.episode import Episode

_LOGGER = logging.getLogger(__name__)
# Causes that are told apart; a text with a number in it may never repeat.
_MAX_CAUSES = 100
_OTHER_CAUSES = "other causes"


class FailureBudget:
  """Counts episodes that did not finish, and ends a run of nothing else.

  One broken episode costs that episode. A tool that is down breaks all of
  them, and a learner would wait for ever without this.

  Attributes:
    num_failed: episodes that did not finish, in total.
    num_by_cause: the same, by the first line of the cause.
  """

  def __init__(self, max_in_a_row: int):
    """Makes a budget.

    Args:
      max_in_a_row: episodes that may fail one after the other, over all
        groups; the next one is an error.
    """
    if max_in_a_row < 0:
      raise ValueError(f"max_in_a_row is {max_in_a_row}; expected 0 or more")
    self.num_failed = 0
    self.num_by_cause: collections.Counter[str] = collections.Counter()
    self._max_in_a_row = max_in_a_row
    self._in_a_row = 0
    self._first = ""

  def count(self, episodes: Iterable[Episode]) -> None:
    """Counts the episodes of a group that has ended.

    Raises:
      RuntimeError: if the budget is spent, with the first cause and the last.
    """
    for episode in episodes:
      if episode.status.finished:
        self._in_a_row = 0
      else:
        self._count_failure(episode)

  def _count_failure(self, episode: Episode) -> None:
    cause = episode.error or f"status {episode.status} without a cause"
    if not self.num_failed:
      _LOGGER.warning(
        "an episode of task %r did not finish; later ones are only counted: %s",
        episode.task.task_id,
        cause,
      )
    line = cause.splitlines()[0]
    is_new = line not in self.num_by_cause
    if is_new and len(self.num_by_cause) >= _MAX_CAUSES:
      line = _OTHER_CAUSES
    self.num_by_cause[line] += 1
    self.num_failed += 1
    if not self._in_a_row:
      self._first = cause
    self._in_a_row += 1
    if self._in_a_row > self._max_in_a_row:
      raise RuntimeError(
        f"{self._in_a_row} episodes in a row did not finish, and max_in_a_row "
        f"is {self._max_in_a_row}; mend the cause or allow more.\n"
        f"The first cause: {self._first}\nThe last cause: {cause}"
      )
