"""Records of the host world: tasks, turns, rows and whole episodes."""

from collections.abc import Mapping
import dataclasses
import enum
from typing import Any

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]

ROLES = ("system", "user", "assistant", "tool")


class EpisodeStatus(enum.StrEnum):
  """How an episode ended."""

  TERMINATED = "terminated"  # the environment said that the task ended
  MAX_TURNS = "max_turns"  # the turn limit ended it
  MAX_TOKENS = "max_tokens"  # no room left in the context
  TIMEOUT = "timeout"  # the episode's time limit ended it
  FAILED = "failed"  # the environment or a reward broke; see `error`
  GROUP_TIMEOUT = "group_timeout"  # still running at its group's time limit

  @property
  def truncated(self) -> bool:
    """True where a limit, not the task, ended the episode."""
    return self in (
      EpisodeStatus.MAX_TURNS,
      EpisodeStatus.MAX_TOKENS,
      EpisodeStatus.TIMEOUT,
    )

  @property
  def finished(self) -> bool:
    """True if the episode was scored, so that it can be compared."""
    return self not in (EpisodeStatus.FAILED, EpisodeStatus.GROUP_TIMEOUT)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Task:
  """What is asked, with what the environment needs to stage and judge it.

  Attributes:
    task_id: a name that is unique within its source.
    prompt: the request as the policy reads it.
    seed: fixes the hidden world of this task.
    level: difficulty, for reports by level.
    hidden: gold answers and world settings; never shown to the policy.
  """

  task_id: str
  prompt: str
  seed: int = 0
  level: int = 0
  hidden: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Message:
  """One chat message; `role` is one of `ROLES`."""

  role: str
  content: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
  """A well-formed request to run a tool."""

  name: str
  arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
  """One action of the model and the observation that it caused.

  Attributes:
    action: text of the action, decoded from the sampled ids.
    finish_reason: `stop` (a stop id was sampled) or `length` (budget spent).
    observations: the messages that answered it, empty after the last turn.
    reward: reward of this turn, the weighted sum of its components.
    num_tool_calls: attempts at a tool call, well-formed or not.
    num_tool_errors: attempts that failed: malformed, unknown, refused, late.
    state_key: names the environment's state before the action, None if unknown.
    generate_seconds: time that the policy took.
    step_seconds: time that the environment took.
  """

  action: str
  finish_reason: str
  observations: tuple[Message, ...] = ()
  reward: float = 0.0
  num_tool_calls: int = 0
  num_tool_errors: int = 0
  state_key: str | None = None
  generate_seconds: float = 0.0
  step_seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
  """One token stream that the policy saw; all arrays have length T.

  Attributes:
    tokens: int32 `[T]` ids as they were fed and sampled, never re-encoded.
    action_mask: bool `[T]` True where the policy sampled the token.
    turn_ids: int32 `[T]` turn of an action token, -1 elsewhere.
    behavior_logprobs: float32 `[T]` as sampled, 0 outside actions.
    policy_versions: int32 `[T]` weights that sampled it, -1 elsewhere.
    agent_id: which agent of a team wrote this row.
  """

  tokens: Int32Array
  action_mask: BoolArray
  turn_ids: Int32Array
  behavior_logprobs: Float32Array
  policy_versions: Int32Array
  agent_id: int = 0

  def __post_init__(self) -> None:
    lengths = {
      field: len(getattr(self, field))
      for field in (
        "tokens",
        "action_mask",
        "turn_ids",
        "behavior_logprobs",
        "policy_versions",
      )
    }
    if len(set(lengths.values())) > 1:
      raise ValueError(f"a row's arrays differ in length: {lengths}")

  def __len__(self) -> int:
    return len(self.tokens)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
  """One interaction from the first prompt to its end, with its scores.

  Attributes:
    task: what was asked.
    member: index within the group of episodes of this task.
    status: how it ended.
    rows: the token streams; one as long as the context only grew.
    turns: the interaction as text.
    prompt: the messages before the first action.
    reward_components: named parts of the reward, before weights.
    error: the cause when `status` is FAILED or GROUP_TIMEOUT, else empty.
    seconds: wall time from start to end.
  """

  task: Task
  member: int
  status: EpisodeStatus
  rows: tuple[Row, ...]
  turns: tuple[Turn, ...]
  prompt: tuple[Message, ...] = ()
  reward_components: Mapping[str, float] = dataclasses.field(
    default_factory=dict[str, float]
  )
  error: str = ""
  seconds: float = 0.0

  @property
  def total_reward(self) -> float:
    """Undiscounted sum of the turn rewards."""
    return float(sum(turn.reward for turn in self.turns))

  @property
  def success(self) -> bool:
    """True if the `success` component is 1; False if it did not finish."""
    return self.reward_components.get("success", 0.0) >= 1.0

  @property
  def num_action_tokens(self) -> int:
    """Tokens that the policy sampled, over all rows."""
    return int(sum(row.action_mask.sum() for row in self.rows))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Group:
  """The episodes of one task that share a baseline.

  Attributes:
    ordinal: position of the task in the stream of tasks; orders a batch.
    task: what was asked.
    episodes: the members, those that did not finish included.
  """

  ordinal: int
  task: Task
  episodes: tuple[Episode, ...]
