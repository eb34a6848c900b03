"""Tests of the Tantivy engine; see also those of every engine."""

import sys

import pytest

from arl_jax.envs.search_index import Passage
from arl_jax.envs.search_tantivy import TantivyIndex


def test_a_missing_package_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, "tantivy", None)
  with pytest.raises(ModuleNotFoundError, match=r"arl-jax\[tantivy\]"):
    TantivyIndex([Passage(passage_id="a", title="b", text="c")])


def test_its_size_is_that_of_the_corpus():
  pytest.importorskip(
    "tantivy", reason="needs tantivy: pip install arl-jax[tantivy]"
  )
  one = Passage(passage_id="a", title="b", text="c")
  assert len(TantivyIndex([one])) == 1
  with pytest.raises(ValueError, match="two passages have the id"):
    TantivyIndex([one, one])
