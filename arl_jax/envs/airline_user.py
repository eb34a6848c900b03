"""A scripted customer, who tells what they want bit by bit.

It is no model of a person: it knows a list of facts and a list of wishes, and
follows four rules. The same messages always get the same replies.
"""

from collections.abc import Sequence
import dataclasses
import re

ALL_TOLD = "That is all that I can tell."
# Replies without news, after which the customer hangs up.
_PATIENCE = 5
_CONFIRMS = re.compile(
  r"\b(?:confirm|proceed|go ahead|shall i|should i|would you like|do you want"
  r"|is (?:that|this) (?:ok|okay|correct|right))\b",
  re.IGNORECASE,
)
_WORD = re.compile(r"[a-z]+")
_NO_TOPIC = frozenset(
  "a an and any are as at be but by can do for from give have how i if in is it"
  " know me my need not of on or please so tell that the this to want was what"
  " which who will with would you your".split()
)
_BEFORE_AN_OBJECT = (
  "to|for|told|tells?|asks?|with|of|by|from|gives?|lets?|allows?"
)
# From the words that instruct a person to that person's own, in this order.
_FIRST_PERSON = tuple(
  (re.compile(rf"\b{pattern}\b", re.IGNORECASE), said)
  for pattern, said in (
    (r"you are", "I am"),
    (r"you're", "I'm"),
    (r"you were", "I was"),
    (r"yourself", "myself"),
    (r"yours", "mine"),
    (r"your", "my"),
    (rf"({_BEFORE_AN_OBJECT}) you", r"\1 me"),
    (r"you", "I"),
  )
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Script:
  """What a customer knows and wants, in the words that they say it in.

  Attributes:
    facts: told when they are asked for.
    wishes: told one after the other.
  """

  facts: Sequence[str]
  wishes: Sequence[str]


class ScriptedUser:
  """The customer of one episode.

  Args:
    script: what they know and want.

  Attributes:
    num_told: facts and wishes told so far.
  """

  def __init__(self, script: Script):
    self._facts = [(fact, _topics(fact)) for fact in script.facts]
    self._wishes = list(script.wishes)
    self._told: set[str] = set()
    self._num_idle = 0

  @property
  def num_told(self) -> int:
    """Facts and wishes told so far."""
    return len(self._told)

  def reply(self, message: str) -> str | None:
    """Answers the agent; None if the customer hangs up.

    1. A fact that shares a word with the message is told; one that was told
       before only if the message asks something.
    2. If there is none, the next wish is told, then facts that nobody asked
       for.
    3. A message that asks to confirm gets a yes, before all else.
    4. Once all is told, the customer hangs up at a message that asks nothing,
       or after five replies without news.
    """
    asks, topics = "?" in message, _topics(message)
    parts = [
      fact
      for fact, words in self._facts
      if words & topics and (asks or fact not in self._told)
    ]
    untold = [
      each
      for each in [*self._wishes, *(fact for fact, _ in self._facts)]
      if each not in self._told
    ]
    if not parts and untold:
      parts = untold[:1]
    self._num_idle += not set(parts) - self._told
    self._told.update(parts)
    confirms = _CONFIRMS.search(message) is not None
    if self._num_idle > _PATIENCE or not (parts or confirms or asks):
      return None
    return " ".join(["Yes."] * confirms + parts) or ALL_TOLD


def in_first_person(text: str) -> str:
  """Turns "You want your refund" into "I want my refund", roughly."""
  for pattern, said in _FIRST_PERSON:
    text = pattern.sub(said, text)
  sentences = re.split(r"(?<=[.!?])\s+", text.strip())
  return " ".join(each[:1].upper() + each[1:] for each in sentences)


def _topics(text: str) -> set[str]:
  return set(_WORD.findall(text.lower())) - _NO_TOPIC
