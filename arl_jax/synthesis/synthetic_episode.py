"""An episode to imitate: what was read, what was written, how it was made."""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
from typing import Any

from arl_jax.episode import ROLES, Episode, Message, Task
from arl_jax.trajectories.codec import get_field
from arl_jax.trajectories.json_values import (
  decode_float,
  decode_value,
  encode_float,
  encode_value,
)

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticTurn:
  """One action, with the messages that it answers.

  Attributes:
    observations: the messages since the action before; the prompt at first.
    action: its text, without the stop token.
    trained: whether it is to be imitated; a mistake that was put in on purpose
      is not.
  """

  observations: tuple[Message, ...]
  action: str
  trained: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticEpisode:
  """A whole episode that its environment answered and judged.

  Attributes:
    task: what was asked, with its level and what a replay needs.
    source: the method that made it.
    turns: in order.
    success: what the environment judged.
    reward: weighted sum of the reward components.
    tags: what is special about it, such as `recovered`.
  """

  task: Task
  source: str
  turns: tuple[SyntheticTurn, ...]
  success: bool
  reward: float
  tags: tuple[str, ...] = ()

  @property
  def actions(self) -> tuple[str, ...]:
    """The texts of the actions."""
    return tuple(turn.action for turn in self.turns)

  @property
  def num_calls(self) -> int:
    """Actions before the last, which is the answer."""
    return max(0, len(self.turns) - 1)


def from_episode(
  episode: Episode, *, source: str, tags: Iterable[str] = ()
) -> SyntheticEpisode:
  """Takes the text of an episode that a policy played.

  Raises:
    ValueError: it has no turns.
  """
  if not episode.turns:
    raise ValueError(
      f"the episode of task {episode.task.task_id!r} has no turns; expected one"
      " that was played"
    )
  read = [
    episode.prompt,
    *(turn.observations for turn in episode.turns[:-1]),
  ]
  return SyntheticEpisode(
    task=episode.task,
    source=source,
    turns=tuple(
      SyntheticTurn(observations=messages, action=turn.action)
      for messages, turn in zip(read, episode.turns, strict=True)
    ),
    success=episode.success,
    reward=episode.total_reward,
    tags=tuple(tags),
  )


def encode_synthetic(episode: SyntheticEpisode) -> dict[str, Any]:
  """Turns an episode into values of JSON.

  Raises:
    ValueError: `task.hidden` holds what JSON cannot.
  """
  task = episode.task
  return {
    "schema": SCHEMA_VERSION,
    "task": {
      "task_id": task.task_id,
      "prompt": task.prompt,
      "seed": int(task.seed),
      "level": int(task.level),
      "hidden": encode_value(task.hidden, f"task {task.task_id!r}: hidden"),
    },
    "source": episode.source,
    "turns": [
      {
        "observations": [
          {"role": message.role, "content": message.content}
          for message in turn.observations
        ],
        "action": turn.action,
        "trained": turn.trained,
      }
      for turn in episode.turns
    ],
    "success": episode.success,
    "reward": encode_float(episode.reward),
    "tags": list(episode.tags),
  }


def decode_synthetic(record: Any) -> SyntheticEpisode:
  """Reads back what `encode_synthetic` wrote.

  Raises:
    ValueError: it is of another schema version, or a field is missing or
      wrong; says which, what was found and what was expected.
  """
  found = get_field(record, "schema", int)
  if found != SCHEMA_VERSION:
    raise ValueError(
      f"schema is {found}; expected {SCHEMA_VERSION}. Write the file again with"
      " this version of arl_jax"
    )
  turns = tuple(_decode_turn(turn) for turn in get_field(record, "turns", list))
  if not turns:
    raise ValueError("turns is empty; expected one turn or more")
  return SyntheticEpisode(
    task=_decode_task(get_field(record, "task", dict)),
    source=get_field(record, "source", str),
    turns=turns,
    success=_get_bool(record, "success"),
    reward=decode_float(record.get("reward"), "reward"),
    tags=_texts(get_field(record, "tags", list)),
  )


def _decode_task(data: Mapping[str, Any]) -> Task:
  hidden: Any = decode_value(get_field(data, "hidden", dict), "task.hidden")
  return Task(
    task_id=get_field(data, "task_id", str),
    prompt=get_field(data, "prompt", str),
    seed=get_field(data, "seed", int),
    level=get_field(data, "level", int),
    hidden=hidden,
  )


def _decode_turn(data: Any) -> SyntheticTurn:
  return SyntheticTurn(
    observations=tuple(
      map(_decode_message, get_field(data, "observations", list))
    ),
    action=get_field(data, "action", str),
    trained=_get_bool(data, "trained"),
  )


def _decode_message(data: Any) -> Message:
  role = get_field(data, "role", str)
  if role not in ROLES:
    raise ValueError(
      f"a message has the role {role!r}; expected one of {', '.join(ROLES)}"
    )
  return Message(role=role, content=get_field(data, "content", str))


def _get_bool(data: Mapping[str, Any], name: str) -> bool:
  value = data.get(name)
  if not isinstance(value, bool):
    raise ValueError(f"{name} is {value!r}; expected true or false")
  return value


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
  for value in values:
    if not isinstance(value, str):
      raise ValueError(f"tags holds {value!r}; expected text")
  return tuple(values)
