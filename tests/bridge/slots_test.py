"""The slot table: what is reused, copied, evicted."""

import numpy as np
import pytest

from arl_jax.bridge.slots import SlotTable


def ids(*tokens):
  return np.array(tokens, np.int32)


LONG = np.arange(20, dtype=np.int32)


@pytest.fixture
def table():
  return SlotTable(num_slots=3, max_length=32)


def settle(table, *placements):
  table.commit(placements)
  return placements


def test_a_new_row_prefills_all_but_its_pending_token(table):
  (placed,) = settle(table, table.place("a", LONG))
  assert (placed.slot, placed.source, placed.start) == (0, 0, 0)
  np.testing.assert_array_equal(placed.tokens, LONG[:-1])


def test_the_next_turn_extends_its_own_slot(table):
  settle(table, table.place("a", LONG))
  table.append(0, ids(30, 31))
  table.park(0)
  row = np.concatenate([LONG, ids(30, 31, 7, 8)])
  (placed,) = settle(table, table.place("a", row))
  # Cells hold 21 tokens: the sampled 31 was pending.
  assert (placed.slot, placed.start) == (0, 21)
  np.testing.assert_array_equal(placed.tokens, [31, 7])


def test_members_of_a_group_follow_the_first(table):
  placed = [table.place(name, LONG) for name in "abc"]
  assert [p.follows for p in placed] == [False, True, True]
  assert [p.source for p in placed] == [0, 0, 0]
  assert all(len(p.tokens) == 0 for p in placed[1:])


def test_followers_promise_nothing(table):
  placed = [table.place(name, LONG) for name in "ab"]
  longer = np.concatenate([LONG, ids(1, 2, 3)])
  late = table.place("c", longer)
  # The second is not prefilled yet when the third is copied: use the first.
  assert placed[1].follows
  assert late.source == 0
  assert late.start == 19


def test_a_free_slot_with_the_prefix_is_extended_where_it_lies(table):
  settle(table, table.place("a", ids(9, 9, 9)), table.place("b", LONG))
  for slot, session in ((0, "a"), (1, "b")):
    table.park(slot)
    table.end_session(session)
  (placed,) = settle(table, table.place("c", LONG))
  assert (placed.slot, placed.source, placed.start) == (1, 1, 19)


def test_a_short_prefix_is_not_worth_a_copy(table):
  settle(table, table.place("a", LONG))
  (placed,) = settle(table, table.place("b", np.r_[LONG[:5], LONG[:5]]))
  assert placed.source == placed.slot
  assert placed.start == 0


def test_the_longest_parked_session_is_evicted(table):
  for slot, name in enumerate("abc"):
    settle(table, table.place(name, ids(slot, slot + 1)))
    table.park(slot)
  (placed,) = settle(table, table.place("d", ids(7, 8)))
  assert placed.slot == 0
  # The evicted session starts again, in the slot that is now oldest.
  table.park(0)
  (back,) = settle(table, table.place("a", LONG))
  assert back.slot == 1
  assert back.start == 0


def test_nothing_is_placed_while_all_slots_decode(table):
  for name in "abc":
    settle(table, table.place(name, ids(1, 2)))
  assert table.place("d", ids(1, 2)) is None
  table.park(1)
  table.end_session("b")
  assert table.place("d", ids(1, 2)).slot == 1


def test_new_weights_forget_every_key(table):
  settle(table, table.place("a", LONG))
  table.park(0)
  table.forget()
  (placed,) = settle(table, table.place("a", np.r_[LONG, 3, 4]))
  assert placed.start == 0
  assert len(placed.tokens) == 21


def test_a_slot_being_overwritten_is_no_source_in_the_same_round(table):
  settle(table, table.place("a", LONG))
  table.park(0)
  table.end_session("a")
  other = LONG + 40
  first = table.place("b", other)
  second = table.place("c", LONG)
  # Slot 0 is promised to the other row, or the row took it over whole.
  for placed in (first, second):
    if placed.source != placed.slot:
      assert placed.source != first.slot


def test_old_cells_serve_their_session_alone(table):
  settle(table, table.place("a", LONG), table.place("b", LONG))
  table.park(0)
  table.end_session("a")
  table.keep_old()
  row = np.concatenate([LONG, ids(7, 8)])
  new, mine = table.place("c", row), table.place("b", row)
  # The free slot has all of it, and so will that of b: neither is read.
  assert (new.slot, new.source, new.start) == (0, 0, 0)
  assert (mine.slot, mine.source, mine.start) == (1, 1, 19)
  assert not new.follows
  settle(table, new, mine)
  # What b appends is old too; the new cells of c are for everybody.
  (last,) = settle(table, table.place("d", np.r_[row, 9]))
  assert (last.source, last.start) == (0, 21)


def test_an_old_session_promises_nothing(table):
  settle(table, table.place("a", LONG))
  table.park(0)
  table.keep_old()
  row = np.concatenate([LONG, ids(7, 8)])
  mine, new, newer = (table.place(name, row) for name in "abc")
  assert (mine.source, mine.start) == (0, 19)
  assert (new.source, new.start, new.follows) == (1, 0, False)
  assert (newer.source, newer.start, newer.follows) == (1, 21, True)


def test_a_slot_taken_from_an_old_session_is_filled_anew(table):
  for slot, name in enumerate("abc"):
    settle(table, table.place(name, LONG))
    table.park(slot)
  table.keep_old()
  (taken,) = settle(table, table.place("d", LONG))
  assert (taken.slot, taken.source, taken.start) == (0, 0, 0)
  # The session that lost it starts from the new cells, in another old slot.
  (back,) = settle(table, table.place("a", np.r_[LONG, 5]))
  assert (back.slot, back.source, back.start) == (1, 0, 19)
  table.park(1)
  # That slot is old no more, so it may be read.
  table.park(0)
  table.end_session("d")
  settle(table, table.place("e", LONG + 30))
  (reader,) = settle(table, table.place("f", np.r_[LONG, 5, 6]))
  assert (reader.source, reader.start) == (1, 20)


def test_forget_ends_old_cells_too(table):
  settle(table, table.place("a", LONG))
  table.keep_old()
  table.forget()
  again = table.refill(0, LONG)
  assert (again.slot, again.start, len(again.tokens)) == (0, 0, 19)
  follower = table.place("b", LONG)
  assert (follower.source, follower.follows) == (0, True)


def test_a_slot_is_filled_again_where_it_lies(table):
  """Even that of a session that is over already, or has a namesake."""
  settle(table, table.place("a", LONG))
  table.end_session("a")
  settle(table, table.place("a", LONG))
  table.forget()
  first, second = table.refill(0, LONG), table.refill(1, LONG)
  assert (first.slot, second.slot, second.source) == (0, 1, 0)


class Cells:
  """What a device would hold: token and versions of each cell.

  Copies and prefills run as in `DeviceSlots.step`, copies in pairs.
  """

  def __init__(self, num_slots):
    self.slots = [[] for _ in range(num_slots)]

  def fill(self, placements, version):
    for follows in (False, True):
      chosen = [p for p in placements if p.follows == follows]
      copies = [p for p in chosen if p.source != p.slot]
      for start in range(0, len(copies), 2):
        pair = copies[start : start + 2]
        read = [list(self.slots[p.source]) for p in pair]
        for p, cells in zip(pair, read, strict=True):
          self.slots[p.slot] = cells
      for p in chosen:
        cells = self.slots[p.slot]
        assert len(cells) >= p.start
        del cells[p.start :]
        self.extend(p.slot, p.tokens, version)

  def extend(self, slot, tokens, version):
    self.slots[slot].extend((int(token), version) for token in tokens)


class Rounds:
  """Random sessions on a table, checked cell by cell after every round."""

  def __init__(self, seed):
    self.rng = np.random.default_rng(seed)
    self.table, self.cells = SlotTable(num_slots=5, max_length=64), Cells(5)
    self.version, self.num_started, self.num_kept = 0, 0, 0
    self.rows, self.busy = {}, {}
    self.held = {}  # session: the slot and cells that are rightly its own

  def start(self):
    # Few beginnings, so that much is shared.
    ids = np.arange(14) + 100 * self.rng.integers(3)
    tail = self.rng.integers(2, size=self.rng.integers(1, 5))
    self.rows[f"{self.num_started}"] = np.concatenate([ids, tail])
    self.num_started += 1

  def play(self):
    rng, table = self.rng, self.table
    for session in [s for s in self.rows if s not in self.busy]:
      if rng.random() < 0.2:  # an episode ends
        table.end_session(session)
        del self.rows[session]
    while len(self.rows) < 9:
      self.start()
    change = rng.random()
    if change < 0.2:
      self.version += 1
      table.keep_old()
    if change < 0.1 or 0.2 < change < 0.25:
      self.version += change < 0.1
      table.forget()
      self.held.clear()
    placements = [
      table.refill(slot, self.rows[session])
      for session, slot in self.busy.items()
      if table.filled[slot] < len(self.rows[session]) - 1
    ]
    waiting = [s for s in self.rows if s not in self.busy]
    for session in rng.permutation(waiting).tolist():
      placement = table.place(session, self.rows[session])
      if placement is not None:
        self.busy[session] = placement.slot
        placements.append(placement)
    taken = {slot: session for session, slot in self.busy.items()}
    self.held = {
      session: held
      for session, held in self.held.items()
      if taken.get(held[0], session) == session
    }
    self.cells.fill(placements, self.version)
    table.commit(placements)
    self.check()
    self.decode()

  def check(self):
    assert len(set(self.busy.values())) == len(self.busy)
    for session, slot in self.busy.items():
      row, cells = self.rows[session], self.cells.slots[slot]
      assert [token for token, _ in cells] == row[:-1].tolist()
      assert self.table.filled[slot] == len(row) - 1
      old = [cell for cell in cells if cell[1] < self.version]
      if old:  # then they lay here already, in the session's own turns
        assert session in self.held
        where, mine = self.held[session]
        assert where == slot
        assert cells[: len(mine)] == mine[: len(cells)]
        assert len(old) <= len(mine)
        self.num_kept += 1

  def decode(self):
    for session, slot in list(self.busy.items()):
      sampled = self.rng.integers(2, size=self.rng.integers(1, 4), dtype="i4")
      fed = np.r_[self.rows[session][-1], sampled[:-1]]
      self.cells.extend(slot, fed, self.version)
      self.table.append(slot, sampled)
      self.rows[session] = np.concatenate([self.rows[session], sampled])
      self.held[session] = slot, list(self.cells.slots[slot])
      over = len(self.rows[session]) > 50
      if over or self.rng.random() < 0.4:
        del self.busy[session]
        self.table.park(slot)
        heard = self.rng.integers(2, size=self.rng.integers(3))
        self.rows[session] = np.concatenate([self.rows[session], heard])
      if over:
        self.table.end_session(session)
        del self.rows[session]


@pytest.mark.parametrize("seed", range(5))
def test_every_cell_is_of_its_row_and_of_allowed_weights(seed):
  rounds = Rounds(seed)
  for _ in range(300):
    rounds.play()
  assert rounds.version > 50
  assert rounds.num_kept > 50
