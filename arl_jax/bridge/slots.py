"""Which slot holds which row's keys and values, and what can be reused."""

from collections.abc import Sequence
import dataclasses

import numpy as np
import numpy.typing as npt

# Copying a slot moves all of it; shorter prefixes are cheaper to prefill.
_MIN_SHARED = 8


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
  """How one row's keys and values come to be in its slot.

  Attributes:
    slot: where the row lives.
    source: slot to copy from first; equal to `slot` for no copy.
    start: cells that are filled after the copy.
    tokens: int32 `[n]` ids to prefill behind them; may be empty.
    follows: the source is itself prefilled in this round.
  """

  slot: int
  source: int
  start: int
  tokens: npt.NDArray[np.int32]
  follows: bool


class SlotTable:
  """Owns the host's view of the key-value cache.

  A slot is busy while it decodes, parked while its session waits for a tool,
  and free otherwise. Free slots keep their content until it is overwritten,
  so that later rows with the same beginning can copy it.

  New weights either drop every cell (`forget`) or make every slot old
  (`keep_old`). An old slot serves the session that owns it and nobody else: it
  goes on there, in its later turns too, and what it appends stays old, for it
  is computed from old cells. No other row copies or extends an old slot, so a
  new session, or one whose slot was taken from it, starts from cells of the
  weights of now or from none. A slot stops being old when it is filled anew,
  from its first cell or from a slot that is not old.
  """

  def __init__(self, *, num_slots: int, max_length: int):
    self.ids = np.zeros((num_slots, max_length), np.int32)
    self.filled = np.zeros(num_slots, np.int32)
    self._promised = np.zeros(num_slots, np.int32)
    self._old = np.zeros(num_slots, bool)  # has cells of earlier weights
    self._sessions: dict[str, int] = {}
    self._owner: list[str | None] = [None] * num_slots
    self._busy = np.zeros(num_slots, bool)
    self._last_used = np.zeros(num_slots, np.int64)
    self._clock = 0

  def place(self, session: str, ids: npt.NDArray[np.int32]) -> Placement | None:
    """Gives a row a slot and marks it busy; None while all are busy."""
    own = self._sessions.get(session)
    prefix = self._find_prefix(ids, own)
    slot = own if own is not None else self._choose_slot(prefix[0])
    if slot is None:
      return None
    self._take(slot, session)
    return self._fill(slot, ids, *prefix)

  def refill(self, slot: int, ids: npt.NDArray[np.int32]) -> Placement:
    """Fills a busy slot again, whose cells were forgotten in its turn."""
    return self._fill(slot, ids, *self._find_prefix(ids, slot))

  def _fill(
    self,
    slot: int,
    ids: npt.NDArray[np.int32],
    source: int | None,
    start: int,
    follows: bool,
  ) -> Placement:
    if source is None:
      source = slot
    extends = source == slot and start > 0
    self.filled[slot] = start if extends else 0
    self._old[slot] &= extends
    # Followers promise nothing, so that nobody copies from them too early;
    # nor do old slots, which only their own session may read.
    unshared = follows or self._old[slot]
    self._promised[slot] = 0 if unshared else len(ids) - 1
    self.ids[slot, : len(ids)] = ids
    return Placement(
      slot=slot,
      source=source,
      start=start,
      tokens=ids[start : len(ids) - 1],
      follows=follows,
    )

  def commit(self, placements: Sequence[Placement]) -> None:
    """Records that a round of placements is now in the cache."""
    for placement in placements:
      slot = placement.slot
      self.filled[slot] = placement.start + len(placement.tokens)
    self._promised[:] = 0

  def append(self, slot: int, tokens: npt.NDArray[np.int32]) -> None:
    """Records tokens that a slot sampled; the last one is pending."""
    start = self.filled[slot] + 1
    self.ids[slot, start : start + len(tokens)] = tokens
    self.filled[slot] += len(tokens)

  def park(self, slot: int) -> None:
    """Ends a slot's turn; its session may come back."""
    self._busy[slot] = False

  def end_session(self, session: str) -> None:
    """Frees the session's slot, if it has one and is not decoding."""
    slot = self._sessions.pop(session, None)
    if slot is not None:
      self._owner[slot] = None

  def forget(self) -> None:
    """Drops every cell; a slot that decodes has to be filled again."""
    self.filled[:] = 0
    self._old[:] = False

  def keep_old(self) -> None:
    """Leaves every slot to its session alone: the weights have changed."""
    self._old[:] = True

  def _take(self, slot: int, session: str) -> None:
    previous = self._owner[slot]
    if previous is not None and previous != session:
      del self._sessions[previous]
    self._clock += 1
    self._owner[slot] = session
    self._sessions[session] = slot
    self._busy[slot] = True
    self._last_used[slot] = self._clock

  def _find_prefix(
    self, ids: npt.NDArray[np.int32], own: int | None
  ) -> tuple[int | None, int, bool]:
    """Finds the slot that shares most with a row, its own one preferred."""
    limit = len(ids) - 1  # the last token is pending and always fed
    if limit == 0:
      return own, 0, False
    equal = self.ids[:, :limit] == ids[:limit]
    shared = np.where(equal.all(axis=1), limit, equal.argmin(axis=1))
    filled = np.minimum(shared, self.filled)
    mine = int(filled[own]) if own is not None else 0
    now = np.where(self._old, 0, filled)
    soon = np.minimum(shared, self._promised)
    best_now, best_soon = int(now.argmax()), int(soon.argmax())
    if soon[best_soon] >= max(mine, int(now[best_now])) + _MIN_SHARED:
      return best_soon, int(soon[best_soon]), True
    if now[best_now] >= mine + _MIN_SHARED:
      return best_now, int(now[best_now]), False
    return own, mine, False

  def _choose_slot(self, source: int | None) -> int | None:
    free = [
      slot
      for slot, owner in enumerate(self._owner)
      if owner is None and not self._busy[slot]
    ]
    if free:
      # Extending a free slot where it lies saves the copy.
      return source if source in free else free[0]
    parked = np.flatnonzero(~self._busy)
    if len(parked):
      return int(parked[self._last_used[parked].argmin()])
    return None
