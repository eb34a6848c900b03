"""The warm start: supervised learning on episodes to imitate."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
from typing import Any

from jax.sharding import Mesh
import numpy as np

from arl_jax.bridge import batching, pieces
from arl_jax.episode import Float32Array, Row
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
from arl_jax.learner.surrogates import LossConfig, Terms
from arl_jax.ops import losses
from arl_jax.types import Array, TrajectoryBatch

# There is no other policy, so what a loss measures of ratios means nothing.
_METRICS = (
  "loss",
  "tokens",
  "entropy",
  "grad_norm",
  "learning_rate",
  "skipped_updates",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupSettings:
  """How the policy learns the form of an episode before any reward.

  Attributes:
    num_steps: updates; 0 skips the warm start.
    batch_size: episodes per update, those of experts always fresh.
    episodes: a file of JSON lines or a prepared dataset to imitate, see
      docs/synthesis.md; it is gone over again and again, in a new order each
      time. Empty is the experts of the environment.
    observation_weight: of a token that was read, where one of an action has
      1. At 0 the loss is on actions alone.
    micro_batch_rows: rows per gradient call; 0 is the whole batch.
    careful_fraction: share of episodes by the expert that always succeeds.
      Without effect on `episodes`, as is `drill`.
    drill: whether hard cases are made frequent.
    length_buckets: padded lengths.
    logprob_chunk: positions whose logits exist at the same time.
    optimizer: of these updates.
  """

  num_steps: int = 300
  batch_size: int = 24
  micro_batch_rows: int = 0
  episodes: str = ""
  observation_weight: float = 0.0
  careful_fraction: float = 0.25
  drill: bool = True
  length_buckets: tuple[int, ...] = (96, 160, 208)
  logprob_chunk: int | None = None
  optimizer: OptimizerConfig = OptimizerConfig()


def run_warmup(
  params: Any,
  batches: Iterator[Sequence[Row]],
  *,
  settings: WarmupSettings,
  model: ModelFns,
  shardings: Any,
  mesh: Mesh,
  max_length: int,
  on_step: Callable[[int, dict[str, float]], None],
  stop: Callable[[], bool] = lambda: False,
) -> Any:
  """Returns parameters after supervised learning on rows to imitate.

  Args:
    params: initial weights, not donated.
    batches: of rows to imitate, one for each update or more.
    settings: how long and how.
    model: the architecture as functions.
    shardings: of the parameters.
    mesh: the devices.
    max_length: of the longest row.
    on_step: called with every step's number and metrics.
    stop: True to end after the current step.
  """
  optimizer = make_optimizer(settings.optimizer)
  state = state_lib.init_state(params, optimizer, shardings=shardings)
  fns = update_lib.make_update_fns(
    model,
    LossConfig(
      surrogate=_weighted_cross_entropy
      if settings.observation_weight
      else "cross_entropy",
      logprob_chunk=settings.logprob_chunk,
    ),
    optimizer,
    shardings=state_lib.state_shardings(
      state.params, optimizer, shardings=shardings
    ),
    schedule=make_schedule(settings.optimizer),
  )
  for step in range(settings.num_steps):
    parts = list(_micro_batches(next(batches), settings, max_length))
    micros = [
      MicroBatch(
        sharding.shard_batch(mesh, b),
        advantages=None if w is None else sharding.shard_batch(mesh, w),
        scored=pieces.scored_columns(b.action_mask),
      )
      for b, w in weigh_tokens(parts, settings.observation_weight)
    ]
    state, metrics = update_lib.update(state, micros, fns=fns)
    on_step(step, {k: metrics[k] for k in _METRICS if k in metrics})
    if stop():
      break
  return state.params


def weigh_tokens(
  batches: Sequence[TrajectoryBatch], observation_weight: float
) -> list[tuple[TrajectoryBatch, Float32Array | None]]:
  """Puts what was read into the loss of an update, with a weight.

  Args:
    batches: NumPy arrays of all that the update learns from.
    observation_weight: of a token that was read; one of an action has 1, and
      one that is not trained or is the first of its row has 0.

  Returns:
    The batches, whose `action_mask` now has both, with float32 `[B, T]` weights
    of mean 1 over the update. For a weight of 0 they are as given, with None.
  """
  if not observation_weight:
    return [(batch, None) for batch in batches]
  weighed = []
  for batch in batches:
    acted = np.asarray(batch.action_mask)
    read = (np.asarray(batch.turn_ids) < 0) & (
      np.asarray(batch.segment_ids) > 0
    )
    read[:, 0] = False  # nothing comes before it that could predict it
    weights = acted + observation_weight * read.astype(np.float32)
    weighed.append(
      (dataclasses.replace(batch, action_mask=acted | read), weights)
    )
  count = sum(batch.action_mask.sum() for batch, _ in weighed)
  scale = count / max(sum(weights.sum() for _, weights in weighed), 1e-9)
  return [
    (batch, (weights * scale).astype(np.float32)) for batch, weights in weighed
  ]


def _weighted_cross_entropy(terms: Terms, config: LossConfig) -> Array:
  """Advantages are the weights: `weigh_tokens` has put them there."""
  del config
  return terms.advantages * losses.masked_cross_entropy(
    terms.logprobs, terms.mask
  )


def _micro_batches(
  rows: Sequence[Row], settings: WarmupSettings, max_length: int
) -> Iterator[TrajectoryBatch]:
  size = settings.micro_batch_rows or settings.batch_size
  for start in range(0, len(rows), size):
    part = rows[start : start + size]
    longest = max(len(row) for row in part)
    length = min(
      (n for n in settings.length_buckets if longest <= n < max_length),
      default=max_length,
    )
    yield batching.pad_rows(part, num_rows=size, length=length, num_turns=1)
