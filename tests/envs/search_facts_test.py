"""Tests of reading facts from passages."""

import pytest

from arl_jax.envs.search_facts import FIELDS, read_atlas, read_fact
from arl_jax.envs.search_index import Passage
from tests.envs import tiny_world


@pytest.mark.parametrize(
  ("line", "accepted"),
  [
    ("Paris", ("Paris",)),
    ("N'Djamena", ("N'Djamena",)),
    ("Washington, D.C.", ("Washington, D.C.",)),
    ("Brasília", ("Brasília", "Brasilia")),
    ("Mexico City (Ciudad de Mexico)", ("Mexico City", "Ciudad de Mexico")),
    ("Suva (on Viti Levu)", ("Suva",)),
    ("Baku (Baki, Baky)", ("Baku", "Baki", "Baky")),
    ("Kyiv (Kiev is the transliteration from Russian)", ("Kyiv",)),
    # In doubt.
    (
      "Pretoria (administrative capital); Cape Town (legislative capital)",
      None,
    ),
    ("Gitega (political capital), Bujumbura (commercial capital)", None),
    ("Chisinau in Romanian (Kishinev in Russian)", None),
    ("no official capital; offices in the Yaren District", None),
    ("Santiago; note - Valparaiso is the seat of the legislature", None),
    ("Brussels (Belgium), Strasbourg (France)", None),
  ],
)
def test_capitals(line, accepted):
  fact = read_fact("capital", f"name: {line}\ntime difference: UTC")
  if accepted is None:
    assert fact is None
    return
  assert fact is not None
  assert fact.accepted == accepted
  assert fact.quote == f"name: {accepted[0]}"


@pytest.mark.parametrize(
  ("field", "text", "number", "quote"),
  [
    ("population", "total: 68,512,806 (2025 est.)", 68512806, None),
    ("area", "land: 1\ntotal: 1.284 million sq km", 1284000, None),
    ("area", "total: 643,801 sq km ; 551,500 sq km", 643801, "total: 643,801"),
    ("median_age", "total: 42.7 years", 42.7, "total: 42.7"),
    ("area", "total: 3 sq km less than", None, None),
    ("population", "total: uninhabited", None, None),
    ("population", "male: 5", None, None),
    ("population", "subtotal: 5", None, None),
    # The label of another field.
    ("life_expectancy", "total: 5 years", None, None),
  ],
)
def test_quantities(field, text, number, quote):
  fact = read_fact(field, text)
  assert (fact and fact.number) == number
  if fact:
    assert fact.quote in text
    assert quote in (None, fact.quote)


@pytest.mark.parametrize(
  ("field", "text", "accepted"),
  [
    ("internet_code", ".bw", (".bw",)),
    ("internet_code", "metropolitan France - .fr; Guadeloupe - .gp", None),
    ("highest_point", "highest point: Mont Blanc 4,810", ("Mont Blanc",)),
    ("highest_point", "highest point: Moco 2,620 m\nlowest", ("Moco",)),
    ("highest_point", "highest point: unnamed elevation 63 m", None),
    ("highest_point", "highest point: Mount Everest (in Asia) 8,849 m", None),
    ("highest_point", "highest point: Moco", None),
  ],
)
def test_names(field, text, accepted):
  fact = read_fact(field, text)
  assert (fact and fact.accepted) == accepted
  assert fact is None or fact.quote in text


def test_borders():
  text = (
    "total: 9 km\nborder countries: Spain (Ceuta) 8 km and Spain (Melilla)"
    " 10.5 km; Cote d'Ivoire 1,359 km (of which 2 km are wet); and Mali 3 km"
  )
  fact = read_fact("borders", text)
  assert fact is not None
  assert fact.quote in text
  assert fact.borders == (
    ("Spain", 8.0),
    ("Spain", 10.5),
    ("Cote d'Ivoire", 1359.0),
    ("Mali", 3.0),
  )
  # One border that cannot be read might be the longest.
  assert read_fact("borders", "border countries: Mali 3 km; 4 km") is None
  assert read_fact("borders", "border countries: none") is None


def test_an_atlas_knows_who_is_whose_neighbour():
  atlas = tiny_world.atlas()
  assert len(atlas.countries) == tiny_world.NUM_COUNTRIES
  assert all(set(c.facts) == set(FIELDS) for c in atlas.countries.values())
  assert [code for code, _ in atlas.neighbours("c00")] == ["c01", "c08"]
  assert atlas.codes[f"Republic of {tiny_world.name_of(9)}"] == "c09"


def test_every_fact_is_in_its_passage():
  texts = {p.passage_id: p.text for p in tiny_world.passages()}
  for country in tiny_world.atlas().countries.values():
    for field in country.facts:
      name, quote = country.evidence(field)
      assert quote in texts[name]


def test_countries_that_a_question_cannot_name_are_left_out():
  def capital(code, title):
    return Passage(
      passage_id=f"{code}/government/capital", title=title, text="name: Paris"
    )

  atlas = read_atlas(
    [
      capital("a", "Gaza, Gaza Strip: Capital"),
      capital("b", "Congo (Brazzaville): Capital"),
      capital("c", "This or That: Capital"),
      capital("d", "No colon"),
      capital("e", "France: Flag"),
      capital("xx", "World: Capital"),
      capital("ok", "Guinea-Bissau: Capital"),
    ]
  )
  assert list(atlas.countries) == ["ok"]


def test_a_name_of_two_countries_names_neither():
  atlas = read_atlas(
    [
      Passage(passage_id=f"{c}/geography/area", title=t, text="total: 5 sq km")
      for c, t in (("a", "Same: Area"), ("b", "Same: Area"), ("c", "Own: Area"))
    ]
  )
  assert dict(atlas.codes) == {"Own": "c"}
