"""Checks that stored episodes can be imitated in an environment."""

import asyncio
from collections.abc import Callable, Sequence
import itertools
import logging

import numpy as np

from arl_jax.config import blame
from arl_jax.envs.environment import Environment
from arl_jax.envs.guarded_call import BrokenError, call_guarded
from arl_jax.episode import Message, Row
from arl_jax.run.guard import run_loop
from arl_jax.synthesis.episode_dataset import open_episodes
from arl_jax.synthesis.replay import open_environment, play, recorded
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode

_LOGGER = logging.getLogger(__name__)
# Episodes that are played again, and how far.
_NUM_REPLAYED = 8
_NUM_ACTIONS = 3
# How many results there are, and how long, may be set otherwise than it was.
_ANSWER_CHARS = 48
_SHOWN_CHARS = 60
_EXPECTED = (
  "Expected those that python -m arl_jax.synthesize makes with this"
  " config.environment"
)

Read = list[tuple[Message, ...]]


def open_checked(
  path: str,
  *,
  make_environment: Callable[[], Environment],
  encode: Callable[[SyntheticEpisode], Row],
  max_observation_chars: int,
  step_timeout_seconds: float,
) -> Sequence[SyntheticEpisode]:
  """Opens what `config.warmup.episodes` names.

  All of it is read, so that no damage comes up in the middle of a warm start.
  Some episodes are played again: the environment has to say what they read.
  One whose answers depend on more than task and actions cannot be compared.

  Args:
    path: a file of JSON lines, or a prepared dataset.
    make_environment: makes the environment that the policy will act in.
    encode: makes the row of an episode.
    max_observation_chars: what came after them in a message is not compared.
    step_timeout_seconds: time for one answer of the environment.

  Raises:
    ConfigError: it is missing, damaged or empty, it has messages that the chat
      template refuses, the environment cannot begin a task that is played
      again, or most of these go otherwise.
  """
  with blame("config.warmup.episodes", path):
    stored = open_episodes(path)
    if not len(stored):
      raise ValueError("it has no episodes; expected one or more")
    _check_roles(stored, encode)
    run_loop(
      _check_environment(
        stored,
        make_environment,
        max_chars=max_observation_chars,
        timeout_seconds=step_timeout_seconds * (_NUM_ACTIONS + 2),
      )
    )
  return stored


def _check_roles(
  stored: Sequence[SyntheticEpisode], encode: Callable[[SyntheticEpisode], Row]
) -> None:
  """Reads all episodes, and renders one of each sequence of roles."""
  known: set[tuple[tuple[str, ...], ...]] = set()
  for number, episode in enumerate(stored):
    roles = tuple(
      tuple(message.role for message in turn.observations)
      for turn in episode.turns
    )
    if roles in known:
      continue
    known.add(roles)
    try:
      encode(episode)
    except ValueError as error:
      raise ValueError(
        f"episode {number}, of task {episode.task.task_id!r}: {error}"
      ) from error


async def _check_environment(
  stored: Sequence[SyntheticEpisode],
  make_environment: Callable[[], Environment],
  *,
  max_chars: int,
  timeout_seconds: float,
) -> None:
  number = min(_NUM_REPLAYED, len(stored))
  places = np.linspace(0, len(stored) - 1, number).astype(int).tolist()
  found: list[str] = []
  for place in places:
    difference = await _difference(
      stored[place],
      make_environment,
      max_chars=max_chars,
      timeout_seconds=timeout_seconds,
    )
    if difference:
      refusal = await _refusal(
        stored[place], make_environment, timeout_seconds=timeout_seconds
      )
      if refusal:
        raise ValueError(
          "it has episodes that are not of this environment, which cannot begin"
          f" the task of episode {place}, {stored[place].task.task_id!r}:"
          f" {refusal}. {_EXPECTED}"
        )
      found.append(f"episode {place}: {difference}")
  # One that answers at once reads its prompt alone, which may be the same.
  if 2 * len(found) > number:
    raise ValueError(
      "its episodes are not of this environment, or of other settings of it:"
      f" {len(found)} of {number} go otherwise when they are played again;"
      f" {found[0]}. {_EXPECTED}"
    )
  if found:
    _LOGGER.warning(
      "%d of %d episodes of config.warmup.episodes go otherwise when they are"
      " played again; %s",
      len(found),
      number,
      found[0],
    )


async def _refusal(
  episode: SyntheticEpisode,
  make_environment: Callable[[], Environment],
  *,
  timeout_seconds: float,
) -> str:
  """Says why an environment cannot begin a task; empty if it can."""
  try:
    async with open_environment(make_environment) as environment:
      await call_guarded(
        lambda: environment.reset(episode.task, seed=0),
        timeout_seconds=timeout_seconds,
      )
  except BrokenError as broken:
    return f"environment.reset raised {broken}"
  except Exception:
    return ""  # late, or fails to close: the difference says so
  return ""


async def _difference(
  episode: SyntheticEpisode,
  make_environment: Callable[[], Environment],
  *,
  max_chars: int,
  timeout_seconds: float,
) -> str:
  """Says what an environment answers otherwise; empty if it does not."""
  actions = episode.actions[:_NUM_ACTIONS]
  both: list[Read] = []
  for seed in range(2):
    try:
      async with asyncio.timeout(timeout_seconds):
        played = await play(
          make_environment, episode.task, recorded(actions), seed=seed
        )
    except Exception as error:
      return f"the environment raised {type(error).__name__}: {error}"
    both.append([turn.observations for turn in played.turns])
  stored: Read = [turn.observations for turn in episode.turns[:_NUM_ACTIONS]]
  ours, others, stored = (_heads(one, max_chars) for one in (*both, stored))
  if ours != others:
    return ""
  for turn, (here, there) in enumerate(itertools.zip_longest(ours, stored)):
    if here != there:
      return f"turn {turn} reads {_show(there)}, and here {_show(here)}"
  return ""


def _heads(read: Read, max_chars: int) -> Read:
  """Cuts messages to what can be compared: of the prompt, all of it."""
  lengths = itertools.chain(
    [max_chars], itertools.repeat(min(_ANSWER_CHARS, max_chars))
  )
  return [
    tuple(Message(role=m.role, content=m.content[:length]) for m in messages)
    for messages, length in zip(read, lengths, strict=False)
  ]


def _show(messages: tuple[Message, ...] | None) -> str:
  if messages is None:
    return "nothing, as the task has ended"
  return " and ".join(
    f"{m.role} {m.content[:_SHOWN_CHARS]!r}" for m in messages
  )
