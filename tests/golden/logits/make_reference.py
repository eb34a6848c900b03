"""Writes tiny random checkpoints beside the logits that torch gives for them.

Needs `torch` and `transformers`, which the package itself does not; run it in
an environment of its own (see README.md):

  python make_reference.py
"""

import json
import pathlib
import shutil
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import transformers

HERE = pathlib.Path(__file__).parent
SIZES: dict[str, Any] = {
  "vocab_size": 61,
  "hidden_size": 32,
  "intermediate_size": 40,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "max_position_embeddings": 256,
}


def llama_config() -> transformers.PretrainedConfig:
  """Grouped heads, a head of its own, frequencies stretched as in Llama 3."""
  return transformers.LlamaConfig(
    **SIZES,
    tie_word_embeddings=False,
    rms_norm_eps=1e-5,
    rope_parameters={
      "rope_type": "llama3",
      "rope_theta": 10000.0,
      "factor": 8.0,
      "low_freq_factor": 1.0,
      "high_freq_factor": 4.0,
      "original_max_position_embeddings": 64,
    },
  )


def llama_biased_config() -> transformers.PretrainedConfig:
  """Biases everywhere, linear scaling; saved in shards, in the old spelling."""
  return transformers.LlamaConfig(
    **SIZES,
    tie_word_embeddings=True,
    attention_bias=True,
    mlp_bias=True,
    rope_parameters={
      "rope_type": "linear",
      "rope_theta": 500.0,
      "factor": 2.5,
    },
  )


def qwen2_config() -> transformers.PretrainedConfig:
  """A tied head, query, key and value biases, yarn."""
  return transformers.Qwen2Config(
    **SIZES,
    tie_word_embeddings=True,
    rope_parameters={
      "rope_type": "yarn",
      "rope_theta": 10000.0,
      "factor": 4.0,
      "original_max_position_embeddings": 64,
    },
  )


def qwen3_config() -> transformers.PretrainedConfig:
  """Normalised queries and keys, heads wider than the model's width."""
  return transformers.Qwen3Config(
    **SIZES,
    head_dim=12,
    tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
  )


MODELS = {
  "llama": (transformers.LlamaForCausalLM, llama_config),
  "llama_biased": (transformers.LlamaForCausalLM, llama_biased_config),
  "qwen2": (transformers.Qwen2ForCausalLM, qwen2_config),
  "qwen3": (transformers.Qwen3ForCausalLM, qwen3_config),
}


def randomize(model: torch.nn.Module) -> None:
  """Makes every tensor matter; fresh biases are 0 and fresh norms are 1."""
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      noise = torch.randn_like(parameter)
      if "norm" in name:
        parameter.copy_(1.0 + 0.3 * noise)
      elif name.endswith("bias"):
        parameter.copy_(0.3 * noise)
      elif "embed_tokens" in name:
        parameter.copy_(0.5 * noise)
      else:
        parameter.copy_(noise / parameter.shape[1] ** 0.5)


def use_old_spelling(folder: pathlib.Path) -> None:
  """Rewrites config.json as transformers 4 wrote it."""
  path = folder / "config.json"
  values = json.loads(path.read_text())
  rope = values.pop("rope_parameters")
  values["rope_theta"] = rope.pop("rope_theta")
  values["rope_scaling"] = {"type": rope.pop("rope_type"), **rope}
  path.write_text(json.dumps(values, indent=2) + "\n")


def main() -> None:
  """Writes one folder for each model."""
  for seed, (name, (model_class, make_config)) in enumerate(MODELS.items()):
    torch.manual_seed(seed)
    model = model_class(make_config()).float().eval()
    randomize(model)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    sharded = name == "llama_biased"
    model.save_pretrained(folder, max_shard_size="30KB" if sharded else "1GB")
    if sharded:
      use_old_spelling(folder)
    input_ids = torch.randint(0, SIZES["vocab_size"], (2, 24))
    with torch.no_grad():
      logits = model(input_ids=input_ids).logits
    np.savez_compressed(
      folder / "reference.npz",
      input_ids=input_ids.numpy().astype(np.int32),
      logits=logits.numpy().astype(np.float32),
    )
    print(f"{name}: logits {tuple(logits.shape)}, std {logits.std():.3f}")


if __name__ == "__main__":
  main()
