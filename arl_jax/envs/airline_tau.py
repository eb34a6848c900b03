"""The tasks of tau2-bench's airline, with their split."""

from collections.abc import Iterator, Mapping
import re
from typing import Any, Literal

from arl_jax.envs.airline_data import AirlineData
from arl_jax.envs.airline_gold import Gold
from arl_jax.envs.airline_user import Script, in_first_person
from arl_jax.episode import Task, ToolCall

User = Literal["prompt", "scripted"]
USERS: tuple[User, ...] = ("prompt", "scripted")
_USER_ID = re.compile(r"\b[a-z]+_[a-z]+_\d+\b")


def tau_tasks(
  data: AirlineData, *, split: str, user: User = "prompt"
) -> list[Task]:
  """Returns the tasks of a split, in the order of the file.

  Args:
    data: of the package.
    split: `train` (30 tasks), `test` (20) or `base` (both).
    user: `prompt` puts all that the customer knows and wants into the prompt;
      `scripted` has a `ScriptedUser` tell it when asked.

  Raises:
    ValueError: there is no such split or user.
  """
  if split not in data.splits:
    raise ValueError(f"split is {split!r}; expected one of {list(data.splits)}")
  if user not in USERS:
    raise ValueError(f"user is {user!r}; expected one of {USERS}")
  ids = set(data.splits[split])
  return [_task(entry, user) for entry in data.tasks if entry["id"] in ids]


def _task(entry: Mapping[str, Any], user: User) -> Task:
  told: Mapping[str, str | None] = entry["user_scenario"]["instructions"]
  criteria = entry["evaluation_criteria"]
  known = told["known_info"] or ""
  script = _script(told) if user == "scripted" else None
  gold = Gold(
    user_id=_USER_ID.findall(known)[0],
    calls=tuple(
      ToolCall(name=action["name"], arguments=action["arguments"])
      for action in criteria["actions"]
    ),
    communicate=tuple(criteria["communicate_info"]),
    script=script,
  )
  reason = told["reason_for_call"] or ""
  opening = in_first_person(reason) if script else _everything(told)
  return Task(
    task_id=f"tau-{user}-{entry['id']}",
    prompt=opening,
    hidden=gold.as_hidden(),
  )


def _everything(told: Mapping[str, str | None]) -> str:
  parts = ["A customer calls. In what follows, you is the customer."]
  for label, key in (
    ("What they know", "known_info"),
    ("What they do not know", "unknown_info"),
    ("Why they call", "reason_for_call"),
    ("How they go on", "task_instructions"),
  ):
    if told[key]:
      parts.append(f"{label}:\n{told[key]}")
  return "\n\n".join(parts)


def _script(told: Mapping[str, str | None]) -> Script:
  facts = [*_sentences(told["known_info"]), *_sentences(told["unknown_info"])]
  wishes = re.split(r"\n\s*\n", told["task_instructions"] or "")
  return Script(
    facts=tuple(map(in_first_person, facts)),
    wishes=tuple(in_first_person(each) for each in wishes if each.strip()),
  )


def _sentences(text: str | None) -> Iterator[str]:
  for line in re.split(r"\n|(?<=[.!?])\s+", text or ""):
    if line.strip():
      yield line.strip()
