"""Synthetic episodes as a tensorflow-datasets folder, read by index.

The files are array_record, which needs no TensorFlow to write or to read.
"""

from collections.abc import Callable, Iterable, Sequence
import contextlib
import functools
import io
import json
import os
import pathlib
from typing import Any, overload

import numpy as np

from arl_jax.synthesis.episode_file import load_episodes
from arl_jax.synthesis.synthetic_episode import (
  SyntheticEpisode,
  decode_synthetic,
  encode_synthetic,
)

NAME = "synthetic_episodes"
VERSION = "1.0.0"
SPLIT = "train"
_INFO_FILE = "dataset_info.json"
_DESCRIPTION = (
  "Episodes of agents with tools, to imitate. `record` is the whole episode as"
  " JSON; the other features are parts of it."
)


class EpisodeDataset(Sequence[SyntheticEpisode]):
  """A prepared folder; each episode is read when it is asked for.

  Args:
    folder: as given to `prepare_dataset`, or the folder of a version in it.

  Raises:
    ValueError: there is no prepared dataset, or not of episodes.
    ModuleNotFoundError: the extra `data` is not installed.
  """

  def __init__(self, folder: str | os.PathLike[str]):
    version = _version_folder(pathlib.Path(folder))
    if version is None:
      raise ValueError(
        f"{folder} is not a prepared dataset: it has no {_INFO_FILE}. Expected"
        " a folder that python -m arl_jax.synthesize wrote"
      )
    tfds = _tfds()
    try:
      builder = tfds.builder_from_directory(str(version))
      features = builder.info.features
      self._source: Any = builder.as_data_source(split=SPLIT)
    # What is damaged gives errors of all kinds.
    except Exception as error:
      raise ValueError(
        f"{folder} cannot be read ({error}); write the dataset again"
      ) from error
    if features is None or "record" not in features:
      raise ValueError(
        f"{folder} is a dataset without the feature `record`; expected one of"
        " synthetic episodes"
      )
    self._folder = folder

  def __len__(self) -> int:
    return len(self._source)

  @overload
  def __getitem__(self, index: int) -> SyntheticEpisode: ...

  @overload
  def __getitem__(self, index: slice) -> list[SyntheticEpisode]: ...

  def __getitem__(
    self, index: int | slice
  ) -> SyntheticEpisode | list[SyntheticEpisode]:
    """Reads one episode, or those of a slice."""
    if isinstance(index, slice):
      return [self[i] for i in range(*index.indices(len(self)))]
    place = index + len(self) if index < 0 else index
    if not 0 <= place < len(self):
      raise IndexError(f"episode {index} of {len(self)}")
    try:
      return decode_synthetic(json.loads(self._source[place]["record"]))
    # As above; or what is read is None.
    except Exception as error:
      raise ValueError(f"{self._folder}, episode {place}: {error}") from error


def prepare_dataset(
  folder: str | os.PathLike[str], episodes: Iterable[SyntheticEpisode]
) -> pathlib.Path:
  """Writes episodes as a dataset; readers see all of it or nothing.

  Args:
    folder: of datasets; a new one, or without a dataset of this name.
    episodes: one or more; their order is kept.

  Returns:
    The folder of the version that was written.

  Raises:
    ValueError: there are no episodes, or the folder has a dataset already.
    ModuleNotFoundError: the extra `data` is not installed.
  """
  records = [encode_synthetic(episode) for episode in episodes]
  if not records:
    raise ValueError(
      f"there are no episodes to write to {folder}; expected one or more"
    )
  check_new(folder)
  builder = _builder_class()(records, data_dir=str(folder))
  # It tells of downloads, of which there are none, and draws bars.
  quiet = io.StringIO()
  with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
    builder.download_and_prepare()
  return pathlib.Path(builder.data_dir)


def check_new(folder: str | os.PathLike[str]) -> None:
  """Checks that a dataset can be written to a folder.

  Raises:
    ValueError: it has one already.
    ModuleNotFoundError: the extra `data` is not installed.
  """
  if _version_folder(pathlib.Path(folder)) is not None:
    raise ValueError(
      f"{folder} has a dataset already; delete it, or name another folder"
    )
  _tfds()


def open_episodes(
  path: str | os.PathLike[str],
) -> Sequence[SyntheticEpisode]:
  """Opens a file of JSON lines, or a prepared dataset.

  Raises:
    ValueError: there is neither, or it is damaged.
    ModuleNotFoundError: a dataset needs the extra `data`.
  """
  if pathlib.Path(path).is_dir():
    return EpisodeDataset(path)
  return load_episodes(path)


def _version_folder(folder: pathlib.Path) -> pathlib.Path | None:
  """The folder of the newest version that is prepared in a folder."""
  for place in (folder, folder / NAME / VERSION):
    if (place / _INFO_FILE).is_file():
      return place
  return None


def _tfds() -> Any:
  try:
    import tensorflow_datasets
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      f"datasets need tensorflow-datasets, but {error.name} is not installed;"
      " run pip install 'arl-jax[data]', or write and read JSON lines",
      name=error.name,
    ) from error
  return tensorflow_datasets


@functools.cache
def _builder_class() -> Callable[..., Any]:
  """Makes the builder's class, once, since its name is then taken."""
  tfds = _tfds()

  class Info(tfds.core.DatasetInfo):
    """Says what is said here, and asks nobody else."""

    def initialize_from_bucket(self):
      # It leaves a folder among the system's temporary ones.
      pass

  class SyntheticEpisodes(tfds.core.GeneratorBasedBuilder):
    """Writes the records that it is given."""

    name = NAME
    VERSION = tfds.core.Version(VERSION)

    def __init__(self, records: Sequence[dict[str, Any]], *, data_dir: str):
      self._records = records
      super().__init__(file_format="array_record", data_dir=data_dir)

    def _info(self):
      # Not from a package's files, which would have to be found by name.
      return Info(
        builder=self,
        description=_DESCRIPTION,
        features=tfds.features.FeaturesDict(
          {
            "record": tfds.features.Text(),
            "task_id": tfds.features.Text(),
            "source": tfds.features.Text(),
            "level": tfds.features.Scalar(dtype=np.int64),
            "num_turns": tfds.features.Scalar(dtype=np.int64),
            "success": tfds.features.Scalar(dtype=np.bool_),
            "reward": tfds.features.Scalar(dtype=np.float64),
          }
        ),
        disable_shuffling=True,
      )

    def _split_generators(self, dl_manager: Any):
      del dl_manager  # nothing is downloaded
      return {SPLIT: self._generate_examples()}

    def _generate_examples(self):
      for index, record in enumerate(self._records):
        task = record["task"]
        yield (
          index,
          {
            "record": json.dumps(record, allow_nan=False),
            "task_id": task["task_id"],
            "source": record["source"],
            "level": task["level"],
            "num_turns": len(record["turns"]),
            "success": record["success"],
            "reward": float(record["reward"]),
          },
        )

  return SyntheticEpisodes
