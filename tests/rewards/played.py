"""Episodes that were never played, from the numbers that rewards read."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from arl_jax.episode import (
  Episode,
  EpisodeStatus,
  Message,
  Row,
  Task,
  Turn,
)


def turn(
  action: str = "",
  seen: str | None = "seen",
  *,
  calls: int = 1,
  errors: int = 0,
  state: str | None = None,
) -> Turn:
  shown = () if seen is None else (Message(role="tool", content=seen),)
  return Turn(
    action=action,
    finish_reason="stop",
    observations=shown,
    num_tool_calls=calls,
    num_tool_errors=errors,
    state_key=state,
  )


def answer(text: str = "done") -> Turn:
  return turn(text, None, calls=0)


def episode(
  *turns: Turn,
  components: Mapping[str, float] | None = None,
  success: bool = True,
  **changes: Any,
) -> Episode:
  settings: dict[str, Any] = {
    "task": Task(task_id="t", prompt=""),
    "member": 0,
    "status": EpisodeStatus.TERMINATED,
    "rows": (),
  }
  given = {"success": float(success)} if components is None else components
  return Episode(turns=turns, reward_components=given, **settings | changes)


def sampled_by(*versions: int) -> Row:
  """A row of one prompt token and tokens of these weights."""
  mask = np.arange(len(versions) + 1) > 0
  return Row(
    tokens=np.zeros(len(mask), np.int32),
    action_mask=mask,
    turn_ids=np.where(mask, 0, -1).astype(np.int32),
    behavior_logprobs=np.zeros(len(mask), np.float32),
    policy_versions=np.array([-1, *versions], np.int32),
  )
