"""What every engine of a full-text search over passages has in common."""

from collections.abc import Iterable, Sequence
import dataclasses
import hashlib
import re
from typing import Protocol

_MAX_QUERY_WORDS = 32
# Passages that an engine finds, to be ranked by their titles.
NUM_CANDIDATES = 50
# A word that nearly every passage holds costs time and ranks nothing.
_STOP_WORDS = frozenset(
  "a an and are as at be by do does for from has have how in is it its me of"
  " on or tell that the this to was were what when where which who with".split()
)
_WORD = re.compile(r"\w+")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
  """One text that can be found.

  Attributes:
    passage_id: a name without spaces, unique within the corpus.
    title: what it is about; words of it weigh more.
    text: what is read.
  """

  passage_id: str
  title: str
  text: str


class Index(Protocol):
  """What a search environment asks of an engine, from any thread."""

  def search(self, query: str, top_k: int) -> list[Passage]:
    """Returns at most `top_k` passages, best first; any text is a query."""
    ...

  def get(self, passage_id: str) -> Passage | None:
    """Returns the passage of an id, None if there is none."""
    ...


def query_words(query: str) -> list[str]:
  """The words of a query that can rank passages, in lower case.

  Those that nearly every passage holds are left out, unless there are no
  others. Words beyond the first 32 are left out, too.
  """
  words = list(dict.fromkeys(_WORD.findall(query.lower())))
  telling = [word for word in words if word not in _STOP_WORDS]
  return (telling or words)[:_MAX_QUERY_WORDS]


def rank(
  found: Iterable[tuple[float, int, Passage]], words: Sequence[str], top_k: int
) -> list[Passage]:
  """The best of what an engine found for the words of a query.

  A passage gains, up to as much again, the more of its title's words are in
  the query. So `France: Area` comes before `France: Area - comparative`, whose
  text has the word as well.

  Args:
    found: score (higher is better), place in the order of ids, and passage.
    words: of the query.
    top_k: how many to return. Of equally good ones the first place wins.
  """
  asked = set(words)
  scored = []
  for score, place, passage in found:
    title = set(query_words(passage.title))
    share = len(title & asked) / max(len(title), 1)
    scored.append((-score * (1.0 + share), place, passage))
  scored.sort(key=lambda one: one[:2])
  return [passage for _, _, passage in scored[:top_k]]


def fingerprint(passages: Iterable[Passage]) -> str:
  """Names the content of a corpus; the order of its passages does not count."""
  total = hashlib.sha256()
  for passage in _sorted(passages):
    for text in (passage.passage_id, passage.title, passage.text):
      data = text.encode("utf-8", errors="replace")
      total.update(len(data).to_bytes(8, "big") + data)
  return total.hexdigest()


def check_passages(passages: Iterable[Passage]) -> list[Passage]:
  """Returns passages sorted by id, or says what no index could hold.

  Raises:
    ValueError: two passages share an id, an id holds spaces, or there are none.
  """
  ordered = _sorted(passages)
  if not ordered:
    raise ValueError("the corpus is empty; expected passages")
  before = None
  for passage in ordered:
    name = passage.passage_id
    if not name or any(character.isspace() for character in name):
      raise ValueError(f"passage id {name!r}; expected one word without spaces")
    if name == before:
      raise ValueError(f"two passages have the id {name!r}; expected one")
    before = name
  return ordered


def _sorted(passages: Iterable[Passage]) -> list[Passage]:
  return sorted(passages, key=lambda passage: passage.passage_id)
