"""Tests of a search agent's rewards."""

import pytest

from arl_jax.rewards import search


def test_a_wrong_format_costs_more_than_a_wrong_answer():
  def value(answer, formed):
    return search.f1_or_penalty(answer, ["New Delhi"], is_well_formed=formed)

  assert value("New Delhi", True) == 1.0
  assert value("Delhi", True) == pytest.approx(2 / 3)
  assert value("Rome", True) == 0.0
  assert value("New Delhi", False) == value(None, True) == -1.0
  assert (
    search.f1_or_penalty("x", ["x"], is_well_formed=False, penalty=-0.2) == -0.2
  )


def test_the_format_alone():
  assert search.format_penalty("x", is_well_formed=True) == 0.0
  assert search.format_penalty("x", is_well_formed=False) == -1.0
  assert search.format_penalty(None, is_well_formed=True) == -1.0


def test_searches_cost_up_to_a_limit():
  assert search.search_cost(0) == 0.0
  assert search.search_cost(3) == pytest.approx(-0.15)
  assert search.search_cost(100) == pytest.approx(-0.25)
  assert search.search_cost(4, cost=1.0, max_searches=2) == -2.0


def test_support_is_the_share_of_evidence_that_was_shown():
  evidence = [("a", "name: Paris"), ("b", "total: 5")]
  assert search.citation_support(evidence, {}) == 0.0
  assert search.citation_support([], {"a": "x"}) == 0.0
  shown = {"a": "name: Paris etymology: old", "b": "total:"}
  assert search.citation_support(evidence, shown) == 0.5
  # The words in another passage are no evidence.
  assert search.citation_support(evidence, {"c": "name: Paris"}) == 0.0
  assert (
    search.citation_support([("a", "two\n lines")], {"a": "two lines"}) == 1
  )
