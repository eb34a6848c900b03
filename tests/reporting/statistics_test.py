"""Tests of estimates from counts."""

import itertools

import pytest

from arl_jax.reporting import statistics


@pytest.mark.parametrize(
  ("successes", "n", "low", "high"),
  [
    (0, 10, 0.0, 0.27753),
    (10, 10, 0.72247, 1.0),
    (5, 10, 0.23659, 0.76341),
    (194, 200, 0.93611, 0.98618),
    (0, 0, 0.0, 1.0),
  ],
)
def test_wilson_interval_equals_scipys_binomtest(successes, n, low, high):
  assert statistics.wilson_interval(successes, n) == pytest.approx(
    (low, high), abs=1e-5
  )


@pytest.mark.parametrize("successes", [-1, 4])
def test_wilson_interval_refuses_impossible_counts(successes):
  with pytest.raises(ValueError, match=f"successes is {successes}"):
    statistics.wilson_interval(successes, 3)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("c", [0, 1, 2, 5])
def test_pass_at_k_equals_enumeration(c, k):
  samples = [True] * c + [False] * (5 - c)
  draws = list(itertools.combinations(samples, k))
  expected = sum(any(draw) for draw in draws) / len(draws)
  assert statistics.pass_at_k(5, c, k) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, 1, 0), (4, 1, 5)])
def test_pass_at_k_refuses_impossible_counts(n, c, k):
  with pytest.raises(ValueError, match="expected"):
    statistics.pass_at_k(n, c, k)
