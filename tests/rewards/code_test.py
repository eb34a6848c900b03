"""Tests of the components of a code interpreter's reward."""

import pytest

from arl_jax.rewards import code


@pytest.mark.parametrize(
  ("answer", "accepted", "expected"),
  [
    ("1200", "1200", 1),
    (" 1,200.00 ", "1200", 1),
    ("+7", "7", 1),
    ("0.50", "0.5", 1),
    ("-5", "5", 0),
    ("15", "1.5", 0),
    ("1.5", "15", 0),
    ("12,00", "1200", 0),
    ("1e3", "1000", 0),
    ("1200 pens", "1200", 0),
    ("", "0", 0),
    ("The Cat!", "cat", 1),
    ("cat dog", "cat", 0),
    ("5", "five", 0),
  ],
)
def test_answers_are_compared_as_numbers_or_as_texts(
  answer, accepted, expected
):
  assert code.exact_answer(answer, [accepted]) == expected
  assert code.exact_answer(answer, ["other", accepted]) == expected


def test_nothing_is_no_answer():
  assert code.exact_answer(None, ["1"]) == 0.0
  assert code.exact_answer("1", []) == 0.0


def test_numbers_that_nobody_asks_for_are_not_read():
  """Python refuses integers of more than 4,300 digits."""
  assert code.exact_answer("9" * 100_000, ["9"]) == 0.0
  assert code.exact_answer("9" * 1000, ["9" * 1000]) == 1.0


def test_shares_and_penalties():
  assert code.clean_runs(3, 4) == 0.75
  assert code.clean_runs(0, 0) == 0.0
  assert code.format_penalty("1", is_well_formed=True) == 0.0
  assert code.format_penalty("1", is_well_formed=False) == -1.0
  assert code.format_penalty(None, is_well_formed=True) == -1.0
  assert code.turn_cost(5) == -0.5
  assert code.turn_cost(3, max_turns=2) == -1.5


def test_repetition_is_the_share_of_runs_that_were_there_before():
  # Runs of two: ab bc ca ab bc, of which ab and bc come again.
  assert code.repeated_share("a b c a b c", size=2) == pytest.approx(2 / 5)
  assert code.repeated_share("a b c d e", size=2) == 0.0
  assert code.repeated_share("a", size=2) == code.repeated_share("") == 0.0
  circles = code.repeated_share("```python\nprint(1)\n```\n" * 50)
  assert 0.97 < circles < 1.0
  assert code.repetition_penalty("x " * 5, size=1) == -0.8
