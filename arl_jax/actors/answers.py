"""Checks and cleans what an environment answers, before a row depends on it."""

from collections.abc import Mapping
import dataclasses
import math
import operator
import re
from typing import Any

import numpy as np

from arl_jax.envs.environment import StepResult
from arl_jax.episode import ROLES, Message

# The learner's rewards are float32.
MAX_NUMBER = float(np.finfo(np.float32).max)
# Halves of surrogate pairs: no text may hold one, and no tokenizer takes it.
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class AnswerError(ValueError):
  """An answer is not what the protocol of environments says."""


def clean_text(text: str, *, max_chars: int) -> str:
  """Returns valid Unicode of bounded length.

  Args:
    text: any `str`.
    max_chars: characters that are kept. Where there are more, a note after
      them says how many were left out.
  """
  left_out = len(text) - max_chars
  if left_out > 0:
    text = f"{text[:max_chars]}\n[{left_out} characters left out]"
  return _SURROGATE.sub("\ufffd", text)


def clean_messages(found: Any, *, max_chars: int) -> tuple[Message, ...]:
  """Returns messages whose contents are clean.

  Raises:
    AnswerError: `found` is no tuple of messages with a known role and text.
  """
  if not isinstance(found, tuple | list):
    raise AnswerError(f"expected a tuple of messages, found {_kind(found)}")
  return tuple(
    _clean_message(message, f"message {index}", max_chars)
    for index, message in enumerate(found)
  )


def clean_step_result(found: Any, *, max_chars: int) -> StepResult:
  """Returns a step whose fields are what they are declared to be.

  Raises:
    AnswerError: says which field is not, and what was found.
  """
  if not isinstance(found, StepResult):
    raise AnswerError(f"expected a StepResult, found {_kind(found)}")
  if not isinstance(found.terminated, bool | np.bool_):
    raise AnswerError(f"terminated is {_kind(found.terminated)}, not a bool")
  key = found.state_key
  if not isinstance(key, str | None):
    raise AnswerError(f"state_key is {_kind(key)}, neither a str nor None")
  return dataclasses.replace(
    found,
    observations=clean_messages(found.observations, max_chars=max_chars),
    terminated=bool(found.terminated),
    rewards=clean_components(found.rewards),
    num_tool_calls=_count(found.num_tool_calls, "num_tool_calls"),
    num_tool_errors=_count(found.num_tool_errors, "num_tool_errors"),
    state_key=None if key is None else _SURROGATE.sub("\ufffd", key),
  )


def clean_components(found: Any) -> dict[str, float]:
  """Returns reward components as floats by name, finite in float32.

  Raises:
    AnswerError: `found` is no mapping from names to finite numbers.
  """
  if not isinstance(found, Mapping):
    raise AnswerError(
      f"expected a mapping of reward components by name, found {_kind(found)}"
    )
  return {_name(name): _number(value, name) for name, value in found.items()}


def _clean_message(message: Any, where: str, max_chars: int) -> Message:
  if not isinstance(message, Message):
    raise AnswerError(f"{where} is {_kind(message)}, not a Message")
  if message.role not in ROLES:
    raise AnswerError(
      f"{where} has the role {message.role!r}; expected one of {ROLES}"
    )
  if not isinstance(message.content, str):
    raise AnswerError(
      f"{where} has a content that is {_kind(message.content)}, not a str"
    )
  return Message(
    role=message.role, content=clean_text(message.content, max_chars=max_chars)
  )


def _count(value: Any, where: str) -> int:
  try:
    count = operator.index(value)
  except TypeError:
    count = -1
  if count < 0:
    raise AnswerError(f"{where} is {value!r}; expected a count, 0 or more")
  return count


def _name(name: Any) -> str:
  if not isinstance(name, str) or _SURROGATE.search(name):
    raise AnswerError(f"a reward component has the name {name!r}, not a text")
  return name


def _number(value: Any, name: str) -> float:
  # float() reads texts as well, which no sum would take.
  try:
    number = math.nan if isinstance(value, str | bytes) else float(value)
  except (TypeError, ValueError, OverflowError):
    number = math.nan
  if not abs(number) <= MAX_NUMBER:
    raise AnswerError(
      f"reward component {name!r} is {value!r}; expected a finite number in"
      " float32"
    )
  return number


def _kind(value: Any) -> str:
  return "None" if value is None else type(value).__name__
