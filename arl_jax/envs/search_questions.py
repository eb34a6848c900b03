"""Questions about countries: their kinds, their words, and back."""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import re
import types
from typing import Literal

Kind = Literal["lookup", "compare", "border", "neighbour"]
# What an answer can be, and how it is asked for.
ASKED: Mapping[str, str] = types.MappingProxyType(
  {
    "capital": "capital",
    "internet_code": "internet country code",
    "highest_point": "highest point",
    "population": "population",
  }
)
# What countries are compared by: with the most of it, and with the least.
COMPARED: Mapping[str, tuple[str, str, str, str]] = types.MappingProxyType(
  {
    "population": (
      "larger population",
      "smaller population",
      "largest population",
      "smallest population",
    ),
    "area": ("larger area", "smaller area", "largest area", "smallest area"),
    "median_age": (
      "higher median age",
      "lower median age",
      "highest median age",
      "lowest median age",
    ),
    "life_expectancy": (
      "higher life expectancy",
      "lower life expectancy",
      "highest life expectancy",
      "lowest life expectancy",
    ),
  }
)
FORMS: Mapping[Kind, tuple[str, ...]] = types.MappingProxyType(
  {
    "lookup": (
      "What is the {ask} of {a}?",
      "Tell me the {ask} of {a}.",
      "For {a}, what is the {ask}?",
      "I need to know the {ask} of {a}.",
    ),
    "compare": (
      "Which has the {by}, {a} or {b}?",
      "Does {a} or {b} have the {by}?",
      "{a} or {b}: which has the {by}?",
    ),
    "border": (
      "What is the {ask} of the country with which {a} shares its {by} border?",
      "Among the borders of {a} one is the {by}. What is the {ask} of the"
      " country behind it?",
      "Take the neighbour with the {by} border with {a}. What is its {ask}?",
    ),
    "neighbour": (
      "Of the countries that border {a}, one has the {by}. What is its {ask}?",
      "What is the {ask} of the neighbour of {a} with the {by}?",
      "Which neighbour of {a} has the {by}? Give its {ask}.",
    ),
  }
)
_BORDER_WORDS = ("longest", "shortest")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Question:
  """What is asked, without the words that ask it.

  Attributes:
    kind: `lookup` asks for a fact of a country; `compare` which of two has
      more or less of something; `border` for a fact of the neighbour with the
      longest or shortest border; `neighbour` for a fact of the neighbour with
      the most or the least of something.
    names: of the countries in it, two to compare, else one.
    ask: a key of `ASKED`; empty to compare, where the answer is a name.
    by: a key of `COMPARED`, `borders` for a border, empty for a lookup.
    most: whether the most is meant, or the longest; else the least.
  """

  kind: Kind
  names: tuple[str, ...]
  ask: str = ""
  by: str = ""
  most: bool = True

  @property
  def key(self) -> str:
    """Names the question, however it is worded."""
    return "|".join((self.kind, *self.names, self.ask, self.by, str(self.most)))


def write_question(question: Question, *, form: int) -> str:
  """Words a question.

  Args:
    question: what is asked.
    form: which of the forms of its kind; counted round.
  """
  forms = FORMS[question.kind]
  words = dict(zip("ab", question.names, strict=False))
  return forms[form % len(forms)].format(
    ask=ASKED.get(question.ask, ""), by=_by_words(question), **words
  )


def read_question(text: str) -> Question:
  """Reads a question back that `write_question` worded.

  Raises:
    ValueError: no form fits.
  """
  for kind, pattern in _patterns():
    match = pattern.fullmatch(text)
    if match is None:
      continue
    found = match.groupdict()
    by, most = _by_phrases(kind)[found["by"]] if "by" in found else ("", True)
    asked = {phrase: name for name, phrase in ASKED.items()}
    return Question(
      kind=kind,
      names=tuple(found[name] for name in "ab" if name in found),
      ask=asked[found["ask"]] if "ask" in found else "",
      by=by,
      most=most,
    )
  raise ValueError(f"{text!r} is no question of a known form")


def _by_words(question: Question) -> str:
  if not question.by:
    return ""
  phrases = _by_phrases(question.kind)
  meant = (question.by, question.most)
  return next(words for words, found in phrases.items() if found == meant)


@functools.cache
def _by_phrases(kind: Kind) -> Mapping[str, tuple[str, bool]]:
  """What is compared and whether the most of it is meant, by its words."""
  if kind == "border":
    return {
      words: ("borders", most)
      for words, most in zip(_BORDER_WORDS, (True, False), strict=True)
    }
  first = 0 if kind == "compare" else 2
  return {
    words[first + offset]: (name, most)
    for name, words in COMPARED.items()
    for offset, most in enumerate((True, False))
  }


@functools.cache
def _patterns() -> tuple[tuple[Kind, re.Pattern[str]], ...]:
  return tuple(_make_patterns())


def _make_patterns() -> Iterator[tuple[Kind, re.Pattern[str]]]:
  # A lookup comes last, since it would take "the country with ..." for a name.
  for kind, forms in reversed(list(FORMS.items())):
    parts = {
      "a": r"[^,;:()?]+?",
      "b": r"[^,;:()?]+?",
      "ask": "|".join(map(re.escape, ASKED.values())),
      "by": "|".join(map(re.escape, _by_phrases(kind))),
    }
    for form in forms:
      pieces = re.split(r"\{(\w+)\}", form)
      pattern = "".join(
        f"(?P<{piece}>{parts[piece]})" if index % 2 else re.escape(piece)
        for index, piece in enumerate(pieces)
      )
      yield kind, re.compile(pattern)
