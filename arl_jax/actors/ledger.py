"""Knows which tasks of the stream are open: given out and not yet closed."""

from collections.abc import Iterable
import heapq
from typing import Any


class TaskLedger:
  """Gives out ordinals, and takes them back until they are closed.

  An ordinal is a task's position in the stream. It is open from the moment it
  is given out until somebody closes it: because it was trained on, or failed,
  or was replaced. One that is given back is open still, and is the next to be
  given out. So each ordinal is closed once, in whatever order groups end.
  """

  def __init__(
    self, *, next_ordinal: int = 0, open_ordinals: Iterable[int] = ()
  ):
    """Makes a ledger, or goes on with the one that made a `snapshot`.

    Args:
      next_ordinal: the first that was never given out.
      open_ordinals: those below it that were not closed; they are given out
        again, the smallest first.
    """
    self._next = int(next_ordinal)
    # How often each open ordinal has been given out before.
    self._attempts = {int(ordinal): -1 for ordinal in open_ordinals}
    wrong = [o for o in self._attempts if not 0 <= o < self._next]
    if self._next < 0 or wrong:
      raise ValueError(
        f"next_ordinal is {self._next} and open_ordinals has {sorted(wrong)}; "
        "expected ordinals of at least 0 and below next_ordinal"
      )
    self._returned = sorted(self._attempts)  # a heap

  def __contains__(self, ordinal: int) -> bool:
    """True if the ordinal is open."""
    return ordinal in self._attempts

  def take(self) -> int:
    """Gives out the smallest that was given back, else a new ordinal."""
    if self._returned:
      ordinal = heapq.heappop(self._returned)
    else:
      ordinal, self._next = self._next, self._next + 1
    self._attempts[ordinal] = self._attempts.get(ordinal, -1) + 1
    return ordinal

  def attempt(self, ordinal: int) -> int:
    """Times that an open ordinal was given out before this one."""
    self._check_taken(ordinal, "attempt")
    return self._attempts[ordinal]

  def give_back(self, ordinal: int) -> None:
    """Says that the task has to run again."""
    self._check_taken(ordinal, "give_back")
    heapq.heappush(self._returned, ordinal)

  def adopt(self, ordinal: int) -> None:
    """Says that the task of an open ordinal has run already.

    It stays open, and is not given out. For groups that a checkpoint holds.
    """
    if ordinal not in self._returned:
      raise RuntimeError(
        f"adopt({ordinal}): it is not waiting to be given out; only "
        f"{sorted(self._returned)} are"
      )
    self._returned.remove(ordinal)
    heapq.heapify(self._returned)

  def close(self, ordinal: int) -> None:
    """Says that the task is done with, and never runs again."""
    self._check_taken(ordinal, "close")
    del self._attempts[ordinal]

  def snapshot(self) -> dict[str, Any]:
    """Returns the arguments of a ledger that goes on from here.

    They are ints and a list of ints, so that they can be written as JSON.
    """
    return {
      "next_ordinal": self._next,
      "open_ordinals": sorted(self._attempts),
    }

  def _check_taken(self, ordinal: int, method: str) -> None:
    if ordinal not in self._attempts:
      state = "was closed" if 0 <= ordinal < self._next else "was never taken"
      raise RuntimeError(f"{method}({ordinal}): this ordinal {state}")
    if ordinal in self._returned:
      raise RuntimeError(
        f"{method}({ordinal}): it was given back, and nobody has taken it since"
      )
