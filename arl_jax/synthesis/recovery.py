"""Error recovery: a realistic mistake in a good episode, and going on from it.

The environment answers the mistake as it would answer anybody's. The turn is
marked as not to be trained on; the turns after it are.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import random
from typing import NamedTuple

from arl_jax.envs.environment import StepResult
from arl_jax.episode import Task
from arl_jax.rewards.compose import Reward
from arl_jax.synthesis.replay import MakeEnvironment, Script, play, recorded
from arl_jax.synthesis.scoring import (
  NO_REWARDS,
  SUCCESS_ALONE,
  played_reward,
)
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode

SOURCE = "recovery"
TAG = "recovered"


class Moment(NamedTuple):
  """Where a mistake could be made.

  Attributes:
    task: what is asked; a mistake may use what is hidden.
    seen: text of the messages that the action answers.
    action: what the script wants to do.
  """

  task: Task
  seen: str
  action: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
  """A way to go wrong.

  Attributes:
    name: becomes a tag of the episode.
    write: `(moment, rng)` to the wrong action; None where it cannot be made.
    shows: whether the environment's answer says that something was wrong; by
      default, that a tool call failed.
  """

  name: str
  write: Callable[[Moment, random.Random], str | None]
  shows: Callable[[StepResult], bool] = lambda result: (
    result.num_tool_errors > 0
  )


async def recover(
  task: Task,
  make_script: Callable[[], Script],
  mistake: Mistake,
  *,
  make_environment: MakeEnvironment,
  reward_weights: Mapping[str, float],
  reward_fns: Mapping[str, Reward] = NO_REWARDS,
  seed: int,
) -> tuple[SyntheticEpisode | None, str]:
  """Plays a script with one mistake in it.

  The mistake is made at a random one of the turns where it can be made, the
  last turn left out. Then the script goes on with what it wanted to do.

  Args:
    task: what is asked.
    make_script: makes a script that solves it, each time anew.
    mistake: to make.
    make_environment: makes a fresh environment.
    reward_weights: weight of each reward component.
    reward_fns: further components, see `scoring.played_reward`.
    seed: fixes the turn and the mistake.

  Returns:
    The episode and `kept`, or None and why not: `script_failed` without the
    mistake, `no_place` for it, `no_answer` that tells of it, or
    `not_recovered` afterwards.
  """
  plain = await play(make_environment, task, make_script())
  if not plain.success:
    return None, "script_failed"
  rng = random.Random(f"mistake/{mistake.name}/{seed}/{task.task_id}")
  chances = []
  for place, turn in enumerate(plain.turns[:-1]):
    seen = "\n".join(message.content for message in turn.observations)
    wrong = mistake.write(Moment(task=task, seen=seen, action=turn.action), rng)
    if wrong is not None and wrong != turn.action:
      chances.append((place, wrong))
  if not chances:
    return None, "no_place"
  place, wrong = rng.choice(chances)
  played = await play(
    make_environment, task, _with_mistake(make_script(), place, wrong)
  )
  if len(played.results) <= place or not _is_answered(
    played.results[place], mistake
  ):
    return None, "no_answer"
  if not played.success:
    return None, "not_recovered"
  turns = list(played.turns)
  turns[place] = dataclasses.replace(turns[place], trained=False)
  return SyntheticEpisode(
    task=task,
    source=SOURCE,
    turns=tuple(turns),
    success=True,
    reward=played_reward(played, reward_weights, reward_fns),
    tags=(TAG, mistake.name),
  ), "kept"


async def recovery_variants(
  episodes: Sequence[SyntheticEpisode],
  mistakes: Sequence[Mistake],
  *,
  make_environment: MakeEnvironment,
  make_script: Callable[[SyntheticEpisode], Script] | None = None,
  reward_weights: Mapping[str, float] = SUCCESS_ALONE,
  reward_fns: Mapping[str, Reward] = NO_REWARDS,
  seed: int = 0,
) -> tuple[list[SyntheticEpisode], dict[str, int]]:
  """Makes a variant with a mistake of each successful episode.

  Args:
    episodes: good ones; failed ones are counted and left out.
    mistakes: taken in turn; where one cannot be made, the next is tried.
    make_environment: makes a fresh environment.
    make_script: a script that answers what it reads, for worlds that move
      while a mistake is made. By default the recorded actions are said again,
      and what fails then is dropped.
    reward_weights: weight of each reward component.
    reward_fns: further components, see `scoring.played_reward`.
    seed: fixes turns and mistakes.

  Returns:
    The variants, each a success, and counts: `given`, `failed`, `kept`, those
    of `recover` for the last mistake that was tried, and `kept/NAME` for each
    mistake.
  """
  if not mistakes:
    raise ValueError("mistakes is empty; expected one or more")
  make_script = make_script or (lambda episode: recorded(episode.actions))
  counts = {"given": 0, "failed": 0, "kept": 0}
  kept: list[SyntheticEpisode] = []
  for index, episode in enumerate(episodes):
    counts["given"] += 1
    if not episode.success:
      counts["failed"] += 1
      continue
    why = ""
    for offset in range(len(mistakes)):
      mistake = mistakes[(index + offset) % len(mistakes)]
      variant, why = await recover(
        episode.task,
        lambda episode=episode: make_script(episode),
        mistake,
        make_environment=make_environment,
        reward_weights=reward_weights,
        reward_fns=reward_fns,
        seed=seed,
      )
      if variant is not None:
        kept.append(variant)
        name = f"kept/{mistake.name}"
        counts[name] = counts.get(name, 0) + 1
        break
    counts[why] = counts.get(why, 0) + 1
  return kept, counts


def _is_answered(result: StepResult, mistake: Mistake) -> bool:
  return not result.terminated and mistake.shows(result)


def _with_mistake(script: Script, place: int, wrong: str) -> Script:
  """Puts an action before the one at `place`, whose answer it then ignores."""
  action = next(script, None)
  turn = 0
  while action is not None:
    if turn == place:
      yield wrong
    messages = yield action
    turn += 1
    try:
      action = script.send(messages)
    except StopIteration:
      return
