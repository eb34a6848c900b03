"""Tests of the index file."""

import gc
import pathlib
import sqlite3
import tempfile

import pytest

from arl_jax.envs import search_fts5
from arl_jax.envs.search_fts5 import Fts5Index, build_fts5, open_fts5
from arl_jax.envs.search_index import Passage

ONE = Passage(passage_id="a", title="apples", text="red")
TWO = Passage(passage_id="b", title="pears", text="green")


def test_a_file_is_built_once_and_used_again(tmp_path, monkeypatch):
  path = tmp_path / "some folder" / "100% index?#.sqlite"
  first = open_fts5([ONE, TWO], path=path)
  assert len(first) == 2
  first.close()
  monkeypatch.setattr(search_fts5, "build_fts5", None)  # no second build
  again = open_fts5([TWO, ONE], path=path)
  assert again.search("green", 3) == [TWO]
  again.close()
  assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_file_of_another_corpus_is_replaced(tmp_path):
  path = tmp_path / "index"
  old = open_fts5([ONE], path=path)
  new = open_fts5([TWO], path=path)
  assert new.search("apples", 1) == []
  assert new.search("pears", 1) == [TWO]
  # Whoever has the old one open goes on with it.
  assert old.search("apples", 1) == [ONE]
  old.close()
  new.close()


def test_an_index_of_another_layout_is_replaced(tmp_path, monkeypatch):
  path = tmp_path / "index"
  with monkeypatch.context() as patch:
    patch.setattr(search_fts5, "_LAYOUT", "0")
    open_fts5([ONE], path=path).close()
  index = open_fts5([ONE], path=path)
  assert index.fingerprint.startswith(f"{search_fts5._LAYOUT}/")
  index.close()


def test_the_file_is_never_written_to(tmp_path):
  path = tmp_path / "index"
  build_fts5([ONE], path)
  before = path.read_bytes()
  path.chmod(0o400)
  index = Fts5Index(path)
  index.search("apples", 1)
  with index._connection() as connection:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
      connection.execute("DELETE FROM places")
  index.close()
  assert path.read_bytes() == before


def test_a_build_that_fails_leaves_nothing(tmp_path, monkeypatch):
  def fail(*_):
    raise OSError("disk full")

  monkeypatch.setattr(search_fts5, "_fill", fail)
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  for path in (tmp_path / "index", None):
    with pytest.raises(OSError, match="disk full"):
      open_fts5([ONE], path=path)
  assert list(tmp_path.iterdir()) == []


def test_a_temporary_file_goes_with_its_index(tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  index = open_fts5([ONE])
  assert list(tmp_path.iterdir())
  index.close()
  assert list(tmp_path.iterdir()) == []
  forgotten = open_fts5([ONE])
  del forgotten
  gc.collect()
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"something else" * 100])
def test_a_file_that_is_no_index_is_named(tmp_path, content):
  path: pathlib.Path = tmp_path / "notes.txt"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=r"notes.txt is not a search index"):
    open_fts5([ONE], path=path)
  assert path.read_bytes() == content
  with pytest.raises(ValueError, match="missing is not a search index"):
    Fts5Index(tmp_path / "missing")


def test_a_closed_index_says_so():
  index = open_fts5([ONE])
  index.close()
  index.close()
  with pytest.raises(RuntimeError, match="closed"):
    index.search("apples", 1)


def test_a_connection_that_is_lent_at_closing_time_is_closed():
  index = open_fts5([ONE])
  with index._connection() as connection:
    index.close()
    assert connection.execute("SELECT 1").fetchone() == (1,)
  with pytest.raises(sqlite3.ProgrammingError, match="closed"):
    connection.execute("SELECT 1")


def test_a_python_without_full_text_search_is_named(monkeypatch, tmp_path):
  class Bare(sqlite3.Connection):
    def execute(self, sql, *args):
      if "fts5" in sql:
        raise sqlite3.OperationalError("no such module: fts5")
      return super().execute(sql, *args)

  connect = sqlite3.connect
  monkeypatch.setattr(
    sqlite3, "connect", lambda path: connect(path, factory=Bare)
  )
  with pytest.raises(RuntimeError, match="use the engine tantivy"):
    build_fts5([ONE], tmp_path / "index")
  assert list(tmp_path.iterdir()) == []
