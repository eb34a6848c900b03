"""Which tasks are open."""

import json

import hypothesis
from hypothesis import strategies as st
import pytest

from arl_jax.actors.ledger import TaskLedger


def test_new_ordinals_count_up():
  ledger = TaskLedger()
  assert [ledger.take() for _ in range(3)] == [0, 1, 2]
  assert 2 in ledger
  assert 3 not in ledger


def test_the_smallest_that_was_given_back_comes_first():
  ledger = TaskLedger()
  for _ in range(6):
    ledger.take()
  for ordinal in (4, 1, 3):
    ledger.give_back(ordinal)
  assert 3 in ledger
  assert [ledger.take() for _ in range(4)] == [1, 3, 4, 6]


def test_a_closed_one_never_comes_back():
  ledger = TaskLedger()
  ledger.take()
  ledger.close(0)
  assert 0 not in ledger
  assert [ledger.take() for _ in range(2)] == [1, 2]


def test_attempts_are_counted_until_it_is_closed():
  ledger = TaskLedger(next_ordinal=3, open_ordinals=[1])
  assert ledger.take() == 1
  assert ledger.attempt(1) == 0
  for attempt in (1, 2):
    ledger.give_back(1)
    assert ledger.take() == 1
    assert ledger.attempt(1) == attempt
  assert ledger.attempt(ledger.take()) == 0


def test_a_snapshot_goes_on_where_the_ledger_was():
  ledger = TaskLedger()
  for _ in range(5):
    ledger.take()
  ledger.close(1)
  ledger.close(4)
  ledger.give_back(2)
  snapshot = json.loads(json.dumps(ledger.snapshot()))
  assert snapshot == {"next_ordinal": 5, "open_ordinals": [0, 2, 3]}
  ledger.close(0)  # the snapshot is of before
  again = TaskLedger(**snapshot)
  assert again.snapshot() == snapshot
  # What was running then runs again.
  assert [again.take() for _ in range(4)] == [0, 2, 3, 5]


def test_an_adopted_one_is_open_and_not_given_out():
  ledger = TaskLedger(next_ordinal=5, open_ordinals=[4, 0, 3, 2])
  ledger.adopt(0)
  ledger.adopt(3)
  assert 3 in ledger
  assert [ledger.take() for _ in range(3)] == [2, 4, 5]
  ledger.close(3)  # trained on
  ledger.give_back(0)  # too old
  assert ledger.take() == 0
  assert ledger.snapshot()["open_ordinals"] == [0, 2, 4, 5]


def test_adopting_one_keeps_the_order_of_the_others():
  ledger = TaskLedger()
  for _ in range(8):
    ledger.take()
  for ordinal in (1, 5, 2, 6, 7, 3):
    ledger.give_back(ordinal)
  ledger.adopt(1)
  assert [ledger.take() for _ in range(6)] == [2, 3, 5, 6, 7, 8]


@pytest.mark.parametrize(
  ("ordinal", "message"),
  [
    (1, "this ordinal was closed"),
    (7, "this ordinal was never taken"),
    (-1, "this ordinal was never taken"),
    (2, "nobody has taken it since"),
  ],
)
@pytest.mark.parametrize("method", ["close", "give_back", "attempt"])
def test_only_what_is_taken_can_end(method, ordinal, message):
  ledger = TaskLedger()
  for _ in range(3):
    ledger.take()
  ledger.close(1)
  ledger.give_back(2)
  before = ledger.snapshot()
  with pytest.raises(RuntimeError, match=rf"{method}\({ordinal}\).*{message}"):
    getattr(ledger, method)(ordinal)
  assert ledger.snapshot() == before


@pytest.mark.parametrize("ordinal", [0, 1, 3])
def test_only_what_waits_to_be_given_out_can_be_adopted(ordinal):
  ledger = TaskLedger(next_ordinal=3, open_ordinals=[0, 2])
  assert ledger.take() == 0
  with pytest.raises(RuntimeError, match=rf"adopt\({ordinal}\).*only \[2\]"):
    ledger.adopt(ordinal)
  ledger.adopt(2)
  with pytest.raises(RuntimeError, match=r"adopt\(2\).*only \[\]"):
    ledger.adopt(2)


@pytest.mark.parametrize(
  "snapshot",
  [
    {"next_ordinal": 3, "open_ordinals": [3]},
    {"next_ordinal": 3, "open_ordinals": [-1, 2]},
    {"next_ordinal": -1},
  ],
)
def test_a_snapshot_that_cannot_be_is_an_error(snapshot):
  with pytest.raises(ValueError, match=r"next_ordinal is -?\d and open_ordin"):
    TaskLedger(**snapshot)


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(
  st.lists(
    st.tuples(
      st.sampled_from(["take", "take", "close", "give_back", "resume"]),
      st.integers(0, 100),
    ),
    max_size=80,
  )
)
def test_every_ordinal_is_closed_once_in_any_order(events):
  ledger, taken, closed = TaskLedger(), [], []
  for event, choice in events:
    if event == "take":
      waiting = set(range(1000)) - set(taken) - set(closed)
      ordinal = ledger.take()
      assert ordinal == min(waiting)
      taken.append(ordinal)
    elif event == "resume":
      ledger, taken = TaskLedger(**ledger.snapshot()), []
    elif taken:
      ordinal = taken.pop(choice % len(taken))
      getattr(ledger, event)(ordinal)
      if event == "close":
        closed.append(ordinal)
  while len(closed) < 100:
    closed.append(taken.pop() if taken else ledger.take())
    ledger.close(closed[-1])
  assert len(set(closed)) == len(closed)
  assert sorted(closed) == list(range(len(closed)))
  assert ledger.snapshot()["open_ordinals"] == []
