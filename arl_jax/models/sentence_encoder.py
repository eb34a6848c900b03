"""A BERT that turns a sentence into one vector, such as MiniLM."""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import json
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from arl_jax.types import Array

_MASKED = -1e9
_PREFIXES = ("", "bert.")
_LAYER_TENSORS = {
  "wq": "attention.self.query",
  "wk": "attention.self.key",
  "wv": "attention.self.value",
  "wo": "attention.output.dense",
  "attention_norm": "attention.output.LayerNorm",
  "w_up": "intermediate.dense",
  "w_down": "output.dense",
  "mlp_norm": "output.LayerNorm",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
  """Shape of an encoder.

  Attributes:
    num_layers: transformer blocks.
    num_heads: attention heads; they divide the width of a block.
    max_length: positions that were trained.
    norm_eps: of the layer norms.
  """

  num_layers: int
  num_heads: int
  max_length: int
  norm_eps: float = 1e-12


@functools.partial(jax.jit, static_argnames=("config",))
def encode(
  params: Mapping[str, Any],
  tokens: Array,
  mask: Array,
  *,
  config: EncoderConfig,
) -> Array:
  """Encodes sentences as unit vectors.

      h = BERT(tokens),   v = mean of h over the mask,   v / ‖v‖

  Reference: https://arxiv.org/abs/1810.04805 (BERT),
  https://arxiv.org/abs/1908.10084 (mean pooling)

  Args:
    params: from `load_encoder`.
    tokens: int32 `[B, T]`, with the special tokens of the tokenizer.
    mask: bool `[B, T]` True where there is a token; a prefix of each row.
    config: the shape.

  Returns:
    float32 `[B, D]`; 0 for a row without tokens.
  """
  mask = jnp.asarray(mask, bool)
  norm = functools.partial(_layer_norm, eps=config.norm_eps)
  hidden = params["words"][tokens] + params["positions"][: tokens.shape[1]]
  hidden = norm(hidden + params["segments"][0], params["norm"])
  for layer in params["layers"]:
    mixed = _attend(layer, hidden, mask, num_heads=config.num_heads)
    hidden = norm(hidden + mixed, layer["attention_norm"])
    inner = jax.nn.gelu(_dense(hidden, layer["w_up"]), approximate=False)
    hidden = norm(hidden + _dense(inner, layer["w_down"]), layer["mlp_norm"])
  total = jnp.sum(jnp.where(mask[..., None], hidden, 0.0), axis=1)
  square = jnp.sum(total**2, axis=-1, keepdims=True)
  # The length of the mean does not matter to a unit vector.
  return total * jax.lax.rsqrt(jnp.where(square > 0, square, 1.0))


def load_encoder(
  folder: str | os.PathLike[str],
) -> tuple[EncoderConfig, dict[str, Any]]:
  """Reads a Hugging Face folder of a BERT.

  Args:
    folder: holds config.json and model.safetensors.

  Returns:
    The shape and float32 weights.

  Raises:
    ValueError: a file is missing, or it is another kind of model.
  """
  from safetensors.numpy import load_file

  folder = pathlib.Path(folder)
  for name in ("config.json", "model.safetensors"):
    if not (folder / name).is_file():
      raise ValueError(
        f"{folder} has no {name}; expected the folder of a BERT with"
        " config.json, model.safetensors and tokenizer.json"
      )
  read = json.loads((folder / "config.json").read_text(encoding="utf-8"))
  found = (read.get("model_type"), read.get("hidden_act", "gelu"))
  if found != ("bert", "gelu"):
    raise ValueError(
      f"{folder / 'config.json'} has model_type and hidden_act {found};"
      " expected ('bert', 'gelu')"
    )
  config = EncoderConfig(
    num_layers=read["num_hidden_layers"],
    num_heads=read["num_attention_heads"],
    max_length=read["max_position_embeddings"],
    norm_eps=read.get("layer_norm_eps", 1e-12),
  )
  tensors = load_file(folder / "model.safetensors")

  def tensor(name: str) -> np.ndarray:
    for prefix in _PREFIXES:
      if prefix + name in tensors:
        return np.asarray(tensors[prefix + name], np.float32)
    raise ValueError(f"{folder / 'model.safetensors'} has no tensor {name}")

  return config, _params(tensor, config)


def _params(
  tensor: Callable[[str], np.ndarray], config: EncoderConfig
) -> dict[str, Any]:
  def pair(name: str) -> tuple[np.ndarray, np.ndarray]:
    # A matrix is stored `[out, in]` there; the scale of a norm is a vector.
    return tensor(f"{name}.weight").T, tensor(f"{name}.bias")

  return {
    "words": tensor("embeddings.word_embeddings.weight"),
    "positions": tensor("embeddings.position_embeddings.weight"),
    "segments": tensor("embeddings.token_type_embeddings.weight"),
    "norm": pair("embeddings.LayerNorm"),
    "layers": [
      {
        ours: pair(f"encoder.layer.{index}.{theirs}")
        for ours, theirs in _LAYER_TENSORS.items()
      }
      for index in range(config.num_layers)
    ],
  }


def _dense(x: Array, weights: tuple[Array, Array]) -> Array:
  matrix, bias = weights
  return x @ matrix + bias


def _layer_norm(x: Array, weights: tuple[Array, Array], *, eps: float) -> Array:
  scale, bias = weights
  centred = x - jnp.mean(x, axis=-1, keepdims=True)
  variance = jnp.mean(centred**2, axis=-1, keepdims=True)
  return centred * jax.lax.rsqrt(variance + eps) * scale + bias


def _attend(
  layer: Mapping[str, Any], hidden: Array, mask: Array, *, num_heads: int
) -> Array:
  def heads(name: str) -> Array:
    x = _dense(hidden, layer[name])
    return x.reshape(*x.shape[:2], num_heads, -1)

  q, k, v = heads("wq"), heads("wk"), heads("wv")
  scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
  scores = jnp.where(mask[:, None, None, :], scores, _MASKED)
  mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
  return _dense(mixed.reshape(hidden.shape), layer["wo"])
