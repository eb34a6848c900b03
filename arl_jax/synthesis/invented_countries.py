"""Countries that do not exist, written as those that do.

A small policy that is shown the same few hundred countries again and again
learns their capitals by heart and stops reading. Here each country has the
passages of a real one, under another name and with other names and numbers in
them, so that only what was found can be right.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import random
import re

from arl_jax.envs import search_facts
from arl_jax.envs.search_facts import Atlas
from arl_jax.envs.search_index import Passage
from arl_jax.envs.search_tasks import is_held_out

_NAMED = ("capital", "highest_point")
_CODE = "internet_code"
_END = "\n"
_NAME_CHARS = (4, 12)
_LONG_RUN = re.compile(r"\d+")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Templates:
  """Real countries to write others from.

  Attributes:
    passages: of each country, by its code.
    atlas: the same countries, with their facts.
    names: that invented ones should sound like.
  """

  passages: Mapping[str, Sequence[Passage]]
  atlas: Atlas
  names: tuple[str, ...]


def read_templates(
  passages: Iterable[Passage], *, leave_out: Iterable[str] = ()
) -> Templates:
  """Collects the countries of a corpus, except those with a code to leave out.

  Raises:
    ValueError: there are none.
  """
  skipped = set(leave_out)
  by_code: dict[str, list[Passage]] = {}
  for passage in passages:
    code = passage.passage_id.partition("/")[0]
    if code not in skipped:
      by_code.setdefault(code, []).append(passage)
  atlas = search_facts.read_atlas(
    p for group in by_code.values() for p in group
  )
  if not atlas.countries:
    raise ValueError("the corpus has no countries to write others from")
  names = [country.name for country in atlas.countries.values()]
  for country in atlas.countries.values():
    names += [
      fact.accepted[0]
      for field in _NAMED
      if (fact := country.facts.get(field)) is not None
    ]
  return Templates(
    passages={code: by_code[code] for code in atlas.countries},
    atlas=atlas,
    names=tuple(names),
  )


def invent_passages(
  templates: Templates, *, num_countries: int, seed: int
) -> list[Passage]:
  """Writes the corpus of a world of its own; equal seeds, equal worlds.

  Args:
    templates: countries to write others from.
    num_countries: how many; at most as many as there are templates.
    seed: another one gives other names, numbers and templates.

  Returns:
    Passages whose ids begin with a code that is not held out.

  Raises:
    ValueError: there are fewer templates.
  """
  codes = sorted(templates.passages)
  if not 1 <= num_countries <= len(codes):
    raise ValueError(
      f"num_countries is {num_countries}; expected 1 to {len(codes)}, the"
      " number of countries to write others from"
    )
  rng = random.Random(f"invented-countries/{seed}")
  speller = _Speller(templates.names, rng)
  chosen = _choose(templates.atlas, num_countries, rng)
  new_codes = _two_letters(rng)
  countries = templates.atlas.countries
  # A neighbour that was not chosen is invented, too.
  renamed = {country.name: speller.name() for country in countries.values()}
  found: list[Passage] = []
  for code in chosen:
    changes = dict(renamed)
    for field in _NAMED:
      fact = countries[code].facts.get(field)
      if fact is not None:
        changes.setdefault(fact.accepted[0], speller.name())
    found += _rewrite(
      templates.passages[code],
      next(new_codes),
      countries[code].name,
      changes,
      rng,
    )
  return found


def _choose(atlas: Atlas, number: int, rng: random.Random) -> list[str]:
  """Draws countries with their neighbours, which questions may go over to."""
  chosen: dict[str, None] = {}
  for code in rng.sample(sorted(atlas.countries), len(atlas.countries)):
    chosen.setdefault(code)
    for neighbour, _ in atlas.neighbours(code):
      if neighbour is not None:
        chosen.setdefault(neighbour)
    if len(chosen) >= number:
      break
  return list(chosen)[:number]


def _two_letters(rng: random.Random) -> Iterator[str]:
  """Yields codes in a random order, without those that are held out."""
  pairs = [one + other for one in _LETTERS for other in _LETTERS]
  rng.shuffle(pairs)
  return (code for code in pairs if not is_held_out(code))


def _rewrite(
  passages: Sequence[Passage],
  code: str,
  name: str,
  changes: Mapping[str, str],
  rng: random.Random,
) -> Iterator[Passage]:
  """Yields a country's passages under its new name, with other numbers."""
  longest_first = sorted(changes, key=len, reverse=True)
  pattern = re.compile(
    r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)"
  )
  internet_code = f".{rng.choice(_LETTERS)}{rng.choice(_LETTERS)}"
  code_suffix = search_facts.FIELDS[_CODE].suffix
  for passage in passages:
    suffix = passage.passage_id.partition("/")[2]
    text = pattern.sub(lambda match: changes[match[0]], passage.text)
    if suffix == code_suffix:
      text = re.sub(r"\.[a-z]{2}\b", internet_code, text, count=1)
    text = _LONG_RUN.sub(lambda match: _number_like(match[0], rng), text)
    title = passage.title
    if title.startswith(f"{name}: "):
      title = changes[name] + title.removeprefix(name)
    yield Passage(passage_id=f"{code}/{suffix}", title=title, text=text)


def _number_like(digits: str, rng: random.Random) -> str:
  """Other digits, as many; the first is 0 where it was."""
  first = digits[0] if digits[0] == "0" else rng.choice("123456789")
  return first + "".join(rng.choice("0123456789") for _ in digits[1:])


class _Speller:
  """Spells names that sound like others, none of them twice."""

  def __init__(self, names: Sequence[str], rng: random.Random):
    self._rng = rng
    self._used = set(names)
    self._next: dict[str, list[str]] = {}
    for name in names:
      padded = _END * 2 + name + _END
      for index in range(len(padded) - 2):
        pair = padded[index : index + 2]
        self._next.setdefault(pair, []).append(padded[index + 2])

  def name(self) -> str:
    while True:
      text = _END * 2
      while len(text) == 2 or text[-1] != _END:
        text += self._rng.choice(self._next[text[-2:]])
      name = text.strip(_END)
      low, high = _NAME_CHARS
      is_plain = low <= len(name) <= high and name.replace(" ", "").isalpha()
      if is_plain and name[0].isupper() and name not in self._used:
        self._used.add(name)
        return name
