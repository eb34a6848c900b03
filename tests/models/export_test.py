import dataclasses
import json
import os
import pathlib

import chex
import ml_dtypes
import pytest

from arl_jax.models import export, load
from arl_jax.models.rope import RopeScaling

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "logits"
FAMILIES = {
  "llama": "llama",
  "llama_biased": "llama",
  "qwen2": "qwen2",
  "qwen3": "qwen3",
}


class FakeTokenizer:
  stop_ids = (7, 9)
  pad_id = 3

  def save(self, folder):
    (pathlib.Path(folder) / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_round_trips(name, tmp_path):
  config, params = load.load_hf(GOLDEN / name)
  export.export_hf(tmp_path, config, params, family=FAMILIES[name])
  again_config, again_params = load.load_hf(tmp_path)
  assert again_config == config
  chex.assert_trees_all_equal(again_params, params)


def test_a_sharded_bfloat16_folder_round_trips(tmp_path):
  config, params = load.load_hf(GOLDEN / "qwen3", dtype="bfloat16")
  export.export_hf(
    tmp_path, config, params, family="qwen3", max_shard_bytes=20000
  )
  sizes = [path.stat().st_size for path in tmp_path.glob("*.safetensors")]
  assert len(sizes) == 3
  assert max(sizes) < 25000
  again_config, again_params = load.load_hf(tmp_path, dtype="bfloat16")
  assert again_config == config
  assert again_params["embed"].dtype == ml_dtypes.bfloat16
  chex.assert_trees_all_equal(again_params, params)


def test_an_export_replaces_an_earlier_one_in_shards(tmp_path):
  config, params = load.load_hf(GOLDEN / "llama")
  export.export_hf(
    tmp_path, config, params, family="llama", max_shard_bytes=20000
  )
  params["final_norm"] = params["final_norm"] + 1
  export.export_hf(tmp_path, config, params, family="llama")
  assert [p.name for p in tmp_path.glob("*.safetensors*")] == [
    "model.safetensors"
  ]
  _, again = load.load_hf(tmp_path)
  chex.assert_trees_all_equal(again, params)


@pytest.mark.parametrize("name", FAMILIES)
def test_transformers_reads_the_same_config(name, tmp_path, monkeypatch):
  monkeypatch.setenv("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
  from transformers import AutoConfig

  config, params = load.load_hf(GOLDEN / name)
  export.export_hf(
    tmp_path, config, params, family=FAMILIES[name], max_position=256
  )
  ours = AutoConfig.from_pretrained(tmp_path).to_dict()
  theirs = AutoConfig.from_pretrained(GOLDEN / name).to_dict()
  theirs["rope_parameters"].pop("type", None)  # the old spelling stays
  # transformers fills in yarn's defaults when it computes, not when it reads.
  yarn = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
  if theirs["rope_parameters"]["rope_type"] == "yarn":
    theirs["rope_parameters"] |= yarn
  for key in (
    "model_type",
    "architectures",
    "head_dim",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_parameters",
    "tie_word_embeddings",
    "layer_types",
    "attention_bias",
    "mlp_bias",
    "vocab_size",
  ):
    if key == "head_dim" and FAMILIES[name] == "qwen2":
      assert ours[key] == 8  # qwen2 has no default of its own for it
      continue
    assert ours.get(key) == theirs.get(key), key


@pytest.mark.parametrize(
  "scaling",
  [
    RopeScaling(kind="linear", factor=3.0),
    RopeScaling(kind="dynamic", factor=2.0, original_max_position=128),
    RopeScaling(
      kind="yarn",
      factor=4.0,
      original_max_position=64,
      attention_factor=1.5,
      truncate=False,
    ),
  ],
)
def test_rope_scaling_round_trips(scaling, tmp_path):
  config, params = load.load_hf(GOLDEN / "llama")
  config = dataclasses.replace(config, rope_scaling=scaling)
  export.export_hf(tmp_path, config, params, family="llama")
  assert load.load_hf(tmp_path)[0] == config


def test_the_tokenizer_and_its_stop_ids_are_saved(tmp_path):
  config, params = load.load_hf(GOLDEN / "llama")
  export.export_hf(
    tmp_path, config, params, family="llama", tokenizer=FakeTokenizer()
  )
  values = json.loads((tmp_path / "config.json").read_text())
  assert (values["eos_token_id"], values["pad_token_id"]) == ([7, 9], 3)
  assert (tmp_path / "tokenizer.json").exists()


@pytest.mark.parametrize(
  ("name", "family", "message"),
  [
    ("llama", "gpt2", "family is 'gpt2'; expected one of llama"),
    ("llama", "qwen2", "'qwen2' has no model with qkv_bias=False"),
    ("llama_biased", "qwen2", "'qwen2' has no model with out_bias=True"),
    ("qwen3", "llama", "'llama' has no model with qk_norm=True"),
  ],
)
def test_a_family_without_a_place_for_a_weight_is_refused(
  name, family, message, tmp_path
):
  config, params = load.load_hf(GOLDEN / name)
  with pytest.raises(ValueError, match=message):
    export.export_hf(tmp_path / "out", config, params, family=family)
  assert not (tmp_path / "out").exists()


def test_a_weight_of_the_wrong_shape_is_refused(tmp_path):
  config, params = load.load_hf(GOLDEN / "llama")
  params["layers"]["wq"] = params["layers"]["wq"][:1]
  with pytest.raises(ValueError, match=r"'layers/wq' has shape \(1, 32, 32\)"):
    export.export_hf(tmp_path, config, params, family="llama")


@pytest.mark.parametrize("umask", [0o022, 0o007])
def test_a_folder_has_the_permissions_of_other_files(umask, tmp_path):
  config, params = load.load_hf(GOLDEN / "llama")
  before = os.umask(umask)
  try:
    export.export_hf(tmp_path, config, params, family="llama")
  finally:
    os.umask(before)
  modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
  expected = 0o666 & ~umask
  assert modes == {"model.safetensors": expected, "config.json": expected}


def test_a_failing_disk_leaves_the_earlier_export(tmp_path, monkeypatch):
  import safetensors.numpy

  config, params = load.load_hf(GOLDEN / "llama")
  export.export_hf(tmp_path, config, params, family="llama")

  def fail(tensors, path, metadata):
    path.write_bytes(b"half")
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(safetensors.numpy, "save_file", fail)
  with pytest.raises(OSError, match=r"model\.safetensors cannot be written"):
    export.export_hf(tmp_path, config, params, family="llama")
  _, again = load.load_hf(tmp_path)
  chex.assert_trees_all_equal(again, params)
  assert not list(tmp_path.glob("*.partial"))
