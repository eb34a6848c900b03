"""Full-text search over passages, in a read-only file of SQLite's FTS5."""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import sqlite3
import tempfile
import threading
from typing import Protocol
import urllib.parse
import weakref

# Raise it when the file's layout or the way it is filled changes.
_LAYOUT = "1"
_MAX_QUERY_WORDS = 32
# Passages that an engine finds, to be ranked by their titles.
NUM_CANDIDATES = 50
_MAX_IDLE_CONNECTIONS = 4
# A word that nearly every passage holds costs time and ranks nothing.
_STOP_WORDS = frozenset(
  "a an and are as at be by do does for from has have how in is it its me of"
  " on or tell that the this to was were what when where which who with".split()
)
_WORD = re.compile(r"\w+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


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
  """What a search environment asks of an engine; both may come from threads."""

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
  total = hashlib.sha256(_LAYOUT.encode())
  for passage in _sorted(passages):
    for text in (passage.passage_id, passage.title, passage.text):
      data = text.encode("utf-8", errors="replace")
      total.update(len(data).to_bytes(8, "big") + data)
  return total.hexdigest()


class Fts5Index:
  """An index of `build_fts5`, ranked by BM25.

  A title's word counts five times; see also `rank`. Of equally good passages
  the one whose id sorts first comes first. A connection is lent to one thread
  at a time.

  Args:
    path: the file.
    folder: a temporary folder that goes when the index is closed, None for
      none.
  """

  def __init__(
    self, path: str | os.PathLike[str], *, folder: str | None = None
  ):
    self._path = pathlib.Path(path).resolve()
    self._idle: list[sqlite3.Connection] = []
    self._lock = threading.Lock()
    self._finalizer = weakref.finalize(self, _close, self._idle, folder)
    try:
      with self._connection() as connection:
        found = connection.execute("SELECT name, value FROM about")
        self._about = dict(found.fetchall())
        (self._size,) = connection.execute(
          "SELECT count(*) FROM places"
        ).fetchone()
    except sqlite3.Error as error:
      self.close()
      raise ValueError(
        f"{path} is not a search index ({error}); delete it, and it is built"
        " again"
      ) from error

  def search(self, query: str, top_k: int) -> list[Passage]:
    """Returns at most `top_k` passages that share a word with the query."""
    if top_k < 1:
      raise ValueError(f"top_k is {top_k}; expected 1 or more")
    words = query_words(query)
    if not words:
      return []
    # In quotes nothing is an operator, and a word holds no quote.
    match = " OR ".join(f'"{word}"' for word in words)
    with self._connection() as connection:
      rows = connection.execute(
        "SELECT places.id, found.title, found.text,"
        " -bm25(passages, 5.0, 1.0) AS score, found.rowid"
        " FROM passages AS found JOIN places ON places.place = found.rowid"
        " WHERE passages MATCH ? ORDER BY score DESC, found.rowid LIMIT ?",
        (match, max(NUM_CANDIDATES, top_k)),
      ).fetchall()
    found = ((row[3], row[4], _passage(row[:3])) for row in rows)
    return rank(found, words, top_k)

  def get(self, passage_id: str) -> Passage | None:
    """Returns the passage of an id, None if there is none."""
    with self._connection() as connection:
      row = connection.execute(
        "SELECT places.id, found.title, found.text FROM places"
        " JOIN passages AS found ON found.rowid = places.place"
        " WHERE places.id = ?",
        (_SURROGATE.sub("\ufffd", passage_id),),
      ).fetchone()
    return None if row is None else _passage(row)

  def __len__(self) -> int:
    return self._size

  @property
  def fingerprint(self) -> str:
    """The fingerprint of the corpus that it was built from."""
    return self._about.get("fingerprint", "")

  def close(self) -> None:
    """Closes the file; deletes it if it is temporary."""
    self._finalizer()

  @contextlib.contextmanager
  def _connection(self) -> Iterator[sqlite3.Connection]:
    if not self._finalizer.alive:
      raise RuntimeError("the index is closed")
    with self._lock:
      connection = self._idle.pop() if self._idle else None
    connection = connection or _connect(self._path)
    try:
      yield connection
    finally:
      with self._lock:
        keep = self._finalizer.alive and len(self._idle) < _MAX_IDLE_CONNECTIONS
        if keep:
          self._idle.append(connection)
      if not keep:
        connection.close()


def open_fts5(
  passages: Sequence[Passage], *, path: str | os.PathLike[str] | None = None
) -> Fts5Index:
  """Opens the index of a corpus, and builds it first where it is needed.

  Args:
    passages: the corpus.
    path: the file to keep it in. One of the same corpus is used as it is, one
      of another corpus is replaced. None is a temporary file.

  Raises:
    ValueError: two passages share an id, an id holds spaces, there are none,
      or the file is something else.
  """
  if path is None:
    folder = tempfile.mkdtemp(prefix="search-index-")
    try:
      build_fts5(passages, pathlib.Path(folder, "index.sqlite"))
    except BaseException:
      shutil.rmtree(folder, ignore_errors=True)
      raise
    return Fts5Index(pathlib.Path(folder, "index.sqlite"), folder=folder)
  path = pathlib.Path(path)
  if path.exists():
    index = Fts5Index(path)
    if index.fingerprint == fingerprint(passages):
      return index
    index.close()
  build_fts5(passages, path)
  return Fts5Index(path)


def build_fts5(
  passages: Iterable[Passage], path: str | os.PathLike[str]
) -> None:
  """Writes an index; the file appears when it is complete.

  Raises:
    ValueError: two passages share an id, an id holds spaces, or there are none.
  """
  ordered = check_passages(passages)
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  number, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
  os.close(number)
  try:
    with contextlib.closing(sqlite3.connect(draft)) as connection:
      _fill(connection, ordered)
    os.replace(draft, path)
  finally:
    pathlib.Path(draft).unlink(missing_ok=True)


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


def _fill(connection: sqlite3.Connection, passages: list[Passage]) -> None:
  connection.executescript(
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT);"
    "CREATE TABLE places (place INTEGER PRIMARY KEY, id TEXT UNIQUE);"
    "CREATE VIRTUAL TABLE passages USING fts5(title, text,"
    " tokenize = 'porter unicode61 remove_diacritics 2');"
  )
  clean = [
    [_SURROGATE.sub("\ufffd", text) for text in (p.passage_id, p.title, p.text)]
    for p in passages
  ]
  with connection:
    connection.executemany(
      "INSERT INTO places VALUES (?, ?)",
      ((place, row[0]) for place, row in enumerate(clean, start=1)),
    )
    connection.executemany(
      "INSERT INTO passages (rowid, title, text) VALUES (?, ?, ?)",
      ((place, *row[1:]) for place, row in enumerate(clean, start=1)),
    )
    connection.execute("INSERT INTO passages (passages) VALUES ('optimize')")
    connection.execute(
      "INSERT INTO about VALUES ('fingerprint', ?)", (fingerprint(passages),)
    )


def _connect(path: pathlib.Path) -> sqlite3.Connection:
  """Opens a file that nobody changes: it is replaced as a whole."""
  where = urllib.parse.quote(str(path))
  return sqlite3.connect(
    f"file:{where}?mode=ro&immutable=1", uri=True, check_same_thread=False
  )


def _close(idle: list[sqlite3.Connection], folder: str | None) -> None:
  while idle:
    idle.pop().close()
  if folder is not None:
    shutil.rmtree(folder, ignore_errors=True)


def _sorted(passages: Iterable[Passage]) -> list[Passage]:
  return sorted(passages, key=lambda passage: passage.passage_id)


def _passage(row: tuple[str, str, str]) -> Passage:
  return Passage(passage_id=row[0], title=row[1], text=row[2])
