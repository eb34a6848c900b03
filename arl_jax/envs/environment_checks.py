"""Checks that an environment does what training relies on."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
import contextlib
import copy
import dataclasses
import enum
import random
import string
from typing import Any

from arl_jax.envs.checked_episode import CheckError, Events, Player
from arl_jax.episode import Message, Task

# Scripts of random actions for each task, and turns of one at the least.
_NUM_SCRIPTS = 4
_MIN_TURNS = 3
_SHOWN_CHARS = 160


class CheckStatus(enum.StrEnum):
  """What a check found."""

  OK = "ok"
  FAILED = "FAILED"
  SKIPPED = "skipped"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
  """One check with what it found.

  Attributes:
    name: what was checked.
    status: whether it holds.
    detail: what was seen; for a failure what is wrong, where, and what to do.
  """

  name: str
  status: CheckStatus
  detail: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
  """What is checked.

  Attributes:
    make_environment: returns a fresh environment for one episode.
    tasks: to play; the checks hold for these alone.
    gold_actions: returns the actions that solve a task; None if unknown.
    seed: of episodes and of random actions.
    timeout_seconds: the longest that one answer may take.
    prompt_length: counts what messages are long; and in which unit.
    max_prompt_length: the most that a prompt may have, None for no limit.
  """

  make_environment: Callable[[], Any]
  tasks: Sequence[Task]
  gold_actions: Callable[[Task], Sequence[str]] | None
  seed: int = 0
  timeout_seconds: float = 30.0
  prompt_length: tuple[Callable[[Sequence[Message]], int], str]
  max_prompt_length: int | None = None

  def player(self, task: Task, *, seed: int | None = None) -> Player:
    """Returns a player of one episode in a fresh environment."""
    return Player(
      self.make_environment(),
      task,
      seed=self.seed if seed is None else seed,
      timeout_seconds=self.timeout_seconds,
    )

  async def play(
    self, task: Task, actions: Sequence[str], *, seed: int | None = None
  ) -> Events:
    """Plays one episode to its end; returns all answers."""
    async with self.player(task, seed=seed) as player:
      await player.open()
      for action in actions:
        if await player.act(action):
          break
      await player.score()
    return player.events

  def gold(self, task: Task) -> tuple[str, ...]:
    """Returns the actions that solve a task; none if they are unknown."""
    if self.gold_actions is None:
      return ()
    actions = self.gold_actions(task)
    wrong = [each for each in actions if not isinstance(each, str)]
    if isinstance(actions, str) or wrong:
      raise CheckError(
        f"gold_actions of task {task.task_id!r} are {actions!r}; expected a"
        " sequence of strings, one for each turn"
      )
    return tuple(actions)

  def scripts(self, task: Task) -> list[tuple[str, ...]]:
    """Returns random actions, the same ones every time, and doing nothing."""
    rng = random.Random(f"{self.seed}/{task.task_id}")
    num_turns = max(_MIN_TURNS, len(self.gold(task)))
    words = task.prompt.split() or ["?"]

    def act() -> str:
      letters = rng.choices(string.printable, k=rng.randint(1, 30))
      few = rng.choices(words, k=rng.randint(1, 5))
      return rng.choice(
        ["".join(letters), " ".join(few), f"<tool_call>{letters[0]}", "42"]
      )

    found = [
      tuple(act() for _ in range(num_turns)) for _ in range(_NUM_SCRIPTS)
    ]
    return [*found, ("",)]


def success_of(events: Events) -> float:
  """Returns the component `success` of an episode's score."""
  return events[-1][1]["success"]


async def check_types(subject: Subject) -> str:
  """All answers are what the protocol of environments says."""
  num_answers = 0
  for task in subject.tasks:
    for actions in [subject.gold(task), *subject.scripts(task)]:
      num_answers += len(await subject.play(task, actions))
  return f"{num_answers} answers on {len(subject.tasks)} tasks"


async def check_gold(subject: Subject) -> str:
  """The gold solution of every task scores 1."""
  if subject.gold_actions is None:
    raise CheckError(
      "there is no gold_actions(task); give one, as a method or beside the"
      " environment, that returns the actions that solve a task"
    )
  for task in subject.tasks:
    events = await subject.play(task, subject.gold(task))
    if success_of(events) != 1:
      raise CheckError(
        f"task {task.task_id!r}: the gold actions score"
        f" {success_of(events):g}; the last answer was {_show(events[-2][1])}"
      )
  return f"success is 1 on {len(subject.tasks)} tasks"


async def check_random(subject: Subject) -> str:
  """Random actions, and doing nothing, score less than the gold solution."""
  scores = [
    success_of(await subject.play(task, actions))
    for task in subject.tasks
    for actions in subject.scripts(task)
  ]
  nothing = scores[_NUM_SCRIPTS :: _NUM_SCRIPTS + 1]
  if min(nothing) == 1:
    raise CheckError("an empty action scores 1 on every task")
  mean = sum(scores) / len(scores)
  if mean >= 1:
    raise CheckError("random actions score 1 on every task")
  return f"success is {mean:.2f} on average over {len(scores)} episodes"


async def check_determinism(subject: Subject) -> str:
  """The same seed and actions get the same answers again."""
  num_episodes = 0
  for task in subject.tasks:
    for actions in [subject.gold(task), subject.scripts(task)[0]]:
      for seed in (subject.seed, subject.seed + 1):
        first = await subject.play(task, actions, seed=seed)
        second = await subject.play(task, actions, seed=seed)
        _require_same(
          first,
          second,
          f"task {task.task_id!r}, seed {seed}, played twice",
          "draw from random.Random(seed) in reset, and from no clock",
        )
        num_episodes += 1
  return f"{num_episodes} episodes were the same again"


async def check_isolation(subject: Subject) -> str:
  """Episodes that are played at once do not meet each other's state."""
  if subject.make_environment() is subject.make_environment():
    raise CheckError(
      "the same environment is given for two episodes; give a class, or a"
      " function that makes a fresh one"
    )
  first, other = subject.tasks[0], subject.tasks[-1]
  seed = subject.seed
  cases = [
    (first, subject.gold(first), seed),
    (first, subject.scripts(first)[0], seed + 1),
    (other, subject.gold(other), seed + 2),
  ]
  hidden = copy.deepcopy([first.hidden, other.hidden])
  alone = [await subject.play(task, a, seed=seed) for task, a, seed in cases]
  players = [subject.player(task, seed=seed) for task, _, seed in cases]
  async with contextlib.AsyncExitStack() as stack:
    for player in players:
      await stack.enter_async_context(player)
    await asyncio.gather(*(player.open() for player in players))
    # One action of each in turn, the last player first.
    for turn in range(max(len(actions) for _, actions, _ in cases)):
      pairs = zip(players, cases, strict=True)
      await asyncio.gather(
        *(
          player.act(actions[turn])
          for player, (_, actions, _) in reversed(list(pairs))
          if turn < len(actions) and not player.ended
        )
      )
    await asyncio.gather(*(player.score() for player in players))
  for player, events in zip(players, alone, strict=True):
    _require_same(
      events,
      player.events,
      f"task {player.task.task_id!r}, alone and beside others",
      "keep what changes in the instance, not in the class or the module",
    )
  if repr([first.hidden, other.hidden]) != repr(hidden):
    raise CheckError(
      "an episode changes task.hidden, which all members of a group share;"
      " copy what changes"
    )
  return f"{len(cases)} episodes at once were as they are alone"


async def check_timeouts(subject: Subject) -> str:
  """A step that is cancelled ends, and the episode can still be scored."""
  num_cancelled = 0
  for task in subject.tasks:
    for action in [*subject.gold(task)[:1], *subject.scripts(task)[0][:1]]:
      async with subject.player(task) as player:
        await player.open()
        num_cancelled += await player.cancel(action)
        await player.score()
  return (
    f"{num_cancelled} cancelled steps ended"
    if num_cancelled
    else "no step waits for anything, so none can be late"
  )


async def check_prompts(subject: Subject) -> str:
  """Prompts are as long as they may be."""
  measure, unit = subject.prompt_length
  longest, of_task = 0, subject.tasks[0].task_id
  for task in subject.tasks:
    async with subject.player(task) as player:
      await player.open()
    length = measure(player.events[0][1])
    if length == 0:
      raise CheckError(f"task {task.task_id!r}: the prompt is empty")
    if length > longest:
      longest, of_task = length, task.task_id
  limit = subject.max_prompt_length
  if limit is not None and longest > limit:
    raise CheckError(
      f"task {of_task!r}: the prompt has {longest} {unit}; the limit is {limit}"
    )
  return f"{longest} {unit} at most"


CHECKS: dict[str, Callable[[Subject], Awaitable[str]]] = {
  "types": check_types,
  "gold": check_gold,
  "random": check_random,
  "determinism": check_determinism,
  "isolation": check_isolation,
  "timeouts": check_timeouts,
  "prompt": check_prompts,
}
# Checks that say nothing unless another holds; all of them need the types.
NEEDS = {"isolation": "determinism"}


def _require_same(
  first: Events, second: Events, where: str, advice: str
) -> None:
  if first == second:
    return
  pairs = zip(first, second, strict=False)
  (name, one), (_, two) = next(
    (pair for pair in pairs if pair[0] != pair[1]), (first[-1], second[-1])
  )
  raise CheckError(
    f"{where}: {name} answered {_show(one)} and {_show(two)}; {advice}"
  )


def _show(value: Any) -> str:
  text = repr(value)
  left = len(text) - _SHOWN_CHARS
  return text if left <= 0 else f"{text[:_SHOWN_CHARS]}[{left} more]"
