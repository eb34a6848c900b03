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
