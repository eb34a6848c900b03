"""Tests of episodes as a dataset that is read by index."""

import importlib
import importlib.util
import sys
import tempfile
from typing import Any

import pytest

from arl_jax.synthesis import episode_dataset
from arl_jax.synthesis.episode_dataset import open_episodes, prepare_dataset
from arl_jax.synthesis.episode_file import save_episodes
from tests.synthesis import played

needs_package = pytest.mark.skipif(
  importlib.util.find_spec("tensorflow_datasets") is None,
  reason="pip install 'arl-jax[data]'",
)


@needs_package
def test_each_episode_is_read_back_by_its_index(tmp_path, monkeypatch):
  scratch = tmp_path / "scratch"
  scratch.mkdir()
  monkeypatch.setattr(tempfile, "tempdir", str(scratch))
  episodes = played.flight_episodes(30)
  version = prepare_dataset(tmp_path / "data", episodes)
  found = open_episodes(tmp_path / "data")
  assert len(found) == 30
  assert [found[index] for index in range(30)] == episodes
  assert found[-1] == episodes[-1]
  assert found[3:9:2] == episodes[3:9:2]
  with pytest.raises(IndexError):
    found[30]
  assert open_episodes(version)[7] == episodes[7]
  assert "tensorflow" not in sys.modules
  assert not list(scratch.iterdir())
  assert {path.name for path in tmp_path.iterdir()} == {"data", "scratch"}


@needs_package
def test_other_programs_find_the_parts_as_features(tmp_path):
  tfds: Any = importlib.import_module("tensorflow_datasets")

  episodes = played.flight_episodes(8, careful=0.0)
  version = prepare_dataset(tmp_path, episodes)
  source = tfds.builder_from_directory(str(version)).as_data_source("train")
  for example, episode in zip(source, episodes, strict=True):
    assert example["task_id"].decode() == episode.task.task_id
    assert example["level"] == episode.task.level
    assert example["num_turns"] == len(episode.turns)
    assert example["success"] == episode.success
    assert example["reward"] == episode.reward


@needs_package
def test_a_dataset_is_not_written_over(tmp_path):
  episodes = played.flight_episodes(3)
  prepare_dataset(tmp_path, episodes[:2])
  with pytest.raises(ValueError, match="has a dataset already; delete it"):
    prepare_dataset(tmp_path, episodes)
  assert len(open_episodes(tmp_path)) == 2
  with pytest.raises(ValueError, match="there are no episodes to write"):
    prepare_dataset(tmp_path / "other", [])


@needs_package
def test_nothing_is_left_of_one_that_failed(tmp_path, monkeypatch):
  def fail(episode):
    raise RuntimeError("broken")

  monkeypatch.setattr(episode_dataset, "encode_synthetic", fail)
  with pytest.raises(RuntimeError, match="broken"):
    prepare_dataset(tmp_path / "data", played.flight_episodes(1))
  with pytest.raises(ValueError, match="is not a file"):
    open_episodes(tmp_path / "data")


def test_a_folder_without_a_dataset_and_a_file_are_told_apart(tmp_path):
  with pytest.raises(ValueError, match="is not a prepared dataset"):
    open_episodes(tmp_path)
  episodes = played.flight_episodes(2)
  save_episodes(tmp_path / "file.jsonl", episodes)
  assert open_episodes(tmp_path / "file.jsonl") == episodes


def test_a_missing_package_is_named_with_its_command(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
  with pytest.raises(ModuleNotFoundError, match=r"pip install 'arl-jax\[data"):
    prepare_dataset(tmp_path, played.flight_episodes(1))
