"""Facts about countries, read from passages such as the factbook's.

A passage counts if its id is `code/section/field` with a section and field of
`FIELDS`, and its title starts with the country's name and a colon. So every
corpus that is written like the factbook has facts, and every fact has a
passage.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import re
import types
import unicodedata

from arl_jax.envs.search_index import Passage

_ALIAS_SUFFIX = "government/country-name"
_ALIAS_LABELS = ("conventional short form", "conventional long form")
# Written so in lists of neighbours.
_SHORT_NAMES = {
  "US": "United States",
  "UK": "United Kingdom",
  "UAE": "United Arab Emirates",
}
# They have passages, and are no countries.
_AGGREGATES = ("ee", "xx")
# What a question can name without doubt about where the name ends.
_PLAIN_NAME = re.compile(r"[^,;:()?/\d]{2,40}")
_TITLE_CASED = re.compile(r"[^\W\d_a-z][\w'’.-]*(?: [\w'’.-]+){0,3}")
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)( million| billion)?(?=\s|$)")
_SCALES = {None: 1.0, " million": 1e6, " billion": 1e9}
_HEIGHT = re.compile(r" -?\d[\d,.]*(?: m)?$")
_CODE = re.compile(r"\.[a-z]{2}")
_BORDER = re.compile(r"([^\W\d_][^;,\d]*?) (\d[\d,]*(?:\.\d+)?) km")
_ASIDE = re.compile(r"\s*\(([^()]*)\)")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Field:
  """Where a fact is written.

  Attributes:
    suffix: of the passage's id, after the country's code.
    title: of the passage, after the country's name.
    label: of its line; empty if the passage is one line without a label.
  """

  suffix: str
  title: str
  label: str


FIELDS: Mapping[str, Field] = types.MappingProxyType(
  {
    "capital": Field(
      suffix="government/capital", title="Capital", label="name"
    ),
    "internet_code": Field(
      suffix="communications/internet-country-code",
      title="Internet country code",
      label="",
    ),
    "highest_point": Field(
      suffix="geography/elevation", title="Elevation", label="highest point"
    ),
    "population": Field(
      suffix="people-and-society/population", title="Population", label="total"
    ),
    "area": Field(suffix="geography/area", title="Area", label="total"),
    "median_age": Field(
      suffix="people-and-society/median-age", title="Median age", label="total"
    ),
    "life_expectancy": Field(
      suffix="people-and-society/life-expectancy-at-birth",
      title="Life expectancy at birth",
      label="total population",
    ),
    "borders": Field(
      suffix="geography/land-boundaries",
      title="Land boundaries",
      label="border countries",
    ),
  }
)
_NAMED = ("capital", "internet_code", "highest_point")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
  """One value, as a passage says it.

  Attributes:
    quote: the words of the passage that say it.
    accepted: forms of the value that are right answers, the passage's first.
    number: the value of a quantity, None of anything else.
    borders: name and length in km of each neighbour, for `borders`.
  """

  quote: str
  accepted: tuple[str, ...] = ()
  number: float | None = None
  borders: tuple[tuple[str, float], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Country:
  """One country with its facts.

  Attributes:
    code: the first part of its passages' ids.
    name: as its titles write it.
    accepted: names of it that are right answers.
    facts: by field; only those that could be read without doubt.
  """

  code: str
  name: str
  accepted: tuple[str, ...]
  facts: Mapping[str, Fact]

  def passage_id(self, field: str) -> str:
    """The id of the passage that a fact is from."""
    return f"{self.code}/{FIELDS[field].suffix}"

  def evidence(self, field: str) -> tuple[str, str]:
    """The id of the passage that a fact is from, and its quote."""
    return self.passage_id(field), self.facts[field].quote


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Atlas:
  """All countries of a corpus.

  Attributes:
    countries: by code, in the order of the codes; only those whose names a
      question can use.
    codes: of countries by each of their names.
  """

  countries: Mapping[str, Country]
  codes: Mapping[str, str]

  def neighbours(self, code: str) -> tuple[tuple[str | None, float], ...]:
    """Code and length in km of each border; the code is None if unknown."""
    fact = self.countries[code].facts.get("borders")
    pairs = () if fact is None else fact.borders
    return tuple((self.codes.get(name), length) for name, length in pairs)


def read_fact(field: str, text: str) -> Fact | None:
  """Reads a fact from the text of its passage; None if it is in doubt.

  Where the text was cut inside the value, it may be read wrongly.
  """
  value = _line(FIELDS[field].label, text)
  if value is None:
    return None
  label = FIELDS[field].label
  start = f"{label}: " if label else ""
  if field == "borders":
    return _read_borders(start, value)
  if field in _NAMED:
    read = _NAME_READERS[field](value)
    if read is None:
      return None
    quoted, names = read
    return Fact(quote=start + quoted, accepted=_with_plain_letters(names))
  match = _NUMBER.match(value)
  if match is None or "less than" in value:
    return None
  number = float(match[1].replace(",", "")) * _SCALES[match[2]]
  accepted = (match[1],) if match[2] is None else ()
  return Fact(quote=start + match.group(), accepted=accepted, number=number)


def read_atlas(passages: Iterable[Passage]) -> Atlas:
  """Collects the countries of a corpus."""
  fields = {field.suffix: name for name, field in FIELDS.items()}
  names: dict[str, str] = {}
  aliases: dict[str, list[str]] = {}
  facts: dict[str, dict[str, Fact]] = {}
  for passage in passages:
    code, _, suffix = passage.passage_id.partition("/")
    if suffix == _ALIAS_SUFFIX:
      aliases[code] = [
        line
        for label in _ALIAS_LABELS
        if (line := _line(label, passage.text)) and line != "none"
      ]
    field = fields.get(suffix)
    name, colon, title = passage.title.rpartition(": ")
    if field is None or not colon or title != FIELDS[field].title:
      continue
    names[code] = name
    fact = read_fact(field, passage.text)
    if fact is not None:
      facts.setdefault(code, {})[field] = fact
  countries = {
    code: Country(
      code=code,
      name=names[code],
      accepted=_with_plain_letters([names[code], *aliases.get(code, ())]),
      facts=types.MappingProxyType(facts[code]),
    )
    for code in sorted(facts)
    if code not in _AGGREGATES and _is_plain(names[code])
  }
  return Atlas(
    countries=types.MappingProxyType(countries), codes=_codes(countries)
  )


def _codes(countries: Mapping[str, Country]) -> Mapping[str, str]:
  """Codes by name, without the names that two countries share."""
  owners: dict[str, set[str]] = {}
  for country in countries.values():
    for name in country.accepted:
      owners.setdefault(name, set()).add(country.code)
  for short, name in _SHORT_NAMES.items():
    owners.setdefault(short, set()).update(owners.get(name, ()))
  return types.MappingProxyType(
    {name: codes.pop() for name, codes in owners.items() if len(codes) == 1}
  )


def _is_plain(name: str) -> bool:
  return bool(_PLAIN_NAME.fullmatch(name)) and " or " not in name


def _line(label: str, text: str) -> str | None:
  """What follows a label in a text, up to the end of the line."""
  if not label:
    return text.strip().split("\n")[0]
  match = re.search(rf"^{re.escape(label)}: (.+)$", text, re.MULTILINE)
  return None if match is None else match[1].strip()


def _read_capital(value: str) -> tuple[str, list[str]] | None:
  main, _, rest = value.partition(" (")
  aside, _, beyond = rest.partition(")")
  if not (_TITLE_CASED.fullmatch(main) or main == "Washington, D.C."):
    return None
  # Several capitals, or a note.
  if beyond or "capital" in aside or " in " in main:
    return None
  others = [one.strip() for one in re.split(r"[,/]", aside)]
  named = [
    one for one in others if _TITLE_CASED.fullmatch(one) and " is " not in one
  ]
  return main, [main, *named]


def _read_code(value: str) -> tuple[str, list[str]] | None:
  return (value, [value]) if _CODE.fullmatch(value) else None


def _read_peak(value: str) -> tuple[str, list[str]] | None:
  name, found = _HEIGHT.subn("", value)
  if not found or not _TITLE_CASED.fullmatch(name):
    return None
  return value, [name]


_NAME_READERS = {
  "capital": _read_capital,
  "internet_code": _read_code,
  "highest_point": _read_peak,
}


def _read_borders(start: str, value: str) -> Fact | None:
  plain = _ASIDE.sub("", value)
  pairs = tuple(
    (name.removeprefix("and "), float(length.replace(",", "")))
    for name, length in _BORDER.findall(plain)
  )
  # One that could not be read might be the longest of all.
  if not pairs or len(pairs) != plain.count(" km"):
    return None
  return Fact(quote=start + value, borders=pairs)


def _with_plain_letters(names: Iterable[str]) -> tuple[str, ...]:
  """Adds each name without its accents, and drops what comes twice."""
  found: list[str] = []
  for name in names:
    parts = unicodedata.normalize("NFKD", name)
    plain = "".join(part for part in parts if not unicodedata.combining(part))
    found += [name, plain]
  return tuple(dict.fromkeys(found))
