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

from arl_jax.models.load import SINGLE_FILE, read_json
from arl_jax.types import Array

# Tokens of a text where its model does not say.
_MAX_LENGTH = 256
# What a config.json has to say, where it says it.
_KIND = {
  "model_type": "bert",
  "hidden_act": "gelu",
  "position_embedding_type": "absolute",
}
_STEPS = ("Transformer", "Pooling", "Normalize")
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
    max_length: tokens of a text that are read.
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
  """Reads a folder of a BERT, as Sentence Transformers writes it.

  Args:
    folder: holds config.json and model.safetensors. Where there are
      modules.json and sentence_bert_config.json, they say how long a text may
      be (256 tokens if nothing does), and that vectors are means of tokens.

  Returns:
    The shape and float32 weights.

  Raises:
    ValueError: a file is missing or damaged, or it is another kind of model.
  """
  folder = pathlib.Path(folder)
  file = folder / "config.json"
  read = read_json(file)
  for name, expected in _KIND.items():
    if (found := read.get(name, expected)) != expected:
      raise ValueError(
        f"{file} has {name} {found!r}; an encoder needs {expected!r}"
      )

  def size(name: str) -> int:
    value = read.get(name)
    if not isinstance(value, int) or value < 1:
      raise ValueError(f"{file} has {name} {value!r}; expected 1 or more")
    return value

  width, num_heads = size("hidden_size"), size("num_attention_heads")
  if width % num_heads:
    raise ValueError(
      f"{file} has hidden_size {width}; expected a multiple of"
      f" num_attention_heads, {num_heads}"
    )
  _check_steps(folder)
  config = EncoderConfig(
    num_layers=size("num_hidden_layers"),
    num_heads=num_heads,
    max_length=min(_max_length(folder), size("max_position_embeddings")),
    norm_eps=read.get("layer_norm_eps", 1e-12),
  )
  return config, _params(_tensors(folder / SINGLE_FILE), config)


def _check_steps(folder: pathlib.Path) -> None:
  """Refuses a model that does more than average the tokens of a BERT."""
  file = folder / "modules.json"
  if not file.exists():
    return
  for step in json.loads(file.read_text(encoding="utf-8")):
    kind = step["type"].rpartition(".")[-1]
    if kind not in _STEPS:
      raise ValueError(
        f"{file} has a step {kind}; expected only {', '.join(_STEPS)}"
      )
    if kind != "Pooling":
      continue
    pooling = read_json(folder / step["path"] / "config.json")
    modes = [
      name.removeprefix("pooling_mode_").removesuffix("_tokens")
      for name, value in pooling.items()
      if name.startswith("pooling_mode_") and value is True
    ] or [pooling.get("pooling_mode", "mean")]
    if modes != ["mean"]:
      raise ValueError(
        f"{folder / step['path'] / 'config.json'} pools by {', '.join(modes)};"
        " expected mean"
      )


def _max_length(folder: pathlib.Path) -> int:
  """How many tokens of a text a model is meant to read."""
  file = folder / "sentence_bert_config.json"
  value = read_json(file).get("max_seq_length") if file.exists() else None
  return _MAX_LENGTH if value is None else int(value)


def _tensors(file: pathlib.Path) -> Callable[[str], np.ndarray]:
  """Returns what gives a float32 tensor by its name."""
  import safetensors
  from safetensors.numpy import load_file

  try:
    tensors = load_file(file)
  except (safetensors.SafetensorError, OSError) as error:
    raise ValueError(
      f"{file} is missing or damaged ({error}); expected the weights of a BERT"
    ) from error

  def tensor(name: str) -> np.ndarray:
    for prefix in _PREFIXES:
      if prefix + name in tensors:
        return np.asarray(tensors[prefix + name], np.float32)
    raise ValueError(f"{file} has no tensor {name}")

  return tensor


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
