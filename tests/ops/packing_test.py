from hypothesis import given
from hypothesis import strategies as st
import pytest

import arl_jax as arl


@given(st.lists(st.integers(0, 10), max_size=30))
def test_every_row_is_in_one_bin_that_holds_it(lengths: list[int]):
  bins = arl.pack_rows(lengths, max_length=10)
  assert sorted(i for rows in bins for i in rows) == list(range(len(lengths)))
  assert all(sum(lengths[i] for i in rows) <= 10 for rows in bins)
  # No two bins are half empty, or the second had not been opened.
  assert sum(sum(lengths[i] for i in rows) * 2 <= 10 for rows in bins) <= 1


def test_longest_first():
  assert arl.pack_rows([2, 5, 4, 7, 1, 3, 8], max_length=10) == [
    [0, 6],
    [3, 5],
    [1, 2, 4],
  ]


def test_a_row_longer_than_a_bin_is_named():
  with pytest.raises(ValueError, match=r"lengths\[1\] is 11"):
    arl.pack_rows([3, 11], max_length=10)
