"""The tokenizer: text to token ids, ids to text, messages to text.

It stands on a `PreTrainedTokenizerFast`, and needs no deep-learning
framework. Control tokens of the chat format are recognised only where the
caller says that the text may hold them.
"""

from collections.abc import Iterable, Mapping, Sequence
import contextlib
import functools
import json
import os
import pathlib
from typing import Any

from arl_jax.episode import Message
from arl_jax.text import gguf_vocabulary

USER, ASSISTANT, TOOL, SYSTEM = (
  "<|user|>",
  "<|assistant|>",
  "<|tool|>",
  "<|system|>",
)
END, PAD = "<|end|>", "<|pad|>"
DEFAULT_SPECIAL_TOKENS = (PAD, END, SYSTEM, USER, ASSISTANT, TOOL)
DEFAULT_CHAT_TEMPLATE = (
  "{% for message in messages %}"
  "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
  "{% endfor %}"
  "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# Words, runs of digits up to three long and punctuation, each with the space
# before it.
DEFAULT_SPLIT_PATTERN = r" ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"

_GENERATION_FILE = "generation_config.json"


class Tokenizer:
  """Encodes, decodes and renders chats.

  Attributes:
    fast: the `PreTrainedTokenizerFast` underneath.
    stop_ids: ids that end a turn; the first is the tokenizer's own.
    pad_id: id that fills rows.
    vocab_size: one more than the largest id.
  """

  fast: Any
  stop_ids: tuple[int, ...]
  pad_id: int
  vocab_size: int

  def __init__(self, fast: Any, *, stop_ids: Sequence[int] = ()) -> None:
    """Wraps a `PreTrainedTokenizerFast`.

    Args:
      fast: the tokenizer; it must have an end token and a chat template.
      stop_ids: ids that end a turn, besides the end token.

    Raises:
      ValueError: the chat template or the end token is missing.
    """
    name = fast.name_or_path or "the tokenizer"
    if not fast.chat_template:
      raise ValueError(
        f"{name} has no chat template; set chat_template in its"
        " tokenizer_config.json, put a chat_template.jinja beside it, or use"
        " the instruct variant of the model"
      )
    if fast.eos_token_id is None:
      raise ValueError(
        f"{name} has no end token; set eos_token in its tokenizer_config.json"
        " to the token that ends an assistant's turn"
      )
    self.fast = fast
    self._backend = fast.backend_tokenizer
    # A saved tokenizer may carry a length limit, which would cut rows.
    self._backend.no_truncation()
    self._backend.no_padding()
    self.stop_ids = tuple(dict.fromkeys((fast.eos_token_id, *stop_ids)))
    pad_id = fast.pad_token_id
    self.pad_id = fast.eos_token_id if pad_id is None else pad_id
    self.vocab_size = 1 + max(self._backend.get_vocab().values())

  @functools.cached_property
  def _plain_backend(self) -> Any:
    """A copy that reads the text of control tokens as ordinary text.

    Tokenizers mark some control tokens, such as `<tool_call>`, as not special;
    here all added tokens are, runs of white space excepted.
    """
    import tokenizers

    state = json.loads(self._backend.to_str())
    for token in state["added_tokens"]:
      token["special"] = bool(token["content"].strip())
    plain = tokenizers.Tokenizer.from_str(json.dumps(state))
    plain.encode_special_tokens = True
    return plain

  def encode(self, text: str) -> list[int]:
    """Returns ids of trusted text; control tokens in it are recognised."""
    return self._backend.encode(text, add_special_tokens=False).ids

  def encode_plain(self, text: str) -> list[int]:
    """Returns ids of untrusted text; control tokens in it stay text."""
    return self._plain_backend.encode(text, add_special_tokens=False).ids

  def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
    """Returns the text of ids, control tokens included unless skipped."""
    return self._backend.decode(
      [int(i) for i in ids], skip_special_tokens=skip_special
    )

  def token_id(self, token: str) -> int:
    """Returns the id of one token; ValueError if there is none."""
    found = self._backend.token_to_id(token)
    if found is None:
      raise ValueError(f"{token!r} is not a token of this tokenizer")
    return found

  def render(
    self,
    messages: Sequence[Message | Mapping[str, Any]],
    add_generation_prompt: bool,
  ) -> str:
    """Returns the text of a chat, as the chat template writes it.

    Args:
      messages: records, or mappings with `role` and `content`.
      add_generation_prompt: end with the opening of an assistant's turn.
    """
    import jinja2

    chat = [
      {"role": m.role, "content": m.content} if isinstance(m, Message) else m
      for m in messages
    ]
    try:
      return self.fast.apply_chat_template(
        chat, tokenize=False, add_generation_prompt=add_generation_prompt
      )
    except jinja2.TemplateError as error:
      roles = ", ".join(m["role"] for m in chat)
      raise ValueError(
        f"the chat template refuses messages with roles {roles}: {error}"
      ) from error

  def save(self, folder: str | os.PathLike[str]) -> None:
    """Writes the files that `load_tokenizer` and transformers read."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    self.fast.save_pretrained(folder)
    stops = {"eos_token_id": list(self.stop_ids), "pad_token_id": self.pad_id}
    path = folder / _GENERATION_FILE
    path.write_text(json.dumps(stops, indent=2) + "\n", encoding="utf-8")


def load_tokenizer(
  folder: str | os.PathLike[str], *, allow_download: bool = False
) -> Tokenizer:
  """Reads the tokenizer of a Hugging Face folder.

  Args:
    folder: holds tokenizer.json with tokenizer_config.json; or, if downloads
      are allowed, the name of a model on the hub.
    allow_download: fetch from the hub what is not a folder here.

  Raises:
    ValueError: the folder or its tokenizer.json is missing or damaged, or the
      tokenizer has no chat template.
  """
  path = pathlib.Path(folder)
  if not path.is_dir():
    if not allow_download:
      raise ValueError(
        f"{folder} is not a folder; expected one with tokenizer.json. In"
        " Python, load_tokenizer(..., allow_download=True) fetches a model of"
        " that name from the hub"
      )
    path = _download(str(folder))
  if not (path / "tokenizer.json").is_file():
    raise ValueError(
      f"{path} has no tokenizer.json; save the tokenizer with"
      " save_pretrained of a fast tokenizer"
    )
  try:
    fast = _fast_tokenizer_class().from_pretrained(
      str(path), local_files_only=True
    )
  # The parser in Rust raises bare Exceptions.
  except Exception as error:
    raise ValueError(
      f"{path}: the tokenizer cannot be read: {error}"
    ) from error
  return Tokenizer(fast, stop_ids=_saved_stop_ids(path / _GENERATION_FILE))


def tokenizer_from_gguf(path: str | os.PathLike[str]) -> Tokenizer:
  """Builds the tokenizer that a GGUF file carries in its metadata.

  Raises:
    ValueError: the file is missing, damaged or not a GGUF, or its tokenizer
      is of an unsupported kind or has no chat template.
  """
  backend, settings = gguf_vocabulary.read_vocabulary(path)
  return wrap_backend(backend, name_or_path=str(path), **settings)


def train_tokenizer(
  texts: Iterable[str],
  *,
  vocab_size: int,
  split_pattern: str = DEFAULT_SPLIT_PATTERN,
  special_tokens: Sequence[str] = DEFAULT_SPECIAL_TOKENS,
  chat_template: str = DEFAULT_CHAT_TEMPLATE,
) -> Tokenizer:
  """Learns a byte-level BPE from texts; any text can be encoded with it.

  Args:
    texts: what the policy will read and write.
    vocab_size: limit on ids, with the 256 bytes and the special tokens in it.
    split_pattern: regular expression of pieces that merges never cross; what
      it does not match becomes pieces too. A piece can become one token, so a
      pattern that isolates values and leaves boilerplate whole makes short
      rows.
    special_tokens: control tokens, with `<|end|>` and `<|pad|>` among them.
    chat_template: Jinja template of the chat.

  Example:
    tokenizer = train_tokenizer(["book AB123", "sold out"], vocab_size=300)
  """
  import tokenizers
  from tokenizers import decoders, models, pre_tokenizers, trainers

  special_tokens = list(dict.fromkeys(special_tokens))
  missing = {END, PAD} - set(special_tokens)
  if missing:
    raise ValueError(
      f"special_tokens lack {', '.join(sorted(missing))}; expected {END}, which"
      f" ends a turn, and {PAD}, which fills rows"
    )
  smallest = 256 + len(special_tokens)
  if vocab_size < smallest:
    raise ValueError(
      f"vocab_size is {vocab_size}; expected at least {smallest}: 256 bytes"
      f" and {len(special_tokens)} special tokens"
    )
  backend = tokenizers.Tokenizer(models.BPE())
  backend.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(tokenizers.Regex(split_pattern), "isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )
  backend.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    special_tokens=special_tokens,
    initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    show_progress=False,
  )
  backend.train_from_iterator(texts, trainer)
  return wrap_backend(
    backend, chat_template=chat_template, eos_token=END, pad_token=PAD
  )


def wrap_backend(backend: Any, **settings: Any) -> Tokenizer:
  """Returns the Tokenizer around a `tokenizers.Tokenizer`.

  Args:
    backend: the `tokenizers.Tokenizer`.
    **settings: of `PreTrainedTokenizerFast`, such as `chat_template`,
      `eos_token` and `pad_token`.
  """
  fast = _fast_tokenizer_class()(
    tokenizer_object=backend, clean_up_tokenization_spaces=False, **settings
  )
  return Tokenizer(fast)


def _fast_tokenizer_class() -> Any:
  with _quiet_import():
    from transformers import PreTrainedTokenizerFast
  return PreTrainedTokenizerFast


@contextlib.contextmanager
def _quiet_import():
  """Keeps transformers from announcing that PyTorch is absent."""
  name = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
  before = os.environ.get(name)
  os.environ[name] = "1"
  try:
    yield
  finally:
    if before is None:
      del os.environ[name]
    else:
      os.environ[name] = before


def _saved_stop_ids(path: pathlib.Path) -> tuple[int, ...]:
  """Reads the stop ids of a generation_config.json, if there is one."""
  if not path.is_file():
    return ()
  try:
    found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
  except (ValueError, AttributeError) as error:
    raise ValueError(f"{path} cannot be read as JSON: {error}") from error
  if found is None:
    return ()
  return (found,) if isinstance(found, int) else tuple(found)


def _download(name: str) -> pathlib.Path:
  import huggingface_hub

  return pathlib.Path(
    huggingface_hub.snapshot_download(
      name,
      allow_patterns=["tokenizer*", "*.jinja", "*_map.json", _GENERATION_FILE],
    )
  )
