"""Tests of what is kept of an action."""

from typing import NamedTuple

import pytest

from arl_jax.envs.action_bound import bound_attempts


class Part(NamedTuple):
  start: int
  answer: str | None = None
  refused: bool = False


def bound(parts, most):
  return bound_attempts(
    parts, most=most, refuse=lambda start: Part(start, refused=True)
  )


@pytest.mark.parametrize("number", [0, 1, 4])
def test_nothing_is_refused_up_to_the_bound(number):
  parts = [Part(place) for place in range(number)]
  assert bound(parts[::-1], 4) == parts


def test_all_the_rest_is_one_mistake_in_its_place():
  parts = [Part(0), Part(1, "a"), Part(2), Part(3), Part(4, "b"), Part(5)]
  assert bound(parts, 1) == [Part(0), Part(1, "a"), Part(2, refused=True)]
  assert bound(parts, 2)[-1] == Part(3, refused=True)


def test_one_of_many_answers_is_kept():
  assert bound([Part(n, "x") for n in range(5000)], 4) == [Part(0, "x")]
