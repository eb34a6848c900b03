"""A corpus of invented countries, written as the factbook is."""

import functools
import json
import pathlib

from arl_jax.envs.search_facts import Atlas, read_atlas
from arl_jax.envs.search_fts5 import Fts5Index, open_fts5
from arl_jax.envs.search_index import Passage
from arl_jax.envs.search_tasks import TaskSource

SYLLABLES = ("Bel", "Dor", "Fan", "Gri", "Kal", "Lum", "Mor", "Nev")
NUM_COUNTRIES = 48
_COLUMNS = 8


def name_of(number: int) -> str:
  return f"{SYLLABLES[number % 8]}{SYLLABLES[number // 8].lower()}ia"


def capital_of(number: int) -> str:
  return f"{SYLLABLES[number // 8]}{SYLLABLES[number % 8].lower()} City"


def _borders(number: int) -> list[tuple[int, int]]:
  """Neighbours on a grid, with lengths that no two borders share."""
  row, column = divmod(number, _COLUMNS)
  pairs = []
  for step, inside in (
    (1, column + 1 < _COLUMNS),
    (-1, column > 0),
    (_COLUMNS, number + _COLUMNS < NUM_COUNTRIES),
    (-_COLUMNS, row > 0),
  ):
    if inside:
      low = min(number, number + step)
      length = 100 + (low * 37 + abs(step) * 53) % 97 * 11
      pairs.append((number + step, length))
  return pairs


def _lines(number: int) -> dict[str, tuple[str, str]]:
  """Title and text of each field, by the end of its id."""
  borders = "; ".join(
    f"{name_of(other)} {length} km" for other, length in _borders(number)
  )
  people = 1_000_000 + (number * 7919) % 48 * 1_000_003
  return {
    "government/country-name": (
      "Country name",
      f"conventional long form: Republic of {name_of(number)}\n"
      f"conventional short form: {name_of(number)}",
    ),
    "government/capital": (
      "Capital",
      f"name: {capital_of(number)}\netymology: named after its "
      + "old and quiet market hall by the river, " * 6,
    ),
    "communications/internet-country-code": (
      "Internet country code",
      f".{chr(97 + number // 8)}{chr(97 + number % 8)}",
    ),
    "geography/elevation": (
      "Elevation",
      f"highest point: Mount {SYLLABLES[number % 8]}{number // 8 * 'o'}r"
      f" {1000 + number * 13:,} m\nlowest point: a lake 3 m",
    ),
    "people-and-society/population": (
      "Population",
      f"total: {people:,} (2025 est.)\nmale: {people // 2:,}",
    ),
    "geography/area": ("Area", f"total: {500 + number**2 * 700:,} sq km"),
    "people-and-society/median-age": (
      "Median age",
      f"total: {18 + number * 11 % 48 * 0.6:.1f} years (2025 est.)",
    ),
    "people-and-society/life-expectancy-at-birth": (
      "Life expectancy at birth",
      f"total population: {50 + number * 5 % 48 * 0.8:.1f} years",
    ),
    "geography/land-boundaries": (
      "Land boundaries",
      f"total: {sum(length for _, length in _borders(number)):,} km\n"
      f"border countries: {borders}",
    ),
    "geography/climate": (
      "Climate",
      f"mild; the capital of {name_of(number)} has warm winters",
    ),
  }


@functools.cache
def passages() -> tuple[Passage, ...]:
  return tuple(
    Passage(
      passage_id=f"c{number:02d}/{suffix}",
      title=f"{name_of(number)}: {title}",
      text=text,
    )
    for number in range(NUM_COUNTRIES)
    for suffix, (title, text) in _lines(number).items()
  )


def write_jsonl(path: pathlib.Path) -> pathlib.Path:
  lines = [
    json.dumps({"id": p.passage_id, "title": p.title, "text": p.text})
    for p in passages()
  ]
  path.write_text("\n".join(lines), encoding="utf-8")
  return path


@functools.cache
def atlas() -> Atlas:
  return read_atlas(passages())


@functools.cache
def index() -> Fts5Index:
  return open_fts5(passages())


@functools.cache
def source() -> TaskSource:
  return TaskSource(atlas())
