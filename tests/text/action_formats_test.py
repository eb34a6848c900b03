"""Tests of finding blocks of code, and the tokens that wrote them."""

import json
import re

import hypothesis
from hypothesis import strategies as st
import pytest

from arl_jax.text import tokenizer as tokenizer_lib
from arl_jax.text.action_formats import (
  BlockStatus,
  parse_code_blocks,
  render_code_block,
  token_spans,
)

GOOD = "```python\nprint(1)\n```"


def statuses(text, **options):
  return [block.status.value for block in parse_code_blocks(text, **options)]


def codes(text, **options):
  return [block.code for block in parse_code_blocks(text, **options)]


def test_a_block_has_its_code_and_its_span():
  text = f"Let me see.\n{GOOD}\nDone."
  (block,) = parse_code_blocks(text)
  assert (block.status, block.code, block.error) == ("ok", "print(1)", "")
  assert text[block.start : block.end] == GOOD
  assert block.language == "python"


def test_several_blocks_keep_their_order():
  text = "```python\na\n```\ntext\n```Python\nb\nc\n\n```\n````python\nd\n`````"
  assert codes(text) == ["a", "b\nc\n", "d"]


@pytest.mark.parametrize(
  ("text", "status", "error"),
  [
    ("```python\nx", "unclosed", "write ``` on a line of its own"),
    ("````python\nx\n```", "unclosed", "write ```` on a line"),
    ("```python", "unclosed", "not closed"),
    ("```python\n```", "empty", "empty"),
    ("```python\n \t\n\n```", "empty", "empty"),
    ("```bash\nls\n```", "wrong_language", "has bash; expected python"),
    ("```\nx\n```", "wrong_language", "has no language; expected python"),
    ("```pythonx\nx\n```", "wrong_language", "has pythonx"),
    ("```bash\n```", "wrong_language", "has bash"),
  ],
)
def test_what_is_wrong_is_said(text, status, error):
  (block,) = parse_code_blocks(text)
  assert (block.status, block.code) == (status, None)
  assert error in block.error
  assert text[block.start : block.end] == text


@pytest.mark.parametrize(
  "text",
  [
    "",
    "The answer is 3.",
    "a ```python\nprint(1)",  # not at the start of a line
    "    ```python\n    x",  # indented code, not a fence
    "```print(1)```",
    "``python\nx\n``",
    "`\u200b``python",
  ],
)
def test_a_plain_answer_has_no_attempt(text):
  assert parse_code_blocks(text) == ()


def test_languages_are_chosen():
  text = "```py\na\n```\n```\nb\n```\n```SQL\nc\n```"
  assert codes(text, languages=["PY", ""]) == ["a", "b", None]
  assert codes(text, languages=["sql"]) == [None, None, "c"]
  assert codes("```python title=x\na\n```") == ["a"]


@pytest.mark.parametrize("languages", [(), "python"])
def test_languages_are_a_sequence(languages):
  with pytest.raises(ValueError, match="languages is"):
    parse_code_blocks("", languages=languages)


def test_backticks_inside_code_are_code_unless_they_are_a_line():
  code = 'a = "```"\nb = "```python"\nc = f"`{a}`"\n    ```'
  assert codes(f"```python\n{code}\n```") == [code]
  # A line of backticks ends the block, also inside a string.
  blocks = parse_code_blocks('```python\nx = """\n```\n"""\n```')
  assert [block.status for block in blocks] == ["ok", "unclosed"]
  assert blocks[0].code == 'x = """'


def test_a_longer_fence_holds_shorter_ones():
  code = 'x = """\n```python\ny\n```\n"""'
  assert codes(f"````python\n{code}\n````") == [code]


def test_an_unclosed_block_does_not_swallow_the_next():
  text = f"```python\nbroken(\n{GOOD}\n"
  assert statuses(text) == ["unclosed", "ok"]
  unclosed, good = parse_code_blocks(text)
  assert text[unclosed.start : unclosed.end] == "```python\nbroken(\n"
  assert good.code == "print(1)"


def test_a_long_fence_that_nothing_closes_does_not_swallow_short_ones():
  text = f"`````python\nx\n````\ny\n{GOOD}\n{GOOD}"
  assert statuses(text) == ["unclosed", "ok", "ok"]
  (unclosed, *_) = parse_code_blocks(text)
  assert text[: unclosed.end] == "`````python\nx\n````\ny\n"


def test_an_indented_block_loses_its_indentation():
  text = "1. Run\n   ```python\n   if x:\n     y\n z\n   ```"
  assert codes(text) == ["if x:\n  y\nz"]


def test_lines_may_end_as_on_windows():
  assert codes("```python\r\nx\r\ny\r\n```\r\n") == ["x\r\ny\r"]


PIECES = st.sampled_from(
  [
    "```",
    "````",
    "```python",
    "````python",
    "```bash",
    "`",
    "\n",
    "\r",
    " ",
    "   ",
    "x = 1",
    '"""',
    "~~~",
    "\u2028",
    "\U0001f600",
    "\ud800",
    "<tool_call>",
  ]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=80)


@hypothesis.given(TEXTS)
@hypothesis.settings(max_examples=400, deadline=None)
def test_any_text_is_read_into_spans_in_order(text):
  last = 0
  for block in parse_code_blocks(text):
    assert last <= block.start < block.end <= len(text)
    assert text.startswith("```", block.start)
    assert (block.code is None) == (block.status != BlockStatus.OK)
    assert bool(block.error) == (block.code is None)
    if block.code is not None:
      assert text[: block.end].endswith("```")
      # A code block is read alone as it is read among others.
      alone = parse_code_blocks(text[block.start : block.end])
      assert [each.status for each in alone] == ["ok"]
    last = block.end


# A text that a line starts, so that what follows begins a line of its own, and
# that leaves no block open that a fence with a language would not end.
BAD = st.lists(
  st.sampled_from(
    [
      "```python\nopen(",
      "`````python\nopen(",
      "```bash\nls\n```",
      "```python\n```",
      "```",
      "text",
      "```x```",
      "`` ` ``",
      "<tool_call>{",
    ]
  ),
  max_size=6,
)


@hypothesis.given(BAD, st.lists(st.tuples(st.integers(0, 9), BAD), max_size=4))
@hypothesis.settings(max_examples=300, deadline=None)
def test_a_bad_attempt_never_loses_its_good_siblings(before, rest):
  lines, expected = [*before], []
  for number, after in rest:
    lines += [f"```python\nprint({number})\n```", *after]
    expected.append(f"print({number})")
  found = [code for code in codes("\n".join(lines)) if code is not None]
  assert [code for code in found if code in expected] == expected


@hypothesis.given(TEXTS, st.sampled_from(["", "text ", "\n"]))
@hypothesis.settings(max_examples=300, deadline=None)
def test_code_that_was_written_is_read_back(code, after):
  if not code.strip():
    with pytest.raises(ValueError, match="code is empty"):
      render_code_block(code)
    return
  text = f"Run:\n{render_code_block(code)}\n{after}"
  assert codes(text) == [code]


def test_a_language_is_one_word():
  with pytest.raises(ValueError, match="language is 'a b'"):
    render_code_block("x", language="a b")


def decode_bytes(ids):
  """A tokenizer whose tokens are bytes: most characters take several."""
  return bytes(ids).decode("utf-8", errors="replace")


def reference_spans(text, spans, pieces):
  """Counts the bytes of each token instead of decoding prefixes."""
  borders = [0]
  for character in text:
    borders.append(borders[-1] + len(character.encode()))
  starts = [sum(map(len, pieces[:index])) for index in range(len(pieces))]
  found = []
  for start, end in spans:
    first, last = borders[start], borders[end]
    inside = [
      index
      for index, piece in enumerate(pieces)
      if starts[index] < last and starts[index] + len(piece) > first
    ]
    found.append((inside[0], inside[-1] + 1))
  return tuple(found)


def test_spans_of_bytes():
  text = "a\u00e9\U0001f600b"
  ids = list(text.encode())
  spans = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (1, 3)]
  expected = ((0, 1), (1, 3), (3, 7), (7, 8), (0, 8), (1, 7))
  assert token_spans(spans, ids, decode_bytes) == expected


def test_an_empty_span_has_no_tokens():
  assert token_spans([(1, 1), (0, 0)], [97, 98], decode_bytes) == (
    (1, 1),
    (0, 0),
  )
  assert token_spans([(0, 0)], [], decode_bytes) == ((0, 0),)


@pytest.mark.parametrize("span", [(-1, 1), (2, 1), (0, 3)])
def test_a_span_outside_of_the_text_is_refused(span):
  with pytest.raises(ValueError, match="which has 2 characters"):
    token_spans([span], [97, 98], decode_bytes)


@hypothesis.given(
  st.text(
    st.sampled_from("a`\n\u00e9\u4e2d\U0001f600"), min_size=1, max_size=12
  ),
  st.data(),
)
@hypothesis.settings(max_examples=300, deadline=None)
def test_spans_of_tokens_that_split_characters_anywhere(text, data):
  whole = text.encode()
  cuts = data.draw(
    st.sets(st.integers(0, len(whole))).map(
      lambda found: sorted({0, len(whole)} | found)
    )
  )
  pieces = [whole[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]

  def decode(ids):
    return b"".join(pieces[index] for index in ids).decode(errors="replace")

  first = data.draw(st.integers(0, len(text) - 1))
  spans = [(first, data.draw(st.integers(first + 1, len(text))))]
  spans.append((0, len(text)))
  found = token_spans(spans, range(len(pieces)), decode)
  assert found == reference_spans(text, spans, pieces)


def test_spans_of_blocks_with_a_trained_tokenizer():
  tokenizer = tokenizer_lib.train_tokenizer([GOOD, "caf\u00e9"], vocab_size=290)
  text = f"\u4e2d\u6587 caf\u00e9\n{GOOD}\n\U0001f600\n{GOOD}"
  ids = tokenizer.encode_plain(text)
  assert len(ids) > len(text) / 4
  assert tokenizer.decode(ids) == text
  blocks = parse_code_blocks(text)
  spans = token_spans(
    [(block.start, block.end) for block in blocks], ids, tokenizer.decode
  )
  for start, end in spans:
    written = tokenizer.decode(ids[start:end])
    assert re.fullmatch(rf"\s?{re.escape(GOOD)}\s?", written), json.dumps(
      written
    )
