"""Code in fenced blocks, as an action, with the characters that it spans.

A block is a line that opens it, code, and a line that closes it:

    ```python
    print(1)
    ```

The rule, after CommonMark with one change:

- A fence is a line that starts, after three spaces at most, with three or more
  backticks. Backticks anywhere else, such as in a string, are text.
- Text after the backticks of an opening fence is its language, up to the first
  space. It may hold no backticks: a line such as "```x = 1```" is text.
- A block ends at a line of backticks alone, as many as opened it or more. So a
  fence inside code needs fewer backticks than the block around it: open with
  four to write three. A line of three inside a string ends a block of three.
- The change: a block is unclosed if a fence with a language, of as many
  backticks or more, comes first, or if nothing closes it. CommonMark would read
  what follows as its code, and good blocks would be lost with the bad one. Here
  it ends before the next fence with a language, however short, which opens a
  block of its own.

Every attempt at a block is reported with a status of its own.
"""

import bisect
from collections.abc import Callable, Sequence
import dataclasses
import enum
import re

_LINE = re.compile(r"[^\n]+")
_FENCE = re.compile(r"( {0,3})(`{3,})([^`]*)")


class BlockStatus(enum.StrEnum):
  """What became of one attempt at a block of code."""

  OK = "ok"
  UNCLOSED = "unclosed"  # no closing fence before the next block or the end
  WRONG_LANGUAGE = "wrong_language"  # or none
  EMPTY = "empty"  # nothing but white space


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CodeBlock:
  """One attempt at a block of code.

  Attributes:
    status: ok, or the first that is wrong in the order of `BlockStatus`.
    start: first character of the opening fence in the text.
    end: one past the last character of the closing fence.
    language: as it was written, maybe empty.
    code: the lines between the fences if the status is ok, else None. Where
      the opening fence is indented, they lose as much of their indentation.
    error: what is wrong, in words for the policy; empty if the status is ok.
  """

  status: BlockStatus
  start: int
  end: int
  language: str
  code: str | None = None
  error: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Fence:
  """A line of backticks; `line` is where it starts, `after` the next one."""

  line: int
  start: int
  after: int
  indent: int
  length: int
  language: str


def parse_code_blocks(
  text: str, *, languages: Sequence[str] = ("python",)
) -> tuple[CodeBlock, ...]:
  """Finds every attempt at a block of code, in the order of the text.

  Args:
    text: an action of the policy, without its stop token.
    languages: those that are meant; upper and lower case are the same. An
      empty one allows blocks without a language.

  Returns:
    The attempts; their spans do not overlap. None at all means that the text
    is a plain answer.

  Raises:
    ValueError: `languages` is empty, or is one string.
  """
  if isinstance(languages, str) or not languages:
    raise ValueError(
      f"languages is {languages!r}; expected some, such as ('python',)"
    )
  fences = [
    _read_fence(match, line)
    for line in _LINE.finditer(text)
    if (match := _FENCE.fullmatch(line.group()))
  ]
  blocks: list[CodeBlock] = []
  index = 0
  while index < len(fences):
    end = _find_end(fences, index)
    if end == len(fences):
      blocks.append(_unclosed(fences[index], len(text)))
      index = end
    elif fences[end].language:
      blocks.append(_unclosed(fences[index], fences[end].start))
      index = end
    else:
      blocks.append(_closed(text, fences[index], fences[end], languages))
      index = end + 1
  return tuple(blocks)


def render_code_block(code: str, *, language: str = "python") -> str:
  """Writes code so that `parse_code_blocks` reads the same code back.

  Args:
    code: not empty; more backticks than three stand around one that holds as
      many.
    language: one word without backticks.

  Raises:
    ValueError: the code or the language cannot be written.
  """
  if not code.strip():
    raise ValueError("code is empty; expected more than white space")
  if re.search(r"[\s`]", language):
    raise ValueError(
      f"language is {language!r}; expected one word without backticks"
    )
  runs = re.findall("`{3,}", code)
  fence = "`" * max([3, *(len(run) + 1 for run in runs)])
  return f"{fence}{language}\n{code}\n{fence}"


def token_spans(
  spans: Sequence[tuple[int, int]],
  token_ids: Sequence[int],
  decode: Callable[[Sequence[int]], str],
) -> tuple[tuple[int, int], ...]:
  """Finds the tokens of stretches of an action's text.

  A token counts if any of its bytes is part of a character of the span. So a
  token across the border of two spans counts for both, and so do all tokens of
  a character that several share.

  Args:
    spans: first character and one past the last, in `decode(token_ids)`.
    token_ids: of the action, without its stop token.
    decode: text of token ids; it may write replacement characters for the
      bytes of a character that is not complete. The text of the first tokens
      must be the beginning of the text of all of them.

  Returns:
    The first token and one past the last, for each span. An empty span has no
    tokens.

  Raises:
    ValueError: a span is not inside the text.
  """
  text = decode(token_ids)
  ends: dict[int, tuple[int, int]] = {0: (0, 0)}

  def end_of(num_tokens: int) -> tuple[int, int]:
    """Returns the complete characters of the first tokens, and those begun."""
    if num_tokens not in ends:
      found = decode(token_ids[:num_tokens])
      same = _num_common(found, text)
      ends[num_tokens] = same, same + (same < len(found))
    return ends[num_tokens]

  indices = range(len(token_ids))
  result = []
  for start, end in spans:
    if not 0 <= start <= end <= len(text):
      raise ValueError(
        f"a span is ({start}, {end}); expected one inside the text, which has"
        f" {len(text)} characters"
      )
    first = bisect.bisect_right(
      indices, start, key=lambda index: end_of(index + 1)[1]
    )
    last = bisect.bisect_left(indices, end, key=lambda index: end_of(index)[0])
    result.append((first, max(first, last) if end > start else first))
  return tuple(result)


def _num_common(first: str, second: str) -> int:
  """Counts the characters before the first that differs."""
  if second.startswith(first):
    return len(first)
  pairs = zip(first, second, strict=False)
  different = (index for index, (a, b) in enumerate(pairs) if a != b)
  return next(different, min(len(first), len(second)))


def _read_fence(match: re.Match[str], line: re.Match[str]) -> _Fence:
  indent, length = len(match[1]), len(match[2])
  return _Fence(
    line=line.start(),
    start=line.start() + indent,
    after=line.end() + 1,
    indent=indent,
    length=length,
    language=next(iter(match[3].split()), ""),
  )


def _find_end(fences: Sequence[_Fence], index: int) -> int:
  """Returns which fence ends the block that one opens; their number if none."""
  rest = range(index + 1, len(fences))
  long = (n for n in rest if fences[n].length >= fences[index].length)
  first = next(long, None)
  if first is not None and not fences[first].language:
    return first
  return next((other for other in rest if fences[other].language), len(fences))


def _unclosed(opened: _Fence, end: int) -> CodeBlock:
  return CodeBlock(
    status=BlockStatus.UNCLOSED,
    start=opened.start,
    end=end,
    language=opened.language,
    error=f"the block is not closed: write {'`' * opened.length} on a line of"
    " its own after the code",
  )


def _closed(
  text: str, opened: _Fence, closing: _Fence, languages: Sequence[str]
) -> CodeBlock:
  between = text[opened.after : closing.line]
  status, error, code = BlockStatus.OK, "", None
  if opened.language.lower() not in {each.lower() for each in languages}:
    status = BlockStatus.WRONG_LANGUAGE
    found = opened.language or "no language"
    error = f"the block has {found}; expected {' or '.join(languages)}"
  elif not between.strip():
    status, error = BlockStatus.EMPTY, "the block is empty"
  else:
    code = between.removesuffix("\n")
    if opened.indent:
      code = re.sub(rf"^ {{1,{opened.indent}}}", "", code, flags=re.MULTILINE)
  return CodeBlock(
    status=status,
    start=opened.start,
    end=closing.start + closing.length,
    language=opened.language,
    code=code,
    error=error,
  )
