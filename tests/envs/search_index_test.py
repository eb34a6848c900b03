"""Tests of what every search engine promises."""

import concurrent.futures
import importlib.util

from hypothesis import given, settings, strategies
import pytest

from arl_jax.envs.search_fts5 import open_fts5
from arl_jax.envs.search_index import (
  Passage,
  check_passages,
  fingerprint,
  query_words,
  rank,
)
from arl_jax.envs.search_tantivy import TantivyIndex
from tests.envs import tiny_world

needs_tantivy = pytest.mark.skipif(
  importlib.util.find_spec("tantivy") is None,
  reason="needs tantivy: pip install arl-jax[tantivy]",
)
ENGINES = {"fts5": open_fts5, "tantivy": TantivyIndex}
BOTH = ["fts5", pytest.param("tantivy", marks=needs_tantivy)]
SYNTAX = "aAéß²½ⅷ日٣ \n\t\0\"'()[]{}*:^-+&|!~\\/_.,;?<>%=#@$`\ud800"


def passage(name: str, title: str, text: str = "") -> Passage:
  return Passage(passage_id=name, title=title, text=text)


@pytest.fixture(name="world", scope="module", params=BOTH)
def make_world(request):
  index = ENGINES[request.param](tiny_world.passages())
  yield index
  index.close()


def test_the_passage_of_a_title_is_found_by_it(world):
  # A text that says "the capital of ..." may come first, and no other.
  for one in tiny_world.passages():
    assert one in world.search(one.title, 2)


def test_words_of_a_text_are_found_in_any_form_and_case(world):
  ids = [p.passage_id for p in world.search("a QUIETER river halls?", 3)]
  assert len(ids) == 3
  assert all(name.endswith("/government/capital") for name in ids)


def test_nothing_is_found_where_no_word_is_shared(world):
  assert world.search("xylophone", 3) == []
  assert world.search("", 3) == []
  assert world.search(" ?! \0 ", 3) == []


def test_a_passage_is_got_by_its_id(world):
  one = tiny_world.passages()[7]
  assert world.get(one.passage_id) == one
  assert world.get("c00/none") is None
  assert world.get("\ud800") is None


def test_top_k_limits_the_results(world):
  assert [len(world.search("capital", k)) for k in (1, 2, 60)] == [1, 2, 60]
  with pytest.raises(ValueError, match="top_k is 0"):
    world.search("capital", 0)


@settings(max_examples=300, deadline=None)
@given(query=strategies.text(strategies.sampled_from(SYNTAX), max_size=30))
def test_no_query_breaks_the_syntax(world, query):
  assert len(world.search(query, 2)) <= 2
  assert world.get(query) is None


@pytest.mark.parametrize(
  "query",
  [
    "capital AND",
    "capital OR",
    "NOT capital",
    'NEAR("capital" city, 2)',
    "title:capital",
    "capital*",
    '"capital',
    "-capital +city",
    "{title text} : capital",
    "capital' OR 1=1; --",
    "capital " * 5000,
  ],
)
def test_operators_are_plain_words(world, query):
  found = world.search(query, 3)
  assert len(found) == 3
  assert all("capital" in f"{p.title} {p.text}".lower() for p in found)


@pytest.mark.parametrize("engine", BOTH)
def test_ties_come_in_the_order_of_the_ids(engine):
  same = [passage(f"p{n:03d}", "same", "equal words") for n in range(300)]
  for order in (same, same[::-1], same[150:] + same[:150]):
    index = ENGINES[engine](order)
    found = [p.passage_id for p in index.search("equal", 5)]
    index.close()
    assert found == ["p000", "p001", "p002", "p003", "p004"]


@pytest.mark.parametrize("engine", BOTH)
def test_halves_of_surrogate_pairs_in_a_corpus_are_survived(engine):
  index = ENGINES[engine]([passage("a", "odd \ud800 title", "text \udfff")])
  assert [p.passage_id for p in index.search("odd", 1)] == ["a"]
  index.close()


def test_threads_may_search_at_once(world):
  wanted = [p.title for p in tiny_world.passages()[::10]]
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    found = list(pool.map(lambda t: world.search(t, 1)[0].title, wanted * 4))
  assert found == wanted * 4


def test_stop_words_are_left_out_unless_there_are_no_others():
  assert query_words("What is the Capital of the Republic?") == [
    "capital",
    "republic",
  ]
  assert query_words("The who") == ["the", "who"]
  assert query_words("one two one") == ["one", "two"]


def test_titles_that_the_query_covers_rank_higher():
  full, part = passage("b", "Libya: Area"), passage("a", "Libya: Area - map")
  found = [(2.0, 0, part), (1.8, 1, full)]
  assert rank(found, ["libya", "area"], 2) == [full, part]
  assert rank(found, ["libya", "area"], 1) == [full]
  assert rank(found, ["sea"], 2) == [part, full]


@pytest.mark.parametrize(
  ("passages", "message"),
  [
    ([], "the corpus is empty"),
    ([passage("a b", "x")], "'a b'; expected one word"),
    ([passage("", "x")], "''; expected one word"),
    ([passage("a", "x"), passage("a", "y")], "two passages have the id 'a'"),
  ],
)
def test_what_no_index_can_hold_is_refused(passages, message):
  with pytest.raises(ValueError, match=message):
    check_passages(passages)


def test_a_fingerprint_names_the_content_and_not_the_order():
  one, other = passage("a", "x", "y"), passage("b", "x")
  assert fingerprint([one, other]) == fingerprint([other, one])
  # The same letters, cut elsewhere.
  assert fingerprint([one]) != fingerprint([passage("a", "xy")])
