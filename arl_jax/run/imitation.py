"""Episodes to imitate, as batches of rows."""

from collections.abc import Iterator, Sequence
import functools
import itertools
import logging

import numpy as np

from arl_jax.config import ConfigError
from arl_jax.episode import Row
from arl_jax.run.stored_episodes import open_checked
from arl_jax.run.suite import Demonstration, Suite
from arl_jax.run.warmup import WarmupSettings
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode
from arl_jax.text.chat import ChatFormat
from arl_jax.text.tokenizer import Tokenizer

_LOGGER = logging.getLogger(__name__)
# Batches are drawn this many at a time and sorted by length within.
_SORTED_TOGETHER = 8


def prepare_batches(
  settings: WarmupSettings,
  suite: Suite,
  *,
  chat: ChatFormat,
  tokenizer: Tokenizer,
  max_length: int,
  max_observation_chars: int,
  step_timeout_seconds: float,
  seed: int,
) -> Iterator[Sequence[Row]]:
  """Makes the rows of a warm start, the first of them here and now.

  Args:
    settings: how many, and of what.
    suite: plays the experts; stored episodes have to be of its environment.
    chat: renders what was read.
    tokenizer: encodes what was written.
    max_length: longest row; longer episodes are left out.
    max_observation_chars: of one message that an episode was played with.
    step_timeout_seconds: time for one answer of the environment.
    seed: of tasks, experts and order.

  Returns:
    Batches without end.

  Raises:
    ConfigError: there is nothing to imitate, none of it fits `max_length`, or
      `settings.episodes` is not what it should be.
  """
  stored: Sequence[SyntheticEpisode] = ()
  if settings.episodes:
    stored = open_checked(
      settings.episodes,
      make_environment=suite.make_environment,
      encode=functools.partial(synthetic_row, chat=chat, tokenizer=tokenizer),
      max_observation_chars=max_observation_chars,
      step_timeout_seconds=step_timeout_seconds,
    )
  batches = _batches(
    _rows(settings, suite, stored, chat, tokenizer, seed=seed),
    settings,
    max_length=max_length,
    seed=seed,
  )
  return itertools.chain([next(batches)], batches)


def demonstration_row(
  demonstration: Demonstration,
  *,
  chat: ChatFormat,
  tokenizer: Tokenizer,
  trained: Sequence[bool] | None = None,
) -> Row:
  """Encodes a demonstration as the row that a policy would have seen.

  The expert's actions stand where sampled tokens would, each with the stop
  id that ends it, so that the policy learns to stop.

  Args:
    demonstration: what was read and written.
    chat: renders what was read.
    tokenizer: encodes what was written.
    trained: whether each action is to be imitated; all if None. The tokens of
      others keep their turn and are not in `action_mask`.
  """
  tokens: list[np.ndarray] = []
  turn_ids: list[np.ndarray] = []
  for turn, (observations, action) in enumerate(demonstration.turns):
    context = (
      chat.prompt_ids(observations)
      if turn == 0
      else chat.observation_ids(observations, finish_reason="stop")
    )
    sampled = [*tokenizer.encode(action), tokenizer.stop_ids[0]]
    tokens += [context, np.asarray(sampled, np.int32)]
    turn_ids += [
      np.full(len(context), -1, np.int32),
      np.full(len(sampled), turn, np.int32),
    ]
  turns = np.concatenate(turn_ids)
  untrained = [turn for turn, yes in enumerate(trained or ()) if not yes]
  return Row(
    tokens=np.concatenate(tokens).astype(np.int32),
    action_mask=(turns >= 0) & ~np.isin(turns, untrained),
    turn_ids=turns,
    behavior_logprobs=np.zeros(len(turns), np.float32),
    policy_versions=np.full(len(turns), -1, np.int32),
  )


def synthetic_row(
  episode: SyntheticEpisode, *, chat: ChatFormat, tokenizer: Tokenizer
) -> Row:
  """Encodes an episode that was stored, without what is not to be trained."""
  return demonstration_row(
    Demonstration(
      turns=tuple((turn.observations, turn.action) for turn in episode.turns),
      success=episode.success,
    ),
    chat=chat,
    tokenizer=tokenizer,
    trained=[turn.trained for turn in episode.turns],
  )


def _rows(
  settings: WarmupSettings,
  suite: Suite,
  stored: Sequence[SyntheticEpisode],
  chat: ChatFormat,
  tokenizer: Tokenizer,
  *,
  seed: int,
) -> Iterator[list[Row]]:
  """Yields the rows of a few updates, again and again."""
  number = settings.batch_size * _SORTED_TOGETHER
  if stored:
    order = _endless_order(len(stored), seed=seed)
    while True:
      yield [
        synthetic_row(stored[i], chat=chat, tokenizer=tokenizer)
        for i in itertools.islice(order, number)
      ]
  for draw in itertools.count():
    played = suite.demonstrate(
      number, seed * 4096 + draw, settings.careful_fraction, settings.drill
    )
    yield [
      demonstration_row(one, chat=chat, tokenizer=tokenizer) for one in played
    ]


def _endless_order(number: int, *, seed: int) -> Iterator[int]:
  """Yields all indices in random order, then in another, and so on."""
  for epoch in itertools.count():
    yield from np.random.default_rng((seed, epoch)).permutation(number).tolist()


def _batches(
  draws: Iterator[list[Row]],
  settings: WarmupSettings,
  *,
  max_length: int,
  seed: int,
) -> Iterator[Sequence[Row]]:
  """Yields batches of rows of about the same length, in random order."""
  rng = np.random.default_rng(seed)
  size = settings.batch_size
  begun = warned = False
  for drawn in draws:
    if not drawn:
      raise ConfigError(
        "the environment has nothing to imitate, and config.warmup.num_steps is"
        f" {settings.num_steps}; set it to 0, or name a file of episodes in"
        " config.warmup.episodes"
      )
    rows = sorted((r for r in drawn if len(r) <= max_length), key=len)
    if not rows and not begun:
      raise ConfigError(
        f"config.rollout.max_length is {max_length}, which none of the first"
        f" {len(drawn)} episodes to imitate fits: the shortest has"
        f" {min(map(len, drawn))} tokens, the longest {max(map(len, drawn))};"
        " expected one that most of them fit"
      )
    begun = True
    if len(rows) < len(drawn) and not warned:
      warned = True
      _LOGGER.warning(
        "%d of the first %d episodes to imitate are left out, and those like"
        " them: they are longer than config.rollout.max_length, %d tokens; the"
        " longest has %d",
        len(drawn) - len(rows),
        len(drawn),
        max_length,
        max(map(len, drawn)),
      )
    starts = range(0, len(rows), size)
    for index in rng.permutation(len(starts)):
      yield rows[starts[index] : starts[index] + size]
