"""Tests of comparing short answers."""

import pytest

from arl_jax.rewards.answers import exact_match, f1_score, normalize_answer


@pytest.mark.parametrize(
  ("text", "wanted"),
  [
    ("The  U.S. Capitol!", "us capitol"),
    ("a Theory of an answer", "theory of answer"),
    ("N'Djamena", "ndjamena"),
    ("68,512,806", "68512806"),
    (".fr", "fr"),
    ("The", ""),
    ("", ""),
  ],
)
def test_normalisation(text, wanted):
  assert normalize_answer(text) == wanted


def test_exact_match_needs_one_accepted_form():
  assert exact_match("washington DC.", ["Washington, D.C.", "x"]) == 1.0
  assert exact_match("Washington", ["Washington, D.C."]) == 0.0
  assert exact_match("Paris or Rome", ["Paris"]) == 0.0


def test_nothing_matches_nothing():
  # "The" and "" are the same after normalisation, and no answer.
  for answer in (None, "", "the", "?!"):
    assert exact_match(answer, ["The", ""]) == 0.0
    assert f1_score(answer, ["The", ""]) == 0.0
  assert exact_match("a", []) == f1_score("x", []) == 0.0


@pytest.mark.parametrize(
  ("answer", "accepted", "wanted"),
  [
    ("Mexico City", ["Mexico City"], 1.0),
    ("City", ["Mexico City"], 2 / 3),  # P 1, R 1/2
    ("it is Mexico City", ["Mexico City"], 2 / 3),  # P 1/2, R 1
    ("Paris Paris Paris", ["Paris"], 0.5),  # a word counts once
    ("Rome", ["Paris"], 0.0),
    ("Rome", ["Paris", "Rome Italy"], 2 / 3),
  ],
)
def test_f1_counts_shared_words(answer, accepted, wanted):
  assert f1_score(answer, accepted) == pytest.approx(wanted)
