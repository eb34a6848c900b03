"""The protocol between a policy's actions and whatever answers them."""

from collections.abc import Mapping
import dataclasses
from typing import Protocol

from arl_jax.episode import Message, Task


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
  """What one action caused.

  Attributes:
    observations: messages that answer the action, shown to the policy.
    terminated: True if the task ended with this action.
    rewards: named reward components of this turn, before weights.
    num_tool_calls: attempts at a tool call, well-formed or not.
    num_tool_errors: attempts that failed: malformed, unknown, refused, late.
    state_key: names the state after this action, None if it has no name.
  """

  observations: tuple[Message, ...] = ()
  terminated: bool = False
  rewards: Mapping[str, float] = dataclasses.field(default_factory=dict)
  num_tool_calls: int = 0
  num_tool_errors: int = 0
  state_key: str | None = None


class Environment(Protocol):
  """The world of one episode: a fresh instance for each, shared by none.

  What it answers is checked, and its texts are cleaned, by whoever plays the
  episode. What it raises fails its episode alone. Its coroutines must not
  block: one that computes for long or waits without `await` holds up all other
  episodes, and no time limit can end it. `OffLoopEnvironment` runs such code
  in threads. They are cancelled when their time is up, and must let the
  `CancelledError` through.

  An environment may have a fourth, `async def close(self)`, to give back what
  it holds. It is awaited once, when the episode is over, however it ended: by
  a failed or a cancelled `reset` as well.
  """

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Stages the task.

    Args:
      task: what is asked.
      seed: for randomness of this episode that its group does not share.

    Returns:
      The messages before the first action.
    """
    ...

  async def step(self, action: str) -> StepResult:
    """Answers one action, given as text without its stop token."""
    ...

  async def score(self) -> Mapping[str, float]:
    """Named components judged at the end, whatever ended the episode.

    Returns:
      Components before weights, among them `success`, which is 0 or 1.
    """
    ...
