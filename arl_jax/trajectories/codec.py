"""One episode as a JSON record, exact in both directions."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arl_jax.episode import (
  Episode,
  EpisodeStatus,
  Float32Array,
  Message,
  Row,
  Task,
  Turn,
)
from arl_jax.trajectories.json_values import (
  decode_float,
  decode_value,
  encode_float,
  encode_value,
)

SCHEMA_VERSION = 1

_ROW_ARRAYS = {
  "tokens": "int32",
  "action_mask": "bool",
  "turn_ids": "int32",
  "behavior_logprobs": "float32",
  "policy_versions": "int32",
}
_NAMES = {int: "an integer", str: "text", list: "a list", dict: "an object"}


def encode_episode(
  episode: Episode,
  *,
  ordinal: int,
  step: int,
  advantages: Sequence[Float32Array | None] | None = None,
) -> dict[str, Any]:
  """Turns an episode into values of JSON.

  An array becomes an object of its dtype, its shape and its little-endian
  bytes as base64, so it is exact, NaN and infinity included.

  Args:
    episode: what to write.
    ordinal: position of its task in the stream of tasks.
    step: the learner step that it belongs to.
    advantages: float32 `[T]` for each of its rows, None where unknown.

  Returns:
    The record. `json.dumps` writes it as ASCII, lone surrogates included; two
    surrogates that make up a pair come back as the character they stand for.

  Raises:
    ValueError: `task.hidden` holds what JSON cannot, an array has values that
      its dtype cannot hold, or the advantages do not fit the rows.
  """
  rows = episode.rows
  if advantages is None:
    advantages = (None,) * len(rows)
  if len(advantages) != len(rows):
    raise ValueError(
      f"advantages has {len(advantages)} arrays for an episode of"
      f" {len(rows)} rows; expected one per row"
    )
  return {
    "schema": SCHEMA_VERSION,
    "step": int(step),
    "ordinal": int(ordinal),
    "member": int(episode.member),
    "status": episode.status.value,
    "error": episode.error,
    "seconds": encode_float(episode.seconds),
    "task": _encode_task(episode.task),
    "prompt": [_encode_message(message) for message in episode.prompt],
    "turns": [_encode_turn(turn) for turn in episode.turns],
    "reward_components": {
      name: encode_float(value)
      for name, value in episode.reward_components.items()
    },
    "rows": [
      _encode_row(row, advantage)
      for row, advantage in zip(rows, advantages, strict=True)
    ],
  }


def decode_episode(record: Any) -> Episode:
  """Reads back what `encode_episode` wrote.

  Args:
    record: as `json.loads` returns it.

  Returns:
    The episode; its arrays own their memory.

  Raises:
    ValueError: the record is of another schema version, or a field is missing
      or wrong; says which, what was found and what was expected.
  """
  check_schema(record)
  get_field(record, "ordinal", int)
  get_field(record, "step", int)
  status = get_field(record, "status", str)
  if status not in list(EpisodeStatus):
    raise ValueError(
      f"status is {status!r}; expected one of {', '.join(EpisodeStatus)}"
    )
  components = get_field(record, "reward_components", dict)
  return Episode(
    task=_decode_task(get_field(record, "task", dict)),
    member=get_field(record, "member", int),
    status=EpisodeStatus(status),
    error=get_field(record, "error", str),
    seconds=_float(record, "seconds"),
    prompt=_decode_messages(record, "prompt"),
    turns=tuple(
      _decode_turn(turn) for turn in get_field(record, "turns", list)
    ),
    reward_components={
      name: decode_float(value, f"reward_components.{name}")
      for name, value in components.items()
    },
    rows=tuple(_decode_row(row) for row in get_field(record, "rows", list)),
  )


def decode_advantages(record: Any) -> tuple[Float32Array | None, ...]:
  """Reads the advantages, float32 `[T]` or None, of a record's rows.

  Raises:
    ValueError: as `decode_episode` does.
  """
  check_schema(record)
  found = []
  for row in get_field(record, "rows", list):
    if _require(row, dict, "rows").get("advantages") is None:
      found.append(None)
      continue
    advantages = _decode_array(row, "advantages", "float32")
    shape = get_field(get_field(row, "tokens", dict), "shape", list)
    if list(advantages.shape) != shape:
      raise ValueError(
        f"advantages has the shape {list(advantages.shape)}; expected that of"
        f" its row, {shape}"
      )
    found.append(advantages)
  return tuple(found)


def check_schema(record: Any) -> None:
  """Refuses a record that this version cannot read.

  Raises:
    ValueError: says the version that was found, and what to do.
  """
  found = _require(record, dict, "the record").get("schema")
  if type(found) is not int or found != SCHEMA_VERSION:
    raise ValueError(
      f"schema is {found!r}; expected {SCHEMA_VERSION}. Read it with the"
      " version of arl_jax that wrote it, or delete the file"
    )


def get_field(data: Any, name: str, kind: type) -> Any:
  """Returns a field of a record.

  Args:
    data: what should be an object.
    name: of the field.
    kind: the type that it must have: int, str, list or dict.

  Raises:
    ValueError: it is missing or of another type.
  """
  if name not in _require(data, dict, f"what should hold {name}"):
    raise ValueError(f"{name} is missing; expected {_NAMES[kind]}")
  return _require(data[name], kind, name)


def _encode_task(task: Task) -> dict[str, Any]:
  return {
    "task_id": task.task_id,
    "prompt": task.prompt,
    "seed": int(task.seed),
    "level": int(task.level),
    "hidden": encode_value(task.hidden, f"task {task.task_id!r}: hidden"),
  }


def _decode_task(data: Mapping[str, Any]) -> Task:
  hidden = decode_value(get_field(data, "hidden", dict), "task.hidden")
  return Task(
    task_id=get_field(data, "task_id", str),
    prompt=get_field(data, "prompt", str),
    seed=get_field(data, "seed", int),
    level=get_field(data, "level", int),
    hidden=_require(hidden, dict, "task.hidden"),
  )


def _encode_message(message: Message) -> dict[str, str]:
  return {"role": message.role, "content": message.content}


def _decode_messages(data: Mapping[str, Any], name: str) -> tuple[Message, ...]:
  return tuple(
    Message(
      role=get_field(item, "role", str), content=get_field(item, "content", str)
    )
    for item in get_field(data, name, list)
  )


def _encode_turn(turn: Turn) -> dict[str, Any]:
  return {
    "action": turn.action,
    "finish_reason": turn.finish_reason,
    "observations": [_encode_message(item) for item in turn.observations],
    "reward": encode_float(turn.reward),
    "num_tool_calls": int(turn.num_tool_calls),
    "num_tool_errors": int(turn.num_tool_errors),
    "state_key": turn.state_key,
    "generate_seconds": encode_float(turn.generate_seconds),
    "step_seconds": encode_float(turn.step_seconds),
  }


def _decode_turn(data: Any) -> Turn:
  state_key = _require(data, dict, "turns").get("state_key")
  return Turn(
    action=get_field(data, "action", str),
    finish_reason=get_field(data, "finish_reason", str),
    observations=_decode_messages(data, "observations"),
    reward=_float(data, "reward"),
    num_tool_calls=get_field(data, "num_tool_calls", int),
    num_tool_errors=get_field(data, "num_tool_errors", int),
    state_key=None
    if state_key is None
    else _require(state_key, str, "state_key"),
    generate_seconds=_float(data, "generate_seconds"),
    step_seconds=_float(data, "step_seconds"),
  )


def _encode_row(row: Row, advantages: Float32Array | None) -> dict[str, Any]:
  if advantages is not None and np.shape(advantages) != (len(row),):
    raise ValueError(
      f"advantages of a row have the shape {np.shape(advantages)}; expected"
      f" ({len(row)},), one per token"
    )
  data: dict[str, Any] = {"agent_id": int(row.agent_id)}
  for name, dtype in _ROW_ARRAYS.items():
    data[name] = _encode_array(getattr(row, name), dtype, name)
  data["advantages"] = None
  if advantages is not None:
    data["advantages"] = _encode_array(advantages, "float32", "advantages")
  return data


def _decode_row(data: Any) -> Row:
  arrays = {
    name: _decode_array(data, name, dtype)
    for name, dtype in _ROW_ARRAYS.items()
  }
  return Row(agent_id=get_field(data, "agent_id", int), **arrays)


def _encode_array(values: Any, dtype: str, name: str) -> dict[str, Any]:
  found = np.asarray(values)
  array = found.astype(np.dtype(dtype).newbyteorder("<"))
  if found.dtype != np.dtype(dtype) and not np.array_equal(array, found):
    raise ValueError(
      f"{name} of a row is {found.dtype} with values that {dtype} cannot hold;"
      f" expected {dtype}"
    )
  return {
    "dtype": dtype,
    "shape": list(array.shape),
    "base64": base64.b64encode(array.tobytes()).decode("ascii"),
  }


def _decode_array(data: Any, name: str, dtype: str) -> np.ndarray:
  record = get_field(data, name, dict)
  if record.get("dtype") != dtype:
    raise ValueError(
      f"{name}.dtype is {record.get('dtype')!r}; expected {dtype}"
    )
  shape = get_field(record, "shape", list)
  try:
    content = base64.b64decode(get_field(record, "base64", str), validate=True)
  except binascii.Error as error:
    raise ValueError(f"{name} is not base64 ({error})") from None
  # A byte that is neither 0 nor 1 would be no bool.
  stored = np.dtype("u1" if dtype == "bool" else dtype).newbyteorder("<")
  fits = len(shape) == 1 and shape[0] * stored.itemsize == len(content)
  if not fits:
    raise ValueError(
      f"{name} has {len(content)} bytes and the shape {shape}; expected"
      f" {stored.itemsize} bytes for each of [T] values"
    )
  # A copy: what frombuffer returns keeps the text's bytes, and is read-only.
  return np.frombuffer(content, stored).astype(dtype)


def _float(data: Mapping[str, Any], name: str) -> float:
  if name not in data:
    raise ValueError(f"{name} is missing; expected a number")
  return decode_float(data[name], name)


def _require(value: Any, kind: type, name: str) -> Any:
  if type(value) is not kind:
    raise ValueError(
      f"{name} is a {type(value).__name__}; expected {_NAMES[kind]}"
    )
  return value
