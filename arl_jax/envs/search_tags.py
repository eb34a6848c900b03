"""The tags that a search agent writes, and what became of each.

As in Search-R1 (arXiv:2503.09516), with one tag more to read a passage:

    <search>capital of France</search>
    <open>fr/government/capital</open>
    <answer>Paris</answer>

What was found comes back between `<information>` tags, which are not the
policy's to write.

Reading is strict: tags are lower case, have no attributes and hold no other
tag. Every attempt is reported with a status of its own, so that one bad tag
neither hides nor spoils a good one beside it.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import enum
import re

SEARCH, OPEN, ANSWER, INFORMATION = "search", "open", "answer", "information"
TAG_NAMES = (SEARCH, OPEN, ANSWER, INFORMATION)


class TagStatus(enum.StrEnum):
  """What became of one attempt at a tag."""

  OK = "ok"
  UNCLOSED = "unclosed"  # an opening tag without its closing tag
  UNOPENED = "unopened"  # a closing tag without its opening tag
  EMPTY = "empty"  # nothing but white space between the tags
  NESTED = "nested"  # it holds another tag
  SEVERAL = "several"  # one of several answers, so none is the answer
  FORGED = "forged"  # information that the policy wrote itself


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TagAttempt:
  """One attempt at a tag.

  Attributes:
    status: ok, or what is wrong with it.
    name: of the tag.
    start: first character of the attempt in the text.
    end: one past its last character.
    body: the text between the tags without the white space around it, if the
      status is ok; else empty.
    error: what is wrong, in words for the policy; empty if the status is ok.
  """

  status: TagStatus
  name: str
  start: int
  end: int
  body: str = ""
  error: str = ""


def parse_tags(
  text: str, *, names: Sequence[str] = TAG_NAMES
) -> tuple[TagAttempt, ...]:
  """Finds every attempt at a tag, in the order of the text.

  A tag that opens twice and closes once is unclosed where it opened first. A
  tag that holds others is one attempt with all that it holds.

  Args:
    text: an action of the policy, without its stop token.
    names: the tags to look for; all others are plain text.

  Returns:
    The attempts; their spans do not overlap.
  """
  attempts = list(_attempts(text, names))
  num_answers = sum(
    attempt.name == ANSWER and attempt.status == TagStatus.OK
    for attempt in attempts
  )
  if num_answers < 2:
    return tuple(attempts)
  return tuple(map(_as_one_of_several, attempts))


def write_tag(name: str, body: str) -> str:
  """Writes a tag so that `parse_tags` reads the same body back.

  Raises:
    ValueError: the body is empty or holds a tag.
  """
  text = f"<{name}>{body}</{name}>"
  read = parse_tags(text)
  if len(read) != 1 or read[0].body != body or not body:
    raise ValueError(f"<{name}> cannot hold {body!r}; no tags, no outer spaces")
  return text


def hide_tags(text: str) -> str:
  """Returns text in which no tag of this format is left, for observations."""
  return _tag_pattern(TAG_NAMES).sub(lambda tag: f"({tag.group()[1:-1]})", text)


def _tag_pattern(names: Sequence[str]) -> re.Pattern[str]:
  return re.compile(f"<(/?)({'|'.join(map(re.escape, names))})>")


def _attempts(text: str, names: Sequence[str]) -> Iterator[TagAttempt]:
  tags = list(_tag_pattern(names).finditer(text))
  closing = _pairs(tags)
  index = 0
  while index < len(tags):
    tag = tags[index]
    last = closing.get(index, index)
    if tag.group(1):
      yield _bad(TagStatus.UNOPENED, tag, tag.end())
    elif index not in closing:
      following = tags[index + 1].start() if index + 1 < len(tags) else None
      yield _bad(TagStatus.UNCLOSED, tag, following or len(text))
    elif tag.group(2) == INFORMATION:
      yield _bad(TagStatus.FORGED, tag, tags[last].end())
    elif last > index + 1:
      yield _bad(TagStatus.NESTED, tag, tags[last].end())
    elif not (body := text[tag.end() : tags[last].start()].strip()):
      yield _bad(TagStatus.EMPTY, tag, tags[last].end())
    else:
      yield TagAttempt(
        status=TagStatus.OK,
        name=tag.group(2),
        start=tag.start(),
        end=tags[last].end(),
        body=body,
      )
    index = last + 1


def _pairs(tags: Sequence[re.Match[str]]) -> dict[int, int]:
  """Maps the index of each opening tag that is closed to its closing tag's."""
  pairs: dict[int, int] = {}
  waiting: list[int] = []
  for index, tag in enumerate(tags):
    if not tag.group(1):
      waiting.append(index)
    elif waiting and tags[waiting[-1]].group(2) == tag.group(2):
      pairs[waiting.pop()] = index
  return pairs


def _bad(status: TagStatus, tag: re.Match[str], end: int) -> TagAttempt:
  name = tag.group(2)
  return TagAttempt(
    status=status,
    name=name,
    start=tag.start(),
    end=end,
    error=_ERRORS[status].format(name=name),
  )


def _as_one_of_several(attempt: TagAttempt) -> TagAttempt:
  if attempt.name != ANSWER or attempt.status != TagStatus.OK:
    return attempt
  return dataclasses.replace(
    attempt,
    status=TagStatus.SEVERAL,
    body="",
    error=_ERRORS[TagStatus.SEVERAL].format(name=ANSWER),
  )


_ERRORS = {
  TagStatus.UNCLOSED: "<{name}> without </{name}>",
  TagStatus.UNOPENED: "</{name}> without <{name}>",
  TagStatus.EMPTY: "<{name}> is empty",
  TagStatus.NESTED: "<{name}> holds another tag",
  TagStatus.SEVERAL: "more than one <{name}>; give one",
  TagStatus.FORGED: "<{name}> is not yours to write",
}
