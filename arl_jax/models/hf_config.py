"""Translation between Hugging Face's config.json and `ModelConfig`.

Both spellings of the rotary settings are read: `rope_theta` beside
`rope_scaling`, as transformers 4 wrote them, and `rope_parameters`, as
transformers 5 does. The second is written.
"""

from collections.abc import Mapping
from typing import Any

from arl_jax.models import rope
from arl_jax.models.transformer import ModelConfig

FAMILIES = ("llama", "qwen2", "qwen3")

# Longest context that an exported config.json claims unless told otherwise.
DEFAULT_MAX_POSITION = 32768

_CLASS_NAMES = {
  "llama": "LlamaForCausalLM",
  "qwen2": "Qwen2ForCausalLM",
  "qwen3": "Qwen3ForCausalLM",
}


def parse_config(
  values: Mapping[str, Any], *, dtype: str = "float32"
) -> ModelConfig:
  """Returns the `ModelConfig` that a config.json describes.

  Args:
    values: the parsed config.json.
    dtype: of the activations.

  Raises:
    ValueError: a key is missing, or its value is outside what is supported.
  """
  family = values.get("model_type")
  if family not in FAMILIES:
    raise _unsupported("model_type", family, ", ".join(FAMILIES))
  _refuse_unsupported(values)
  model_dim = _positive(values, "hidden_size")
  num_heads = _positive(values, "num_attention_heads")
  attention_bias = bool(values.get("attention_bias", False))
  default_head_dim = 128 if family == "qwen3" else model_dim // num_heads
  theta, scaling = _parse_rope(values)
  return ModelConfig(
    vocab_size=_positive(values, "vocab_size"),
    num_layers=_positive(values, "num_hidden_layers"),
    model_dim=model_dim,
    num_heads=num_heads,
    num_kv_heads=_positive(values, "num_key_value_heads", num_heads),
    head_dim=_positive(values, "head_dim", default_head_dim),
    mlp_dim=_positive(values, "intermediate_size"),
    rope_theta=theta,
    rope_scaling=scaling,
    norm_eps=float(values.get("rms_norm_eps", 1e-6)),
    tie_embeddings=bool(values.get("tie_word_embeddings", False)),
    qkv_bias=family == "qwen2" or attention_bias,
    out_bias=family != "qwen2" and attention_bias,
    mlp_bias=family == "llama" and bool(values.get("mlp_bias", False)),
    qk_norm=family == "qwen3",
    dtype=dtype,
  )


def render_config(
  config: ModelConfig,
  *,
  family: str,
  dtype: str = "float32",
  max_position: int = DEFAULT_MAX_POSITION,
) -> dict[str, Any]:
  """Returns the config.json that describes a `ModelConfig`.

  Args:
    config: shape of the transformer.
    family: `llama`, `qwen2` or `qwen3`.
    dtype: of the weights as saved.
    max_position: longest context that the file claims.

  Raises:
    ValueError: the family has no place for what the config asks.
  """
  _check_family(config, family)
  scaling = config.rope_scaling
  if scaling is not None and scaling.kind == "dynamic":
    max_position = scaling.original_max_position or max_position
  values = {
    "architectures": [_CLASS_NAMES[family]],
    "model_type": family,
    "vocab_size": config.vocab_size,
    "hidden_size": config.model_dim,
    "intermediate_size": config.mlp_dim,
    "num_hidden_layers": config.num_layers,
    "num_attention_heads": config.num_heads,
    "num_key_value_heads": config.num_kv_heads,
    "head_dim": config.head_dim,
    "hidden_act": "silu",
    "max_position_embeddings": max_position,
    "rms_norm_eps": config.norm_eps,
    "rope_parameters": _render_rope(config),
    "tie_word_embeddings": config.tie_embeddings,
    "use_cache": True,
    "dtype": dtype,
  }
  if family != "qwen2":
    values["attention_bias"] = config.qkv_bias
  if family == "llama":
    values["mlp_bias"] = config.mlp_bias
  else:
    values["use_sliding_window"] = False
  return values


def _unsupported(key: str, found: Any, supported: str) -> ValueError:
  return ValueError(
    f"config.json: {key} is {found!r}, which is not supported; supported:"
    f" {supported}"
  )


def _positive(
  values: Mapping[str, Any], key: str, default: int | None = None
) -> int:
  value = values.get(key)
  if value is None:
    value = default
  if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
    raise ValueError(
      f"config.json: {key} is {value!r}; expected a positive integer"
    )
  return value


def _refuse_unsupported(values: Mapping[str, Any]) -> None:
  """Refuses what would load and then compute something else."""
  activation = values.get("hidden_act", "silu")
  if activation not in ("silu", "swish"):
    raise _unsupported("hidden_act", activation, "silu")
  for key in ("num_experts", "num_local_experts", "n_routed_experts"):
    if values.get(key):
      raise _unsupported(key, values[key], "dense MLPs only")
  if values.get("use_sliding_window"):
    raise _unsupported("use_sliding_window", True, "full attention only")
  other_layers = set(values.get("layer_types") or ()) - {"full_attention"}
  if other_layers:
    raise _unsupported("layer_types", sorted(other_layers), "full_attention")
  if values.get("quantization_config"):
    raise _unsupported(
      "quantization_config",
      values["quantization_config"],
      "weights that are not quantized; save the folder dequantized",
    )


def _parse_rope(
  values: Mapping[str, Any],
) -> tuple[float, rope.RopeScaling | None]:
  # Newest spelling first; a file may hold `null` under either key.
  key = "rope_parameters" if values.get("rope_parameters") else "rope_scaling"
  parameters = values.get(key) or {}
  if not isinstance(parameters, Mapping):
    raise _unsupported(key, parameters, "an object of settings")
  theta = parameters.get("rope_theta") or values.get("rope_theta") or 10000.0
  for source in (parameters, values):
    partial = source.get("partial_rotary_factor")
    if partial not in (None, 1, 1.0):
      raise _unsupported("partial_rotary_factor", partial, "1.0")
  kind = parameters.get("rope_type") or parameters.get("type") or "default"
  if kind == "default":
    return float(theta), None
  if kind not in rope.ROPE_KINDS:
    supported = ", ".join(("default", *rope.ROPE_KINDS))
    raise _unsupported(f"{key}.rope_type", kind, supported)
  return float(theta), _parse_scaling(kind, key, parameters, values)


def _parse_scaling(
  kind: str, key: str, parameters: Mapping[str, Any], values: Mapping[str, Any]
) -> rope.RopeScaling:
  max_position = values.get("max_position_embeddings") or 0
  original = (
    values.get("original_max_position_embeddings")
    or parameters.get("original_max_position_embeddings")
    or max_position
  )
  factor = parameters.get("factor")
  if factor is None and kind == "yarn" and original:
    factor = max_position / original
  if factor is None:
    raise ValueError(
      f"config.json: {key}.factor is missing; the rope type {kind!r} needs it"
    )
  attention_factor = parameters.get("attention_factor")
  mscale = parameters.get("mscale")
  mscale_all_dim = parameters.get("mscale_all_dim")
  if attention_factor is None and mscale and mscale_all_dim:
    attention_factor = rope.yarn_attention_scale(
      factor, mscale
    ) / rope.yarn_attention_scale(factor, mscale_all_dim)
  truncate = parameters.get("truncate")
  trained = {
    "linear": 0,
    "llama3": original,
    "yarn": original,
    "dynamic": max_position,
  }
  return rope.RopeScaling(
    kind=kind,
    factor=float(factor),
    low_freq_factor=float(parameters.get("low_freq_factor") or 1.0),
    high_freq_factor=float(parameters.get("high_freq_factor") or 4.0),
    original_max_position=trained[kind],
    beta_fast=float(parameters.get("beta_fast") or 32.0),
    beta_slow=float(parameters.get("beta_slow") or 1.0),
    attention_factor=attention_factor if kind == "yarn" else None,
    truncate=True if truncate is None else bool(truncate),
  )


def _render_rope(config: ModelConfig) -> dict[str, Any]:
  scaling = config.rope_scaling
  values: dict[str, Any] = {
    "rope_type": "default" if scaling is None else scaling.kind,
    "rope_theta": config.rope_theta,
  }
  if scaling is None:
    return values
  values["factor"] = scaling.factor
  if scaling.kind in ("llama3", "yarn"):
    values["original_max_position_embeddings"] = scaling.original_max_position
  if scaling.kind == "llama3":
    values["low_freq_factor"] = scaling.low_freq_factor
    values["high_freq_factor"] = scaling.high_freq_factor
  if scaling.kind == "yarn":
    values["beta_fast"] = scaling.beta_fast
    values["beta_slow"] = scaling.beta_slow
    values["truncate"] = scaling.truncate
    if scaling.attention_factor is not None:
      values["attention_factor"] = scaling.attention_factor
  return values


def fitting_family(config: ModelConfig) -> str:
  """Returns a family that can express the config; ValueError if none can."""
  if config.qk_norm:
    family = "qwen3"
  elif config.qkv_bias and not config.out_bias:
    family = "qwen2"
  else:
    family = "llama"
  _check_family(config, family)
  return family


def _check_family(config: ModelConfig, family: str) -> None:
  if family not in FAMILIES:
    raise ValueError(
      f"family is {family!r}; expected one of {', '.join(FAMILIES)}"
    )
  expected = {
    "qk_norm": family == "qwen3",
    "qkv_bias": True if family == "qwen2" else config.qkv_bias,
    "out_bias": False if family == "qwen2" else config.qkv_bias,
    "mlp_bias": config.mlp_bias if family == "llama" else False,
  }
  for name, value in expected.items():
    if getattr(config, name) != value:
      raise ValueError(
        f"family {family!r} has no model with {name}="
        f"{getattr(config, name)} here; expected {name}={value}. Choose the"
        f" family that fits, out of {', '.join(FAMILIES)}"
      )
  if family == "llama" and config.model_dim % config.num_heads:
    raise ValueError(
      f"family 'llama' needs model_dim, {config.model_dim}, to be a multiple"
      f" of num_heads, {config.num_heads}"
    )
