"""What a task of the airline expects, and what the database is like then."""

from collections.abc import Mapping, Sequence
import copy
import dataclasses
import re
from typing import Any

from arl_jax.envs.airline_data import AirlineData
from arl_jax.envs.airline_state import AirlineState
from arl_jax.envs.airline_user import Script
from arl_jax.episode import Task, ToolCall


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Gold:
  """The right way to serve a customer.

  Attributes:
    user_id: of the customer.
    calls: tool calls that leave the database as it should be.
    communicate: texts that the agent has to tell, numbers as whole numbers.
    answer: what the last message has to be, None if anything will do.
    script: of a scripted user, None if the prompt says all.
  """

  user_id: str
  calls: tuple[ToolCall, ...] = ()
  communicate: tuple[str, ...] = ()
  answer: str | None = None
  script: Script | None = None

  def as_hidden(self) -> dict[str, Any]:
    """As JSON values, for `Task.hidden`."""
    return dataclasses.asdict(self)


def gold_of(task: Task) -> Gold:
  """Reads what a task hides.

  Raises:
    ValueError: the task is none of the airline.
  """
  try:
    hidden = dict(task.hidden)
    script = hidden["script"]
    return Gold(
      user_id=hidden["user_id"],
      calls=tuple(
        ToolCall(name=call["name"], arguments=call["arguments"])
        for call in hidden["calls"]
      ),
      communicate=tuple(hidden["communicate"]),
      answer=hidden["answer"],
      script=None if script is None else Script(**script),
    )
  except (KeyError, TypeError) as error:
    raise ValueError(
      f"task {task.task_id!r} hides {sorted(task.hidden)}; expected what"
      " Gold.as_hidden() of arl_jax.envs.airline_gold returns"
    ) from error


def gold_changes(
  data: AirlineData, calls: Sequence[ToolCall]
) -> dict[str, Any]:
  """What the calls change of the database; see `AirlineState.changes`."""
  state = AirlineState(data.database)
  toolkit = data.toolkit(state)
  for call in calls:
    arguments: Mapping[str, Any] = copy.deepcopy(dict(call.arguments))
    getattr(toolkit, call.name)(**arguments)
  return state.changes()


def is_told(wanted: str, messages: Sequence[str]) -> bool:
  """Whether a message holds a text as whole words; 1,628 counts as 1628."""
  pattern = re.compile(
    rf"(?<![\w.]){re.escape(wanted)}(?!\w|\.\d)", re.IGNORECASE
  )
  return any(pattern.search(text.replace(",", "")) for text in messages)


def is_answer(wanted: str, message: str) -> bool:
  """Whether a message is a text, but for case and a full stop."""
  given, expected = (
    text.strip().removesuffix(".").lower() for text in (message, wanted)
  )
  return given == expected
