"""Token in, token out: messages become the ids around the sampled ones."""

from collections.abc import Sequence
import dataclasses
import re

import numpy as np

from arl_jax.episode import Int32Array, Message
from arl_jax.text.tokenizer import Tokenizer

# A stretch of a rendered chat: text that holds no control token, or the ids of
# control tokens.
Stretch = str | tuple[int, ...]

_ADVICE = (
  "Use a chat template that writes a message as opening, content and end "
  "token, such as '<|im_start|>' + role + '\\n' + content + '<|im_end|>\\n', "
  "with that end token as the tokenizer's eos_token"
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Suffix:
  """What a template writes between an action and the next one.

  Attributes:
    terminator: from the action's text to its stop id, that included.
    pieces: what surrounds the contents of the observations, one more than
      there are contents; the last ends with the generation prompt.
    as_user: the template has no tool role, so a user says what tools answer.
  """

  terminator: tuple[Stretch, ...]
  pieces: tuple[tuple[Stretch, ...], ...]
  as_user: bool


class ChatFormat:
  """Renders what surrounds the sampled ids, which it never sees as text.

  A row is `prompt_ids`, sampled ids, `observation_ids`, sampled ids and so on.
  How a template continues after an action is read off the template, by
  rendering chats with markers for contents: what follows the marker of an
  assistant's message. What precedes it may differ from the row, for a template
  may rewrite an assistant's earlier messages or add a system message; the row
  keeps what the policy saw. What follows must be the same after each of
  several histories, and must begin with a stop id. Else it is an error.

  Contents are put in as they are, even where a template would trim them. Those
  of trusted roles may hold control tokens. Everyone else's are read as plain
  text: a tool that prints `<|im_end|>` ends nothing.

  A template that refuses or drops messages with the role `tool` gets them as
  one message with the role `user`, joined by line breaks.
  """

  def __init__(
    self, tokenizer: Tokenizer, *, trusted_roles: Sequence[str] = ("system",)
  ):
    """Reads the format off a tokenizer's chat template.

    Args:
      tokenizer: has the template and the stop ids.
      trusted_roles: roles whose prompt messages may hold control tokens, such
        as an example of a tool call. In observations nobody is trusted.

    Raises:
      ValueError: if the template does not end an assistant's message with a
        stop id, or continues in ways that depend on the history.
    """
    self.stop_ids = tuple(tokenizer.stop_ids)
    self._tokenizer = tokenizer
    self._trusted_roles = frozenset(trusted_roles)
    self._prompts: dict[tuple[str, ...], tuple[tuple[Stretch, ...], ...]] = {}
    self._suffixes: dict[tuple[str, ...], _Suffix] = {}
    self._control_texts: dict[int, str] = {}
    self._suffix_of(("user",))

  def decode(self, token_ids: Int32Array) -> str:
    """Returns the text of sampled ids, control tokens included."""
    return self._tokenizer.decode(token_ids.tolist())

  def prompt_ids(self, messages: Sequence[Message]) -> Int32Array:
    """Returns the ids before the first action.

    Args:
      messages: the chat so far.

    Returns:
      int32 `[n]`, with the generation prompt at the end.

    Raises:
      ValueError: if the template refuses these roles in this order.
    """
    roles = tuple(message.role for message in messages)
    if roles not in self._prompts:
      pieces = self._pieces(roles)
      self._prompts[roles] = tuple(map(self._stretches, pieces))
    stretches = list(self._prompts[roles][0])
    for message, piece in zip(messages, self._prompts[roles][1:], strict=True):
      if message.role in self._trusted_roles:
        stretches += self._stretches(message.content)
      else:
        stretches.append(message.content)
      stretches += piece
    return self._encode(stretches)

  def observation_ids(
    self, messages: Sequence[Message], *, finish_reason: str
  ) -> Int32Array:
    """Returns exactly what is appended after the sampled ids of a turn.

    Args:
      messages: what answered the action.
      finish_reason: `stop` if the last sampled id is a stop id, else `length`;
        then the missing terminator comes first, as part of the observation.

    Returns:
      int32 `[n]`: the rest of the terminator, the messages, and the
      generation prompt of the next turn.

    Raises:
      ValueError: if there are no messages, or the template refuses their
        roles in this order.
    """
    if not messages:
      raise ValueError(
        "messages is empty; an environment must answer every action that does "
        "not end the task"
      )
    suffix = self._suffix_of(tuple(message.role for message in messages))
    if suffix.as_user:
      messages = _tools_as_user(messages)
    stretches = list(suffix.terminator) if finish_reason == "length" else []
    stretches += suffix.pieces[0]
    for message, piece in zip(messages, suffix.pieces[1:], strict=True):
      stretches.append(message.content)
      stretches += piece
    return self._encode(stretches)

  def _suffix_of(self, roles: tuple[str, ...]) -> _Suffix:
    if roles not in self._suffixes:
      self._suffixes[roles] = self._derive_suffix(roles)
    return self._suffixes[roles]

  def _derive_suffix(self, roles: tuple[str, ...]) -> _Suffix:
    """Derives the suffix for observations with `roles`, tools as user last."""
    try:
      return self._prove_suffix(roles, as_user=False)
    except ValueError:
      if "tool" not in roles:
        raise
    merged = _tools_as_user([Message(role=role, content="") for role in roles])
    return self._prove_suffix(tuple(m.role for m in merged), as_user=True)

  def _prove_suffix(self, roles: tuple[str, ...], *, as_user: bool) -> _Suffix:
    """Finds what follows an action, the same after each of three histories."""
    first = ("user", "assistant")
    tails = [
      self._pieces(history + roles)[len(history) :]
      for history in (first, (*first, *roles, "assistant"))
    ]
    try:
      history = ("system", *first)
      tails.append(self._pieces(history + roles)[len(history) :])
    except ValueError:
      pass  # A template may have no system role; then it is no history.
    if len(set(tails)) > 1:
      raise ValueError(
        f"the chat template continues differently after different histories: "
        f"{tails[0]!r} and {next(t for t in tails if t != tails[0])!r} around "
        f"{', '.join(roles)}. {_ADVICE}"
      )
    first_piece, *pieces = map(self._stretches, tails[0])
    terminator, rest = self._split_terminator(first_piece, tails[0][0])
    return _Suffix(terminator, (rest, *pieces), as_user)

  def _split_terminator(
    self, piece: tuple[Stretch, ...], text: str
  ) -> tuple[tuple[Stretch, ...], tuple[Stretch, ...]]:
    """Cuts what follows an action behind the stop id that it begins with."""
    for index, stretch in enumerate(piece):
      if isinstance(stretch, str) and not stretch.strip():
        continue
      if isinstance(stretch, str) or stretch[0] not in self.stop_ids:
        break
      terminator = (*piece[:index], stretch[:1])
      rest = (stretch[1:], *piece[index + 1 :])
      return terminator, tuple(part for part in rest if part)
    raise ValueError(
      f"the chat template goes on with {text!r} after an assistant's message, "
      f"which does not begin with a stop id; the tokenizer's stop_ids are "
      f"{self.stop_ids}. A policy could not learn to end its turn. {_ADVICE}"
    )

  def _pieces(self, roles: tuple[str, ...]) -> tuple[str, ...]:
    """Renders a chat, and cuts the text at the contents.

    Args:
      roles: of the messages.

    Returns:
      What the template itself writes: before the first content, between, and
      after the last; the generation prompt is at the end.
    """
    marks = [f"CONTENT{index:04d}TNETNOC" for index in range(len(roles))]
    text = self._tokenizer.render(
      [
        Message(role=role, content=mark)
        for role, mark in zip(roles, marks, strict=True)
      ],
      add_generation_prompt=True,
    )
    found = re.findall("|".join(marks), text) if marks else []
    if found != marks:
      raise ValueError(
        "the chat template leaves out, repeats or reorders the contents of "
        f"messages with the roles {', '.join(roles)}. {_ADVICE}"
      )
    return tuple(re.split("|".join(marks), text)) if marks else (text,)

  def _stretches(self, text: str) -> tuple[Stretch, ...]:
    """Cuts trusted text at its control tokens, which become their ids."""
    ids = self._tokenizer.encode(text)
    controls = {s: i for i in set(ids) if (s := self._control_text(i))}
    if not controls:
      return (text,) if text else ()
    longest_first = sorted(controls, key=len, reverse=True)
    pattern = "(" + "|".join(map(re.escape, longest_first)) + ")"
    stretches = tuple(
      (controls[part],) if part in controls else part
      for part in re.split(pattern, text)
      if part
    )
    # A control token may swallow the white space around it. Then the ids of
    # the whole stand as they are.
    same = self._encode(stretches).tolist() == ids
    return stretches if same else (tuple(ids),)

  def _control_text(self, token_id: int) -> str:
    """Returns the text of a control token, empty for an ordinary one."""
    if token_id not in self._control_texts:
      text = self._tokenizer.decode([token_id])
      control = self._tokenizer.encode(text) == [token_id] and (
        self._tokenizer.encode_plain(text) != [token_id]
      )
      self._control_texts[token_id] = text if control else ""
    return self._control_texts[token_id]

  def _encode(self, stretches: Sequence[Stretch]) -> Int32Array:
    """Joins neighbouring texts, so that merges cross them as in one text."""
    ids: list[int] = []
    text = ""
    for stretch in (*stretches, ()):
      if isinstance(stretch, str):
        text += stretch
        continue
      if text:
        ids += self._tokenizer.encode_plain(text)
        text = ""
      ids += stretch
    return np.asarray(ids, np.int32)


def _tools_as_user(messages: Sequence[Message]) -> list[Message]:
  """Returns the messages with runs of tool messages as one user message."""
  merged: list[Message] = []
  after_tool = False
  for message in messages:
    is_tool = message.role == "tool"
    if is_tool and after_tool:
      content = f"{merged[-1].content}\n{message.content}"
      merged[-1] = Message(role="user", content=content)
    else:
      role = "user" if is_tool else message.role
      merged.append(Message(role=role, content=message.content))
    after_tool = is_tool
  return merged
