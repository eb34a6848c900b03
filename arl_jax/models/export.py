"""Parameters written as a Hugging Face folder."""

from collections.abc import Iterator, Mapping
import json
import os
import pathlib
from typing import Any, Protocol

import numpy as np

from arl_jax.models import hf_config, load
from arl_jax.models.transformer import ModelConfig, param_specs

DEFAULT_SHARD_BYTES = 5 * 10**9


class SavesFiles(Protocol):
  """A tokenizer, as far as an export knows it."""

  @property
  def stop_ids(self) -> tuple[int, ...]:
    """Ids that end a turn."""
    ...

  @property
  def pad_id(self) -> int:
    """Id that fills rows."""
    ...

  def save(self, folder: str | os.PathLike[str]) -> None:
    """Writes the tokenizer's own files."""
    ...


def export_hf(
  folder: str | os.PathLike[str],
  config: ModelConfig,
  params: Mapping[str, Any],
  *,
  family: str,
  tokenizer: SavesFiles | None = None,
  max_position: int = hf_config.DEFAULT_MAX_POSITION,
  max_shard_bytes: int = DEFAULT_SHARD_BYTES,
) -> None:
  """Writes a folder that `load_hf` and transformers can read.

  Weights keep the dtype that they have in `params`.

  Args:
    folder: where to write; made if missing.
    config: shape of the transformer.
    params: its weights, as host arrays or arrays that convert to them.
    family: `llama`, `qwen2` or `qwen3`.
    tokenizer: saved beside the weights; also names the stop ids.
    max_position: longest context that config.json claims.
    max_shard_bytes: weights beyond this go to several files with an index.

  Raises:
    ValueError: the family does not fit the config, or a weight its shape.
  """
  dtype = np.asarray(params["embed"]).dtype.name
  load.parameter_dtype(dtype)
  values = hf_config.render_config(
    config, family=family, dtype=dtype, max_position=max_position
  )
  if tokenizer is not None:
    values["eos_token_id"] = list(tokenizer.stop_ids)
    values["pad_token_id"] = tokenizer.pad_id
  tensors = dict(_stored_tensors(config, params))
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  _write_tensors(folder, tensors, max_shard_bytes)
  _write_json(folder / "config.json", values)
  if tokenizer is not None:
    tokenizer.save(folder)


def _stored_tensors(
  config: ModelConfig, params: Mapping[str, Any]
) -> Iterator[tuple[str, np.ndarray]]:
  """Yields each stored name with its tensor in the stored layout."""
  specs = param_specs(config)
  for name, spec in specs.items():
    if name != "layers":
      tensor = _checked(name, params.get(name), spec.shape)
      yield load.TOP_TENSORS[name], _stored(name, tensor)
  for name, spec in specs["layers"].items():
    stack = _checked(f"layers/{name}", params["layers"].get(name), spec.shape)
    for layer in range(config.num_layers):
      yield load.hf_layer_name(layer, name), _stored(name, stack[layer])


def _checked(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
  if value is None:
    raise ValueError(f"params has no {name!r}; the config asks for {shape}")
  array = np.asarray(value)
  if array.shape != shape:
    raise ValueError(
      f"params {name!r} has shape {array.shape}; the config asks for {shape}"
    )
  return array


def _stored(name: str, value: np.ndarray) -> np.ndarray:
  # A view: only the file being written is copied, not the whole model.
  return value.T if load.is_transposed(name) else value


def _write_tensors(
  folder: pathlib.Path, tensors: dict[str, np.ndarray], max_bytes: int
) -> None:
  """Writes the tensors, then removes what an earlier export left."""
  shards = _split(tensors, max_bytes)
  names = [load.SINGLE_FILE]
  if len(shards) > 1:
    names = [
      f"model-{number:05d}-of-{len(shards):05d}.safetensors"
      for number in range(1, len(shards) + 1)
    ]
  for name, shard in zip(names, shards, strict=True):
    _save_file(folder / name, {key: tensors[key] for key in shard})
  for stale in folder.glob("model*.safetensors"):
    if stale.name not in names:
      stale.unlink()
  if len(shards) == 1:
    (folder / load.INDEX_FILE).unlink(missing_ok=True)
    return
  index = {
    "metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
    "weight_map": {
      key: name
      for name, shard in zip(names, shards, strict=True)
      for key in shard
    },
  }
  _write_json(folder / load.INDEX_FILE, index)


def _split(
  tensors: Mapping[str, np.ndarray], max_bytes: int
) -> list[list[str]]:
  """Splits names into runs of at most `max_bytes`, one tensor at least."""
  shards: list[list[str]] = [[]]
  size = 0
  for name, tensor in tensors.items():
    if shards[-1] and size + tensor.nbytes > max_bytes:
      shards.append([])
      size = 0
    shards[-1].append(name)
    size += tensor.nbytes
  return shards


def _save_file(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
  import safetensors
  import safetensors.numpy

  tensors = {
    name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()
  }
  partial = path.with_name(f"{path.name}.partial")
  try:
    # safetensors makes files that only their owner may read; one of ours has
    # the permissions that the user's files have.
    partial.touch()
    mode = partial.stat().st_mode
    # transformers refuses files that do not name their framework.
    safetensors.numpy.save_file(tensors, partial, metadata={"format": "pt"})
    partial.chmod(mode)
    partial.replace(path)
  except (safetensors.SafetensorError, OSError) as error:
    partial.unlink(missing_ok=True)
    raise OSError(f"{path} cannot be written: {error}") from error


def _write_json(path: pathlib.Path, values: Mapping[str, Any]) -> None:
  path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
