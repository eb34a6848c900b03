"""Makes a shorter context for an episode that has grown too long.

The episode goes on in a new row. It starts with the first messages, then what
the agent has said in every turn, each followed by a note in place of what it
was told, unless that was shorter than a note; the last turns are there in full.
All of this is context: an action is trained in the row in which it was sampled,
and nowhere else.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

from arl_jax.episode import Int32Array, Message, Turn
from arl_jax.text.chat import ChatFormat

# Stands for an observation that was left out.
NOTE = "[left out]"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ContextPolicy:
  """When an episode goes on in a new row, and with what.

  Attributes:
    max_rows: rows of one episode; the last one ends with its limits.
    keep_turns: last turns whose observations stay.
    max_tokens: length at which a row ends; 0 is the longest that a row may be.
    max_turns: actions after which a row ends; 0 for any number.
  """

  max_rows: int
  keep_turns: int = 2
  max_tokens: int = 0
  max_turns: int = 0

  def __post_init__(self) -> None:
    for name, low in (
      ("max_rows", 2),
      ("keep_turns", 1),
      ("max_tokens", 0),
      ("max_turns", 0),
    ):
      if getattr(self, name) < low:
        raise ValueError(
          f"{name} is {getattr(self, name)}; expected {low} or more"
        )

  def is_due(self, *, length: int, num_turns: int) -> bool:
    """Says whether a row should end.

    Args:
      length: tokens that it would have with its next observation.
      num_turns: actions that were sampled in it.
    """
    return (0 < self.max_tokens <= length) or (0 < self.max_turns <= num_turns)


def shorten(
  prompt_ids: Int32Array,
  actions: Sequence[Int32Array],
  turns: Sequence[Turn],
  *,
  chat: ChatFormat,
  keep_turns: int,
  max_length: int,
) -> Int32Array:
  """Renders the shorter context.

  Where it would fill more than half of a row, so that the new row would soon
  be full again, the oldest turns go altogether, down to the last `keep_turns`.
  Where even these don't fit, fewer are kept, down to the last one.

  Args:
    prompt_ids: int32 `[n]` the first messages.
    actions: int32 `[n]` ids of each turn as they were sampled.
    turns: the turns, with the observations that answered them.
    chat: turns messages into ids.
    keep_turns: last turns whose observations stay.
    max_length: tokens that the row may have, those of its actions included.

  Returns:
    int32 `[n]` with the generation prompt at its end; shorter than
      `max_length` unless prompt and last turn don't fit.
  """
  full = [
    np.concatenate([action, _observation(turn, turn.observations, chat)])
    for action, turn in zip(
      actions[-keep_turns:], turns[-keep_turns:], strict=True
    )
  ]
  noted = [
    np.concatenate([action, _short_observation(turn, chat)])
    for action, turn in zip(
      actions[:-keep_turns], turns[:-keep_turns], strict=True
    )
  ]
  parts = [*noted, *full]
  length = len(prompt_ids) + sum(map(len, parts))
  while len(parts) > 1:
    most = max_length // 2 if len(parts) > len(full) else max_length - 1
    if length <= most:
      break
    length -= len(parts.pop(0))
  return np.concatenate([prompt_ids, *parts])


def _observation(
  turn: Turn, messages: Sequence[Message], chat: ChatFormat
) -> Int32Array:
  return chat.observation_ids(messages, finish_reason=turn.finish_reason)


def _short_observation(turn: Turn, chat: ChatFormat) -> Int32Array:
  # One note for each message, whose roles the template is known to take.
  notes = [Message(role=m.role, content=NOTE) for m in turn.observations]
  choices = (turn.observations, notes)
  return min((_observation(turn, m, chat) for m in choices), key=len)
