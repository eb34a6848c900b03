"""The vocabulary of a GGUF file as a `tokenizers` object."""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

_MAGIC = b"GGUF"
_CONTROL, _USER_DEFINED = 3, 4  # token types of the format

# What `tokenizer.ggml.pre` names: the pieces that merges never cross. They
# differ in how many digits a piece holds.
_PATTERNS = {
  name: (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,"
    f"{digits}}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
  )
  for name, digits in (("qwen2", 1), ("llama-bpe", 3))
}
_SUPPORTED = ("smollm", "gpt-2", *_PATTERNS)


def read_vocabulary(
  path: str | os.PathLike[str],
) -> tuple[Any, dict[str, str]]:
  """Builds a `tokenizers.Tokenizer` from a file's tokens and merges.

  Returns:
    The tokenizer, and the settings that belong beside it: the chat template
    with the bos, eos, unk and pad tokens, as far as the file names them.

  Raises:
    ValueError: the file is missing, damaged or not a GGUF, or its tokenizer
      is of an unsupported kind.
  """
  path = pathlib.Path(path)
  metadata = _read_metadata(path)
  kind = metadata.get("model")
  if kind != "gpt2":
    raise ValueError(
      f"{path}: tokenizer.ggml.model is {kind!r}, which is not supported;"
      " supported: 'gpt2', a byte-level BPE"
    )
  tokens = metadata.get("tokens")
  if not tokens or "merges" not in metadata:
    raise ValueError(f"{path}: tokenizer.ggml.tokens or .merges is missing")
  backend = _byte_level_bpe(path, tokens, metadata)
  settings = {
    f"{name}_token": tokens[metadata[key]]
    for name, key in (
      ("bos", "bos_token_id"),
      ("eos", "eos_token_id"),
      ("unk", "unknown_token_id"),
      ("pad", "padding_token_id"),
    )
    if key in metadata
  }
  if metadata.get("chat_template"):
    settings["chat_template"] = metadata["chat_template"]
  return backend, settings


def _byte_level_bpe(
  path: pathlib.Path, tokens: list[str], metadata: Mapping[str, Any]
) -> Any:
  import tokenizers
  from tokenizers import decoders, models, normalizers, pre_tokenizers

  pre = metadata.get("pre", "gpt-2")
  if pre not in _SUPPORTED:
    raise ValueError(
      f"{path}: tokenizer.ggml.pre is {pre!r}, which is not supported;"
      f" supported: {', '.join(_SUPPORTED)}. Load the tokenizer from its"
      " Hugging Face folder instead"
    )
  backend = tokenizers.Tokenizer(
    models.BPE(
      vocab={token: i for i, token in enumerate(tokens)},
      merges=[tuple(m.split(" ", 1)) for m in metadata["merges"]],
      ignore_merges=pre == "llama-bpe",
    )
  )
  if pre == "qwen2":
    backend.normalizer = normalizers.NFC()
  byte_level = pre_tokenizers.ByteLevel(
    add_prefix_space=False, use_regex=pre not in _PATTERNS
  )
  if pre == "smollm":
    first = [pre_tokenizers.Digits(individual_digits=True)]
  elif pre in _PATTERNS:
    pattern = tokenizers.Regex(_PATTERNS[pre])
    first = [pre_tokenizers.Split(pattern, "isolated")]
  else:
    first = []
  backend.pre_tokenizer = pre_tokenizers.Sequence([*first, byte_level])
  backend.decoder = decoders.ByteLevel()
  for token, token_type in zip(
    tokens, metadata.get("token_type") or (), strict=False
  ):
    if token_type in (_CONTROL, _USER_DEFINED):
      special = token_type == _CONTROL
      backend.add_tokens(
        [tokenizers.AddedToken(token, special=special, normalized=False)]
      )
  return backend


def _read_metadata(path: pathlib.Path) -> dict[str, Any]:
  """Returns what the file says under `tokenizer.`, without that prefix."""
  try:
    import gguf
  except ImportError as error:
    raise ValueError(
      f"{path}: reading GGUF files needs the package gguf; pip install gguf"
    ) from error
  if not path.is_file():
    raise ValueError(f"{path} is not a file; expected a GGUF file")
  with path.open("rb") as stream:
    magic = stream.read(len(_MAGIC))
  if magic != _MAGIC:
    raise ValueError(
      f"{path} is not a GGUF file: it starts with {magic!r}, not {_MAGIC!r}"
    )
  try:
    fields = gguf.GGUFReader(path).fields
  except (ValueError, IndexError, KeyError, OverflowError) as error:
    raise ValueError(
      f"{path} is a damaged or truncated GGUF file: {error}. Fetch it again"
    ) from error
  return {
    name.removeprefix("tokenizer.").removeprefix("ggml."): field.contents()
    for name, field in fields.items()
    if name.startswith("tokenizer.")
  }
