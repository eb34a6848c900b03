"""Tests of the sentence encoder."""

import json
import math

import numpy as np
import pytest
from safetensors.numpy import save_file

from arl_jax.models.sentence_encoder import encode, load_encoder

WIDTH, INNER, HEADS, LAYERS, WORDS, POSITIONS = 8, 12, 2, 2, 20, 10


def write_folder(folder, *, prefix="", **changes):
  rng = np.random.default_rng(0)

  def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)

  tensors = {
    "embeddings.word_embeddings.weight": normal(WORDS, WIDTH),
    "embeddings.position_embeddings.weight": normal(POSITIONS, WIDTH),
    "embeddings.token_type_embeddings.weight": normal(2, WIDTH),
  }
  norms = ["embeddings.LayerNorm"]
  for index in range(LAYERS):
    layer = f"encoder.layer.{index}"
    norms += [
      f"{layer}.attention.output.LayerNorm",
      f"{layer}.output.LayerNorm",
    ]
    for name, shape in (
      *((f"attention.self.{n}", (WIDTH, WIDTH)) for n in ("query", "key")),
      ("attention.self.value", (WIDTH, WIDTH)),
      ("attention.output.dense", (WIDTH, WIDTH)),
      ("intermediate.dense", (INNER, WIDTH)),
      ("output.dense", (WIDTH, INNER)),
    ):
      tensors[f"{layer}.{name}.weight"] = normal(*shape)
      tensors[f"{layer}.{name}.bias"] = normal(shape[0])
  for name in norms:
    tensors[f"{name}.weight"], tensors[f"{name}.bias"] = (
      normal(WIDTH),
      normal(WIDTH),
    )
  save_file(
    {prefix + name: value for name, value in tensors.items()},
    str(folder / "model.safetensors"),
  )
  config = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": POSITIONS,
    "layer_norm_eps": 1e-5,
  }
  (folder / "config.json").write_text(json.dumps(config | changes))
  return tensors


def slow_encode(tensors, ids):
  """One sentence, token by token and head by head."""

  def norm(x, name):
    x = (x - x.mean()) / math.sqrt(x.var() + 1e-5)
    return x * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

  def dense(x, name):
    return tensors[f"{name}.weight"] @ x + tensors[f"{name}.bias"]

  def gelu(x):
    return np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])

  hidden = [
    norm(
      tensors["embeddings.word_embeddings.weight"][token]
      + tensors["embeddings.position_embeddings.weight"][place]
      + tensors["embeddings.token_type_embeddings.weight"][0],
      "embeddings.LayerNorm",
    )
    for place, token in enumerate(ids)
  ]
  size = WIDTH // HEADS
  for index in range(LAYERS):
    layer = f"encoder.layer.{index}"
    q, k, v = (
      [dense(x, f"{layer}.attention.self.{name}") for x in hidden]
      for name in ("query", "key", "value")
    )
    mixed = []
    for t in range(len(ids)):
      parts = []
      for head in range(HEADS):
        cut = slice(head * size, (head + 1) * size)
        scores = np.array([q[t][cut] @ k[s][cut] for s in range(len(ids))])
        weights = np.exp(scores / math.sqrt(size))
        weights /= weights.sum()
        parts.append(sum(w * v[s][cut] for s, w in enumerate(weights)))
      mixed.append(np.concatenate(parts))
    hidden = [
      norm(
        x + dense(m, f"{layer}.attention.output.dense"),
        f"{layer}.attention.output.LayerNorm",
      )
      for x, m in zip(hidden, mixed, strict=True)
    ]
    hidden = [
      norm(
        x
        + dense(
          gelu(dense(x, f"{layer}.intermediate.dense")), f"{layer}.output.dense"
        ),
        f"{layer}.output.LayerNorm",
      )
      for x in hidden
    ]
  mean = sum(hidden) / len(hidden)
  return mean / np.linalg.norm(mean)


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_a_vector_is_that_of_a_slow_loop(tmp_path, prefix):
  tensors = write_folder(tmp_path, prefix=prefix)
  config, params = load_encoder(tmp_path)
  sentences = [[3, 1, 4, 1, 5], [9, 2], [6]]
  tokens = np.full((4, 7), 19, np.int32)
  mask = np.zeros((4, 7), bool)
  for row, ids in enumerate(sentences):
    tokens[row, : len(ids)], mask[row, : len(ids)] = ids, True
  vectors = np.asarray(encode(params, tokens, mask, config=config))
  for vector, ids in zip(vectors, sentences, strict=False):
    np.testing.assert_allclose(vector, slow_encode(tensors, ids), atol=2e-5)
  # A row without tokens is nothing, and not NaN.
  np.testing.assert_array_equal(vectors[3], 0)
  # What is masked does not matter.
  other = np.asarray(
    encode(params, np.where(mask, tokens, 0), mask, config=config)
  )
  np.testing.assert_allclose(vectors[:3], other[:3], atol=1e-6)


@pytest.mark.parametrize(
  ("change", "words"),
  [
    (
      {"model_type": "llama"},
      r"\('llama', 'gelu'\); expected \('bert', 'gelu'",
    ),
    ({"hidden_act": "relu"}, r"\('bert', 'relu'\); expected"),
    ({"num_hidden_layers": 3}, "has no tensor encoder.layer.2."),
  ],
)
def test_another_kind_of_model_is_refused(tmp_path, change, words):
  write_folder(tmp_path, **change)
  with pytest.raises(ValueError, match=words):
    load_encoder(tmp_path)


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(ValueError, match="has no config.json; expected"):
    load_encoder(tmp_path)
