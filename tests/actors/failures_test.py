"""The budget of failures."""

import logging

import pytest

from arl_jax.actors.failures import FailureBudget
from arl_jax.episode import Episode, EpisodeStatus
from tests.actors.fakes import TASK


def episode(error="", status=EpisodeStatus.FAILED):
  return Episode(
    task=TASK,
    member=0,
    status=status if error else EpisodeStatus.MAX_TURNS,
    rows=(),
    turns=(),
    error=error,
  )


FINE = episode()


def test_a_streak_over_groups_spends_the_budget():
  budget = FailureBudget(3)
  budget.count([FINE, episode("a: desk broke")])
  budget.count([episode("b"), episode("c", EpisodeStatus.GROUP_TIMEOUT)])
  with pytest.raises(RuntimeError, match="4 episodes in a row") as caught:
    budget.count([episode("d: lamp broke"), FINE])
  message = str(caught.value)
  assert "max_in_a_row is 3" in message
  assert "first cause: a: desk broke" in message
  assert "last cause: d: lamp broke" in message


def test_one_that_finishes_ends_the_streak():
  budget = FailureBudget(2)
  for error in "abcd":
    budget.count([episode(error), episode(error), FINE])
  with pytest.raises(RuntimeError, match="first cause: e\nThe last cause: g"):
    budget.count([episode("e"), episode("f"), episode("g")])


def test_a_budget_of_none_allows_what_finishes():
  budget = FailureBudget(0)
  budget.count([FINE] * 3)
  with pytest.raises(RuntimeError, match="1 episodes in a row"):
    budget.count([episode("a")])


def test_failures_are_counted_by_the_first_line_of_their_cause():
  budget = FailureBudget(100)
  budget.count([episode("a: seat 1\ntrace"), FINE, episode("a: seat 1\nother")])
  budget.count([episode("b: late", EpisodeStatus.GROUP_TIMEOUT)])
  assert budget.num_failed == 3
  assert budget.num_by_cause == {"a: seat 1": 2, "b: late": 1}


def test_causes_that_never_repeat_take_no_more_and_more_memory():
  budget = FailureBudget(10**4)
  for number in range(1000):
    budget.count([episode(f"seat {number}"), episode("desk")])
  assert budget.num_failed == sum(budget.num_by_cause.values()) == 2000
  assert budget.num_by_cause["desk"] == 1000
  assert len(budget.num_by_cause) < 200


def test_the_first_cause_of_a_run_is_logged_and_no_other(caplog):
  """As in SkyRL#1613 and slime#2078, where it was nowhere to be found."""
  budget = FailureBudget(100)
  with caplog.at_level(logging.WARNING):
    budget.count([FINE, FINE])
    assert not caplog.records
    budget.count([episode("a: seat 1\nin line 7")])
    budget.count([FINE, episode("b")])
  (record,) = caplog.records
  assert "a: seat 1\nin line 7" in record.getMessage()


def test_bad_arguments():
  with pytest.raises(ValueError, match="max_in_a_row is -1"):
    FailureBudget(-1)
