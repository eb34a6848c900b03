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
    "hidden_size": WIDTH,
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


def write_steps(folder, *, max_length=None, steps=(), pooling=None):
  kinds = ("Transformer", "Pooling", *steps)
  modules = [
    {"path": f"{n}", "type": f"sentence_transformers.models.{kind}"}
    for n, kind in enumerate(kinds)
  ]
  (folder / "modules.json").write_text(json.dumps(modules))
  (folder / "1").mkdir()
  pooling = pooling or {"pooling_mode_mean_tokens": True}
  (folder / "1" / "config.json").write_text(json.dumps(pooling))
  (folder / "sentence_bert_config.json").write_text(
    json.dumps({"max_seq_length": max_length})
  )


@pytest.mark.parametrize(
  ("change", "words"),
  [
    ({"model_type": "llama"}, "has model_type 'llama'; .* needs 'bert'"),
    ({"hidden_act": "relu"}, "has hidden_act 'relu'; .* needs 'gelu'"),
    ({"position_embedding_type": "relative_key"}, "needs 'absolute'"),
    ({"num_hidden_layers": 3}, "has no tensor encoder.layer.2."),
    ({"num_hidden_layers": None}, "num_hidden_layers None; expected 1 or more"),
    ({"num_attention_heads": 3}, "expected a multiple of .*heads, 3"),
  ],
)
def test_another_kind_of_model_is_refused(tmp_path, change, words):
  write_folder(tmp_path, **change)
  with pytest.raises(ValueError, match=words):
    load_encoder(tmp_path)


@pytest.mark.parametrize(
  ("change", "words"),
  [
    ({"pooling": {"pooling_mode_cls_token": True}}, "pools by cls_token; exp"),
    ({"pooling": {"pooling_mode": "max"}}, "pools by max; expected mean"),
    ({"steps": ["Dense"]}, "has a step Dense; expected only Transformer"),
  ],
)
def test_vectors_that_are_no_means_are_refused(tmp_path, change, words):
  write_folder(tmp_path)
  write_steps(tmp_path, **change)
  with pytest.raises(ValueError, match=words):
    load_encoder(tmp_path)


@pytest.mark.parametrize(
  ("configured", "positions", "expected"),
  [(None, POSITIONS, POSITIONS), (None, 512, 256), (300, 512, 300)],
)
def test_a_text_is_as_long_as_the_model_says(
  tmp_path, configured, positions, expected
):
  write_folder(tmp_path, max_position_embeddings=positions)
  write_steps(
    tmp_path,
    max_length=configured,
    steps=["Normalize"],
    pooling={"pooling_mode": "mean"},
  )
  assert load_encoder(tmp_path)[0].max_length == expected


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(ValueError, match="config.json is missing"):
    load_encoder(tmp_path)
  write_folder(tmp_path)
  (tmp_path / "model.safetensors").write_bytes(b"half")
  with pytest.raises(ValueError, match="safetensors is missing or damaged"):
    load_encoder(tmp_path)
