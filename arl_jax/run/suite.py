"""What a run needs of an environment: tasks, demonstrations, fresh worlds."""

from collections.abc import Callable, Mapping
import dataclasses

from arl_jax.envs.environment import Environment
from arl_jax.episode import Message, Task
from arl_jax.rewards.compose import Reward


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demonstration:
  """An expert's episode as messages: what was read, what was written.

  Attributes:
    turns: for each action, the messages since the action before, and the
      action's text.
    success: whether it solved its task.
    task: what was asked; without it, the episode cannot be stored.
  """

  turns: tuple[tuple[tuple[Message, ...], str], ...]
  success: bool
  task: Task | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
  """An environment as a run uses it.

  Attributes:
    make_environment: makes a fresh one for each episode.
    train_tasks: makes the tasks to train on; the argument is a seed.
    heldout_tasks: `(number, seed)` to tasks that training never sees.
    demonstrate: `(number, seed, careful, drill)` to expert episodes on tasks
      of neither; `careful` is the share of the best expert, `drill` whether
      hard cases are made frequent.
    split_pattern: pieces that a tokenizer trained on this text keeps apart.
    reward_fns: further components of the reward, by name, which are functions
      of a finished episode.
  """

  make_environment: Callable[[], Environment]
  train_tasks: Callable[[int], list[Task]]
  heldout_tasks: Callable[[int, int], list[Task]]
  demonstrate: Callable[[int, int, float, bool], list[Demonstration]]
  split_pattern: str
  reward_fns: Mapping[str, Reward] = dataclasses.field(
    default_factory=dict[str, Reward]
  )
