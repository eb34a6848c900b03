"""Programs and answers in an action, and what became of each attempt.

A program is a fenced block, an answer is a tag:

    ```python
    print(6 * 7)
    ```

    <answer>42</answer>

Whichever opens first holds the other: a block inside an answer is part of the
answer, as programs that are handed in are, and a tag in a program is text. So
it is in a block that is not closed, which goes on to the next block or to the
end: what that holds is no answer. Nor is a tag that is not closed.
"""

from collections.abc import Iterable, Iterator
import dataclasses
import re

from arl_jax.envs import search_tags
from arl_jax.envs.search_tags import TagAttempt, TagStatus
from arl_jax.text.action_formats import (
  BlockStatus,
  CodeBlock,
  parse_code_blocks,
)

LANGUAGES = ("python", "py", "python3")
ANSWER = search_tags.ANSWER
_OPENING, _CLOSING = f"<{ANSWER}>", f"</{ANSWER}>"
_TAG = re.compile(f"{_OPENING}|{_CLOSING}")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
  """One attempt in an action: a program, an answer, or a mistake.

  Attributes:
    start: where it starts in the action.
    code: the program, if it is one.
    answer: the answer, if it is one.
    error: what is wrong, if it is neither.
  """

  start: int
  code: str | None = None
  answer: str | None = None
  error: str = ""


def read_action(action: str) -> tuple[Attempt, ...]:
  """Finds all attempts in an action, in their order.

  Args:
    action: text of the policy, without its stop token.

  Returns:
    The attempts; none at all if the action is neither code nor answer.
  """
  blocks = parse_code_blocks(action, languages=LANGUAGES)
  closed = [b for b in blocks if b.status != BlockStatus.UNCLOSED]
  unclosed = [b for b in blocks if b.status == BlockStatus.UNCLOSED]
  outside = _hide(action, closed)
  outside = _hide(outside, _outside_of_answers(unclosed, outside))
  tags = search_tags.parse_tags(outside, names=(ANSWER,))
  attempts = [
    *_blocks(blocks, tags),
    *(_tag(tag, action) for tag in tags),
  ]
  return tuple(sorted(attempts, key=lambda attempt: attempt.start))


def write_answer(answer: str) -> str:
  """Writes an answer so that `read_action` reads it."""
  return f"{_OPENING}{answer}{_CLOSING}"


def _hide(action: str, blocks: Iterable[CodeBlock]) -> str:
  """Returns an action in which blocks hold no tags; all else stays in place."""
  parts: list[str] = []
  end = 0
  for block in blocks:
    parts += [action[end : block.start], "`" * (block.end - block.start)]
    end = block.end
  return "".join([*parts, action[end:]])


def _outside_of_answers(
  blocks: Iterable[CodeBlock], action: str
) -> Iterator[CodeBlock]:
  """Yields the unclosed blocks that no answer holds."""
  last = action.rfind(_CLOSING)
  tags = _TAG.finditer(action)
  tag = next(tags, None)
  is_open, end = False, 0
  for block in blocks:
    while tag is not None and tag.start() < block.start:
      if tag.start() >= end:  # else it is text of the block before
        is_open = tag.group() == _OPENING
      tag = next(tags, None)
    if not (is_open and block.start < last):
      end = block.end
      yield block


def _blocks(
  blocks: tuple[CodeBlock, ...], tags: tuple[TagAttempt, ...]
) -> Iterator[Attempt]:
  for block in blocks:
    # Also one whose fences only look like a block because of the tag.
    if any(tag.start < block.start < tag.end for tag in tags if _holds(tag)):
      continue
    yield Attempt(start=block.start, code=block.code, error=block.error)


def _holds(tag: TagAttempt) -> bool:
  return tag.status in (TagStatus.OK, TagStatus.SEVERAL)


def _tag(tag: TagAttempt, action: str) -> Attempt:
  if tag.status != TagStatus.OK:
    return Attempt(start=tag.start, error=tag.error)
  first, last = tag.start + len(_OPENING), tag.end - len(_CLOSING)
  return Attempt(start=tag.start, answer=action[first:last].strip())
