import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from arl_jax.models import hf_config, load, transformer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "logits"
NAMES = ("llama", "llama_biased", "qwen2", "qwen3")


def copy_folder(name, tmp_path):
  folder = tmp_path / name
  shutil.copytree(GOLDEN / name, folder)
  return folder


def edit_config(folder, **changes):
  path = folder / "config.json"
  values = json.loads(path.read_text()) | changes
  path.write_text(json.dumps({k: v for k, v in values.items() if v != "drop"}))


def edit_tensors(folder, **changes):
  path = folder / "model.safetensors"
  tensors = safetensors.numpy.load_file(path)
  for name, value in changes.items():
    name = name.replace("__", ".")
    tensors.pop(name, None)
    if value is not None:
      tensors[name] = value
  safetensors.numpy.save_file(tensors, path)


@pytest.mark.parametrize("name", NAMES)
def test_logits_equal_those_of_torch(name):
  config, params = load.load_hf(GOLDEN / name)
  reference = np.load(GOLDEN / name / "reference.npz")
  tokens = jnp.asarray(reference["input_ids"])
  positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)

  @jax.jit
  def logits(params):
    hidden = transformer.forward(
      params, tokens, positions, jnp.ones_like(tokens), config=config
    )
    return hidden @ transformer.unembedding(params, config)

  np.testing.assert_allclose(
    np.asarray(logits(params)), reference["logits"], atol=1e-4
  )


def test_configs_say_what_the_families_are():
  llama, biased, qwen2, qwen3 = (
    load.load_hf(GOLDEN / name)[0] for name in NAMES
  )
  assert not llama.tie_embeddings
  assert llama.num_kv_heads == 2
  assert llama.norm_eps == 1e-5
  assert (biased.qkv_bias, biased.out_bias, biased.mlp_bias) == (True,) * 3
  assert (qwen2.qkv_bias, qwen2.out_bias) == (True, False)
  assert qwen2.tie_embeddings
  assert (qwen3.qk_norm, qwen3.head_dim) == (True, 12)


def test_both_spellings_of_the_rotary_settings_read_the_same(tmp_path):
  folder = copy_folder("llama", tmp_path)
  expected, _ = load.load_hf(folder)
  rope = json.loads((folder / "config.json").read_text())["rope_parameters"]
  theta = rope.pop("rope_theta")
  edit_config(
    folder, rope_parameters="drop", rope_theta=theta, rope_scaling=rope
  )
  assert load.load_hf(folder)[0] == expected


def test_yarn_takes_its_scale_from_mscale():
  values = json.loads((GOLDEN / "qwen2" / "config.json").read_text())
  values["rope_parameters"] |= {"mscale": 2.0, "mscale_all_dim": 1.0}
  scaling = hf_config.parse_config(values).rope_scaling
  assert scaling is not None
  log = 0.1 * np.log(4.0)
  assert scaling.attention_factor == pytest.approx(
    (2 * log + 1) / (log + 1), rel=1e-6
  )


def test_optional_keys_have_the_defaults_of_transformers():
  sizes = {
    "vocab_size": 8,
    "hidden_size": 32,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
  }
  llama = hf_config.parse_config({"model_type": "llama", **sizes})
  assert (llama.num_kv_heads, llama.head_dim) == (4, 8)
  assert (llama.rope_theta, llama.norm_eps) == (10000.0, 1e-6)
  qwen3 = hf_config.parse_config({"model_type": "qwen3", **sizes})
  assert qwen3.head_dim == 128


def test_bfloat16_tensors_load_and_cast(tmp_path):
  folder = copy_folder("llama", tmp_path)
  path = folder / "model.safetensors"
  tensors = safetensors.numpy.load_file(path)
  narrow = {k: v.astype(ml_dtypes.bfloat16) for k, v in tensors.items()}
  safetensors.numpy.save_file(narrow, path)
  config, params = load.load_hf(folder, dtype="bfloat16")
  assert config.dtype == "bfloat16"
  assert params["layers"]["wq"].dtype == ml_dtypes.bfloat16
  _, wide = load.load_hf(folder, dtype="float32")
  np.testing.assert_array_equal(
    wide["embed"], narrow["model.embed_tokens.weight"].astype(np.float32)
  )


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"model_type": "mixtral"}, "model_type is 'mixtral'.*llama, qwen2"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'.*silu"),
    ({"num_local_experts": 8}, "num_local_experts is 8.*dense"),
    ({"use_sliding_window": True}, "use_sliding_window.*full attention"),
    ({"layer_types": ["sliding_attention"]}, "layer_types.*full_attention"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"hidden_size": "drop"}, "hidden_size is None.*positive integer"),
    ({"hidden_size": "32"}, "hidden_size is '32'.*positive integer"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    (
      {"rope_parameters": {"rope_type": "longrope", "factor": 2.0}},
      "rope_parameters.rope_type is 'longrope'.*yarn",
    ),
    (
      {"rope_parameters": {"rope_type": "linear"}},
      "rope_parameters.factor is missing",
    ),
  ],
)
def test_unsupported_configs_name_key_found_and_supported(
  tmp_path, changes, message
):
  folder = copy_folder("llama", tmp_path)
  edit_config(folder, **changes)
  with pytest.raises(ValueError, match=message):
    load.load_hf(folder)


def test_unused_sliding_window_is_accepted(tmp_path):
  folder = copy_folder("qwen2", tmp_path)
  edit_config(folder, sliding_window=4096, use_sliding_window=False)
  load.load_hf(folder)


def test_missing_folder_names_the_file(tmp_path):
  with pytest.raises(ValueError, match=r"nowhere.*config\.json is missing"):
    load.load_hf(tmp_path / "nowhere")


def test_config_that_is_not_json_is_named(tmp_path):
  folder = copy_folder("llama", tmp_path)
  (folder / "config.json").write_text("{")
  with pytest.raises(ValueError, match=r"config\.json cannot be read as JSON"):
    load.load_hf(folder)


def test_folder_without_safetensors_says_what_it_has(tmp_path):
  folder = copy_folder("llama", tmp_path)
  (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
  with pytest.raises(ValueError, match=r"pytorch_model\.bin.*as safetensors"):
    load.load_hf(folder)


@pytest.mark.parametrize("keep", [0, 4, 300, 60000])
def test_truncated_file_is_named(tmp_path, keep):
  folder = copy_folder("llama", tmp_path)
  path = folder / "model.safetensors"
  path.write_bytes(path.read_bytes()[:keep])
  with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
    load.load_hf(folder)


def test_missing_shard_is_named(tmp_path):
  folder = copy_folder("llama_biased", tmp_path)
  (folder / "model-00002-of-00003.safetensors").unlink()
  with pytest.raises(ValueError, match="model-00002-of-00003.*is missing"):
    load.load_hf(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": {"lm_head.weight": 3}}])
def test_index_without_file_names_is_refused(tmp_path, index):
  folder = copy_folder("llama_biased", tmp_path)
  (folder / "model.safetensors.index.json").write_text(json.dumps(index))
  with pytest.raises(ValueError, match="index.json has no weight_map"):
    load.load_hf(folder)


def test_index_that_names_the_wrong_file_is_refused(tmp_path):
  folder = copy_folder("llama_biased", tmp_path)
  path = folder / "model.safetensors.index.json"
  index = json.loads(path.read_text())
  index["weight_map"]["model.norm.weight"] = "model-00001-of-00003.safetensors"
  path.write_text(json.dumps(index))
  with pytest.raises(
    ValueError, match=r"00001-of-00003.*'model\.norm\.weight' is missing"
  ):
    load.load_hf(folder)


def test_missing_tensor_is_named(tmp_path):
  folder = copy_folder("llama", tmp_path)
  edit_tensors(folder, model__layers__1__mlp__up_proj__weight=None)
  with pytest.raises(
    ValueError, match=r"'model\.layers\.1\.mlp\.up_proj\.weight' is missing"
  ):
    load.load_hf(folder)


def test_untied_head_without_its_tensor_is_an_error(tmp_path):
  folder = copy_folder("llama", tmp_path)
  edit_tensors(folder, lm_head__weight=None)
  with pytest.raises(ValueError, match=r"'lm_head\.weight' is missing"):
    load.load_hf(folder)


def test_wrong_shape_says_found_and_expected(tmp_path):
  folder = copy_folder("llama", tmp_path)
  edit_tensors(folder, model__norm__weight=np.ones(31, np.float32))
  with pytest.raises(
    ValueError, match=r"'model\.norm\.weight' has shape \(31,\).*\(32,\)"
  ):
    load.load_hf(folder)


def test_tensor_that_the_model_has_no_place_for_is_an_error(tmp_path):
  folder = copy_folder("llama", tmp_path)
  bias = np.ones(32, np.float32)
  edit_tensors(folder, model__layers__0__self_attn__q_proj__bias=bias)
  with pytest.raises(ValueError, match=r"1 tensors.*q_proj\.bias"):
    load.load_hf(folder)


def test_copy_of_a_tied_head_is_ignored(tmp_path):
  folder = copy_folder("qwen2", tmp_path)
  _, params = load.load_hf(folder)
  edit_tensors(folder, lm_head__weight=params["embed"])
  _, again = load.load_hf(folder)
  assert "unembed" not in again


def test_unknown_dtype_is_refused():
  with pytest.raises(ValueError, match="dtype is 'int8'.*float32"):
    load.load_hf(GOLDEN / "llama", dtype="int8")
