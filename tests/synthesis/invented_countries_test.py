"""Tests of countries that do not exist."""

import pytest

from arl_jax.envs import search_facts, search_tasks
from arl_jax.envs.search_index import Passage
from arl_jax.synthesis.invented_countries import (
  invent_passages,
  read_templates,
)


def country(code, name, capital, neighbour):
  return [
    Passage(
      passage_id=f"{code}/government/capital",
      title=f"{name}: Capital",
      text=f"name: {capital}\ngeographic coordinates: 12 34 N\n"
      f"etymology: {capital} is the heart of {name}, not of {name}land",
    ),
    Passage(
      passage_id=f"{code}/geography/land-boundaries",
      title=f"{name}: Land boundaries",
      text=f"total: 1,900 km\nborder countries: {neighbour} 1,900 km",
    ),
    Passage(
      passage_id=f"{code}/communications/internet-country-code",
      title=f"{name}: Internet country code",
      text=f".{code}",
    ),
  ]


REAL = [
  *country("aa", "Arland", "Portville", "Borland"),
  *country("bb", "Borland", "Lakeside", "Arland"),
  *country("cc", "Cormeria", "Old Harbour", "Arland"),
  *country("dd", "Dormania", "Newtown", "Cormeria"),
]
WORDS = ("Arland", "Borland", "Cormeria", "Portville", "Lakeside", "Harbour")


@pytest.fixture(name="templates")
def make_templates():
  return read_templates(REAL)


def test_a_world_has_facts_of_other_names_and_numbers(templates):
  world = invent_passages(templates, num_countries=4, seed=0)
  atlas = search_facts.read_atlas(world)
  assert len(atlas.countries) == 4
  for found in atlas.countries.values():
    assert found.name not in WORDS
    assert found.facts["capital"].accepted[0] not in WORDS
    # The neighbour is a country of the same world.
    ((neighbour, length),) = atlas.neighbours(found.code)
    assert neighbour in atlas.countries
    assert len(str(int(length))) == 4
  text = "\n".join(passage.title + passage.text for passage in world)
  assert "Arland: " not in text
  assert "of Arland," not in text
  # A longer word that begins like a name is another word.
  assert "Arlandland" in text


def test_worlds_differ_by_seed_and_repeat_with_it(templates):
  one, again, other = (
    invent_passages(templates, num_countries=3, seed=seed) for seed in (1, 1, 2)
  )
  assert one == again
  names = [
    {c.name for c in search_facts.read_atlas(w).countries.values()}
    for w in (one, other)
  ]
  assert not names[0] & names[1]


def test_no_country_of_a_world_is_held_out_from_it(templates):
  for seed in range(20):
    world = invent_passages(templates, num_countries=4, seed=seed)
    codes = {passage.passage_id.partition("/")[0] for passage in world}
    assert len(codes) == 4
    assert not any(map(search_tasks.is_held_out, codes))


def test_countries_that_are_left_out_lend_nothing():
  templates = read_templates(REAL, leave_out=["aa"])
  assert "Arland" not in templates.names
  world = invent_passages(templates, num_countries=3, seed=0)
  assert not any("Portville" in passage.text for passage in world)


@pytest.mark.parametrize("number", [0, 5])
def test_there_are_as_many_as_templates_at_most(templates, number):
  with pytest.raises(ValueError, match=f"num_countries is {number}; exp.* 4"):
    invent_passages(templates, num_countries=number, seed=0)


def test_a_corpus_without_countries_is_refused():
  with pytest.raises(ValueError, match="no countries"):
    read_templates([Passage(passage_id="a", title="b", text="c")])
