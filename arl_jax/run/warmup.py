"""The warm start: supervised learning on the actions of scripted experts."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
from typing import Any

import jax
from jax.sharding import Mesh
import numpy as np

from arl_jax.bridge import batching, pieces
from arl_jax.episode import Row
from arl_jax.learner import sharding
from arl_jax.learner import state as state_lib
from arl_jax.learner import update as update_lib
from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.optimizer import (
  OptimizerConfig,
  make_optimizer,
  make_schedule,
)
from arl_jax.learner.state import ModelFns
from arl_jax.learner.surrogates import LossConfig
from arl_jax.run.suite import Demonstration, Suite
from arl_jax.text.chat import ChatFormat
from arl_jax.text.tokenizer import Tokenizer

# Batches are drawn this many at a time and sorted by length within.
_SORTED_TOGETHER = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupSettings:
  """How the policy learns the form of an episode before any reward.

  Attributes:
    num_steps: updates; 0 skips the warm start.
    batch_size: fresh expert episodes per update.
    micro_batch_rows: rows per gradient call; 0 is the whole batch.
    careful_fraction: share of episodes by the expert that always succeeds.
    drill: whether hard cases are made frequent.
    length_buckets: padded lengths.
    logprob_chunk: positions whose logits exist at the same time.
    optimizer: of these updates.
  """

  num_steps: int = 300
  batch_size: int = 24
  micro_batch_rows: int = 0
  careful_fraction: float = 0.25
  drill: bool = True
  length_buckets: tuple[int, ...] = (96, 160, 208)
  logprob_chunk: int | None = None
  optimizer: OptimizerConfig = OptimizerConfig()


def demonstration_row(
  demonstration: Demonstration, *, chat: ChatFormat, tokenizer: Tokenizer
) -> Row:
  """Encodes a demonstration as the row that a policy would have seen.

  The expert's actions stand where sampled tokens would, each with the stop
  id that ends it, so that the policy learns to stop.
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
  return Row(
    tokens=np.concatenate(tokens).astype(np.int32),
    action_mask=turns >= 0,
    turn_ids=turns,
    behavior_logprobs=np.zeros(len(turns), np.float32),
    policy_versions=np.full(len(turns), -1, np.int32),
  )


def run_warmup(
  params: Any,
  *,
  settings: WarmupSettings,
  suite: Suite,
  chat: ChatFormat,
  tokenizer: Tokenizer,
  model: ModelFns,
  shardings: Any,
  mesh: Mesh,
  max_length: int,
  seed: int,
  on_step: Callable[[int, dict[str, float]], None],
  stop: Callable[[], bool] = lambda: False,
) -> Any:
  """Returns parameters after supervised learning on expert episodes.

  Args:
    params: initial weights, not donated.
    settings: how long and on what.
    suite: plays the experts.
    chat: renders their episodes.
    tokenizer: encodes their actions.
    model: the architecture as functions.
    shardings: of the parameters.
    mesh: the devices.
    max_length: longest row; longer demonstrations are left out.
    seed: of tasks and experts.
    on_step: called with every step's number and metrics.
    stop: True to end after the current step.
  """
  optimizer = make_optimizer(settings.optimizer)
  state = state_lib.init_state(params, optimizer, shardings=shardings)
  fns = update_lib.make_update_fns(
    model,
    LossConfig(surrogate="cross_entropy", logprob_chunk=settings.logprob_chunk),
    optimizer,
    shardings=state_lib.state_shardings(
      state.params, optimizer, shardings=shardings
    ),
    schedule=make_schedule(settings.optimizer),
  )
  make_row = functools.partial(
    demonstration_row, chat=chat, tokenizer=tokenizer
  )
  batches = _batches(
    settings, suite, make_row, max_length=max_length, seed=seed
  )
  for step in range(settings.num_steps):
    micros = [
      MicroBatch(
        jax.device_put(b, sharding.batch_shardings(mesh, b)),
        scored=pieces.scored_columns(b.action_mask),
      )
      for b in _micro_batches(next(batches), settings, max_length)
    ]
    state, metrics = update_lib.update(state, micros, fns=fns)
    on_step(step, metrics)
    if stop():
      break
  return state.params


def _batches(
  settings: WarmupSettings,
  suite: Suite,
  make_row: Callable[[Demonstration], Row],
  *,
  max_length: int,
  seed: int,
) -> Iterator[Sequence[Row]]:
  """Yields batches of rows of about the same length, in random order."""
  number = settings.batch_size * _SORTED_TOGETHER
  rng = np.random.default_rng(seed)
  draw = 0
  while True:
    played = suite.demonstrate(
      number, seed * 4096 + draw, settings.careful_fraction, settings.drill
    )
    draw += 1
    rows = [make_row(one) for one in played]
    rows = sorted((r for r in rows if len(r) <= max_length), key=len)
    if not rows:
      raise ValueError(
        f"no expert episode fits max_length, {max_length}; raise it"
      )
    size = settings.batch_size
    starts = range(0, len(rows), size)
    for index in rng.permutation(len(starts)):
      yield rows[starts[index] : starts[index] + size]


def _micro_batches(
  rows: Sequence[Row], settings: WarmupSettings, max_length: int
):
  size = settings.micro_batch_rows or settings.batch_size
  for start in range(0, len(rows), size):
    part = rows[start : start + size]
    longest = max(len(row) for row in part)
    length = min(
      (n for n in settings.length_buckets if longest <= n < max_length),
      default=max_length,
    )
    yield batching.pad_rows(part, num_rows=size, length=length, num_turns=1)
