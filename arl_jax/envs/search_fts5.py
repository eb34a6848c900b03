"""Full-text search over passages, in a read-only file of SQLite's FTS5."""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import os
import pathlib
import re
import shutil
import sqlite3
import tempfile
import threading
import urllib.parse
import weakref

from arl_jax.envs.search_index import (
  NUM_CANDIDATES,
  Passage,
  check_passages,
  fingerprint,
  query_words,
  rank,
)

# Raise it when the file's layout or the way it is filled changes.
_LAYOUT = "1"
_MAX_IDLE_CONNECTIONS = 4
_SURROGATE = re.compile(r"[\ud800-\udfff]")


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
    with self._lock:
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
      _write(check_passages(passages), pathlib.Path(folder, "index.sqlite"))
    except BaseException:
      shutil.rmtree(folder, ignore_errors=True)
      raise
    return Fts5Index(pathlib.Path(folder, "index.sqlite"), folder=folder)
  path = pathlib.Path(path)
  if path.exists():
    index = Fts5Index(path)
    if index.fingerprint == _fingerprint(passages):
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
  try:
    _write(ordered, pathlib.Path(draft))
    os.fsync(number)
    os.replace(draft, path)
  finally:
    os.close(number)
    pathlib.Path(draft).unlink(missing_ok=True)


def _write(passages: list[Passage], path: pathlib.Path) -> None:
  with contextlib.closing(sqlite3.connect(path)) as connection:
    # Whoever sees the file sees all of it, so no step of it has to be safe.
    connection.executescript(
      "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
    )
    _fill(connection, passages)


def _fill(connection: sqlite3.Connection, passages: list[Passage]) -> None:
  try:
    connection.execute(
      "CREATE VIRTUAL TABLE passages USING fts5(title, text,"
      " tokenize = 'porter unicode61 remove_diacritics 2')"
    )
  except sqlite3.OperationalError as error:
    if "no such module" not in str(error):
      raise
    raise RuntimeError(
      f"this Python's SQLite cannot search text ({error}); use the engine"
      " tantivy, or a Python whose SQLite has FTS5"
    ) from error
  connection.executescript(
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT);"
    "CREATE TABLE places (place INTEGER PRIMARY KEY, id TEXT UNIQUE);"
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
      "INSERT INTO about VALUES ('fingerprint', ?)", (_fingerprint(passages),)
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


def _fingerprint(passages: Iterable[Passage]) -> str:
  return f"{_LAYOUT}/{fingerprint(passages)}"


def _passage(row: tuple[str, str, str]) -> Passage:
  return Passage(passage_id=row[0], title=row[1], text=row[2])
