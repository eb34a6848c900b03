"""Plays scripts in a fresh environment, which judges what came of it."""

from collections.abc import AsyncIterator, Callable, Generator, Iterable
import contextlib
import dataclasses

from arl_jax.envs.environment import Environment, StepResult
from arl_jax.episode import Message, Task
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode, SyntheticTurn

MakeEnvironment = Callable[[], Environment]
# Yields actions, and is sent the messages that answer each.
Script = Generator[str, tuple[Message, ...], None]
_MAX_TURNS = 64


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Played:
  """What came of a script.

  Attributes:
    task: what was asked.
    turns: as far as it was played.
    terminated: whether the environment said that the task ended.
    scores: the components judged at the end.
    results: the environment's answer to each action.
  """

  task: Task
  turns: tuple[SyntheticTurn, ...]
  terminated: bool
  scores: dict[str, float]
  results: tuple[StepResult, ...] = ()

  @property
  def success(self) -> bool:
    """True if the task was ended and solved."""
    return self.terminated and self.scores.get("success", 0.0) >= 1.0


def recorded(actions: Iterable[str]) -> Script:
  """A script that says the same whatever it reads."""
  # `yield from` would hand what is sent on to a list.
  for action in actions:  # noqa: UP028
    yield action


async def play(
  make_environment: MakeEnvironment,
  task: Task,
  script: Script,
  *,
  seed: int = 0,
) -> Played:
  """Plays a script to its end, or to the end of the task.

  Args:
    make_environment: makes the environment of this episode alone.
    task: what is asked.
    script: yields the actions.
    seed: handed to the environment.

  Raises:
    ValueError: the script wants more than 64 turns.
    Exception: whatever the environment or the script raises.
  """
  turns: list[SyntheticTurn] = []
  results: list[StepResult] = []
  async with open_environment(make_environment) as environment:
    messages = await environment.reset(task, seed=seed)
    action = next(script, None)
    while action is not None:
      if len(turns) == _MAX_TURNS:
        raise ValueError(
          f"the script of task {task.task_id!r} wants more than {_MAX_TURNS}"
          " turns; expected it to end"
        )
      turns.append(SyntheticTurn(observations=messages, action=action))
      result = await environment.step(action)
      results.append(result)
      if result.terminated:
        break
      messages = result.observations
      try:
        action = script.send(messages)
      except StopIteration:
        action = None
    scores = dict(await environment.score())
  script.close()
  return Played(
    task=task,
    turns=tuple(turns),
    terminated=bool(results) and results[-1].terminated,
    scores=scores,
    results=tuple(results),
  )


async def verify(
  episode: SyntheticEpisode, make_environment: MakeEnvironment
) -> bool:
  """Whether a replay reads the same messages and scores a success."""
  played = await play(make_environment, episode.task, recorded(episode.actions))
  read = [turn.observations for turn in played.turns]
  return played.success and read == [t.observations for t in episode.turns]


@contextlib.asynccontextmanager
async def open_environment(
  make_environment: MakeEnvironment,
) -> AsyncIterator[Environment]:
  """Makes an environment, and closes it if it can be closed."""
  environment = make_environment()
  try:
    yield environment
  finally:
    close = getattr(environment, "close", None)
    if close is not None:
      await close()
