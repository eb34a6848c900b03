"""Hugging Face folders of safetensors read into a parameter tree."""

from collections.abc import Callable, Mapping
import json
import os
import pathlib
from typing import Any

import ml_dtypes
import numpy as np

from arl_jax.models import hf_config
from arl_jax.models.transformer import ModelConfig, param_specs

# Ours to theirs. A weight is stored `[out, in]` there and `[in, out]` here.
LAYER_TENSORS = {
  "attn_norm": "input_layernorm.weight",
  "wq": "self_attn.q_proj.weight",
  "wk": "self_attn.k_proj.weight",
  "wv": "self_attn.v_proj.weight",
  "wo": "self_attn.o_proj.weight",
  "bq": "self_attn.q_proj.bias",
  "bk": "self_attn.k_proj.bias",
  "bv": "self_attn.v_proj.bias",
  "bo": "self_attn.o_proj.bias",
  "q_norm": "self_attn.q_norm.weight",
  "k_norm": "self_attn.k_norm.weight",
  "mlp_norm": "post_attention_layernorm.weight",
  "w_gate": "mlp.gate_proj.weight",
  "w_up": "mlp.up_proj.weight",
  "w_down": "mlp.down_proj.weight",
  "b_gate": "mlp.gate_proj.bias",
  "b_up": "mlp.up_proj.bias",
  "b_down": "mlp.down_proj.bias",
}
TOP_TENSORS = {
  "embed": "model.embed_tokens.weight",
  "final_norm": "model.norm.weight",
  "unembed": "lm_head.weight",
}
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_DTYPES = {
  "float32": np.dtype(np.float32),
  "float16": np.dtype(np.float16),
  "bfloat16": np.dtype(ml_dtypes.bfloat16),
}

# Gives the tensor of a name in its stored layout, `[out, in]` for weights.
ReadFn = Callable[[str], np.ndarray]


def load_hf(
  folder: str | os.PathLike[str], *, dtype: str = "float32"
) -> tuple[ModelConfig, dict[str, Any]]:
  """Reads a Hugging Face folder of the Llama, Qwen2 or Qwen3 family.

  Args:
    folder: holds config.json with model.safetensors, or with several such
      files and their index.
    dtype: of the parameters, and of the activations in the config.

  Returns:
    The config, and the parameters as NumPy arrays.

  Raises:
    ValueError: a file is missing, damaged or of an unsupported model; a
      tensor is missing, unknown or of another shape.

  Example:
    config, params = load_hf("checkpoints/Qwen3-0.6B", dtype="bfloat16")
  """
  folder = pathlib.Path(folder)
  config = hf_config.parse_config(
    read_json(folder / "config.json"), dtype=dtype
  )
  files = _tensor_files(folder)
  _check_names(folder, config, set(files))

  def read(name: str) -> np.ndarray:
    if name not in files:
      raise ValueError(
        f"{folder}: tensor {name!r} is missing; config.json asks for it"
      )
    return files[name](name)

  return config, assemble(config, read, source=str(folder), dtype=dtype)


def assemble(
  config: ModelConfig,
  read: ReadFn,
  *,
  source: str,
  dtype: str,
  layer_name: Callable[[int, str], str] | None = None,
  top_names: Mapping[str, str] | None = None,
) -> dict[str, Any]:
  """Fills the parameter tree, one stored tensor in memory at a time.

  Args:
    config: shape of the transformer.
    read: gives a stored tensor by its name.
    source: names the checkpoint in errors.
    dtype: of the parameters.
    layer_name: gives the stored name for a layer and our name.
    top_names: our names outside the layers to the stored ones.
  """
  layer_name = layer_name or hf_layer_name
  top_names = top_names or TOP_TENSORS
  numpy_dtype = parameter_dtype(dtype)
  specs = param_specs(config)

  def fetch(stored: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    transposed = is_transposed(name)
    expected = shape[::-1] if transposed else shape
    tensor = read(stored)
    if tensor.shape != expected:
      raise ValueError(
        f"{source}: tensor {stored!r} has shape {tensor.shape}; the config"
        f" asks for {expected}"
      )
    return tensor.T if transposed else tensor

  layers = {}
  for name, spec in specs["layers"].items():
    stack = np.empty(spec.shape, numpy_dtype)
    for layer in range(config.num_layers):
      stack[layer] = fetch(layer_name(layer, name), name, spec.shape[1:])
    layers[name] = stack
  params: dict[str, Any] = {"layers": layers}
  for name, spec in specs.items():
    if name != "layers":
      tensor = fetch(top_names[name], name, spec.shape)
      params[name] = np.ascontiguousarray(tensor, numpy_dtype)
  return params


def hf_layer_name(layer: int, name: str) -> str:
  """Returns the Hugging Face name of one of our layer weights."""
  return f"model.layers.{layer}.{LAYER_TENSORS[name]}"


def is_transposed(name: str) -> bool:
  """True if a checkpoint stores the weight the other way round."""
  return name.startswith("w") or name == "unembed"


def parameter_dtype(dtype: str) -> np.dtype:
  """Returns the NumPy dtype of a parameter dtype's name."""
  if str(dtype) not in _DTYPES:
    raise ValueError(
      f"dtype is {dtype!r}; expected one of {', '.join(_DTYPES)}"
    )
  return _DTYPES[str(dtype)]


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Reads a JSON object from a file of a checkpoint."""
  try:
    values = json.loads(path.read_text(encoding="utf-8"))
  except FileNotFoundError:
    raise ValueError(
      f"{path} is missing; expected a Hugging Face folder with config.json"
      " and safetensors files"
    ) from None
  except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
    raise ValueError(f"{path} cannot be read as JSON: {error}") from error
  if not isinstance(values, dict):
    raise ValueError(
      f"{path} holds {type(values).__name__}; expected a JSON object"
    )
  return values


def _tensor_files(folder: pathlib.Path) -> dict[str, ReadFn]:
  """Returns a reader for each tensor of the folder."""
  if (folder / INDEX_FILE).exists():
    weight_map = read_json(folder / INDEX_FILE).get("weight_map")
    if not isinstance(weight_map, dict) or not all(
      isinstance(name, str) for name in weight_map.values()
    ):
      raise ValueError(
        f"{folder / INDEX_FILE} has no weight_map from tensors to file names"
      )
  elif (folder / SINGLE_FILE).exists():
    weight_map = None
  else:
    found = sorted(path.name for path in folder.glob("*.bin"))
    raise ValueError(
      f"{folder} has neither {SINGLE_FILE} nor {INDEX_FILE}"
      + (
        f", but {', '.join(found)}; save the model as safetensors first"
        if found
        else ""
      )
    )
  if weight_map is None:
    handle = _open(folder / SINGLE_FILE)
    return {name: handle.get_tensor for name in handle.keys()}
  handles = {name: _open(folder / name) for name in set(weight_map.values())}
  stored = {name: set(handle.keys()) for name, handle in handles.items()}
  for tensor, name in weight_map.items():
    if tensor not in stored[name]:
      raise ValueError(
        f"{folder / name}: tensor {tensor!r} is missing; {INDEX_FILE} says"
        " that it is there"
      )
  return {
    tensor: handles[name].get_tensor for tensor, name in weight_map.items()
  }


def _open(path: pathlib.Path) -> Any:
  import safetensors

  if not path.is_file():
    raise ValueError(f"{path} is missing; the index names it")
  try:
    return safetensors.safe_open(path, framework="numpy")
  except (safetensors.SafetensorError, OSError) as error:
    raise ValueError(
      f"{path} is damaged or not a safetensors file: {error}. Fetch it again"
    ) from error


def _check_names(
  folder: pathlib.Path, config: ModelConfig, found: set[str]
) -> None:
  """Refuses tensors that the model would silently leave out."""
  specs = param_specs(config)
  known = {TOP_TENSORS[name] for name in specs if name != "layers"} | {
    hf_layer_name(layer, name)
    for name in specs["layers"]
    for layer in range(config.num_layers)
  }
  if config.tie_embeddings:
    known.add(TOP_TENSORS["unembed"])
  # Old checkpoints carry the rotary tables, which the config also gives.
  unknown = {n for n in found - known if not n.endswith("rotary_emb.inv_freq")}
  if unknown:
    examples = ", ".join(sorted(unknown)[:3])
    raise ValueError(
      f"{folder}: {len(unknown)} tensors that its config.json does not account"
      f" for, such as {examples}"
    )
