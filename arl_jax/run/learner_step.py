"""One learner step: groups of episodes become updated weights."""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arl_jax.actors import seeds
from arl_jax.bridge import batching, observations, pieces
from arl_jax.episode import Group
from arl_jax.learner import episodes, sharding
from arl_jax.learner.credit import compute_advantages
from arl_jax.learner.filters import RowFacts, accepted_rows, trained_rows
from arl_jax.learner.objective import MicroBatch, Packing
from arl_jax.learner.shaping import shape_rewards
from arl_jax.learner.update import UpdateFns, update
from arl_jax.run.parts import RunParts
from arl_jax.run.settings import Settings
from arl_jax.types import LearnerState, TrajectoryBatch


class Learned(NamedTuple):
  """What a step made of its groups.

  Attributes:
    state: of the learner after the step.
    metrics: of the step.
    advantages: float32 `[T]` of every row, group by group, episode by episode.
  """

  state: LearnerState
  metrics: dict[str, float]
  advantages: list[npt.NDArray[np.float32]]


def learn(
  parts: RunParts,
  fns: UpdateFns,
  state: LearnerState,
  reference: Any,
  groups: Sequence[Group],
  version: int,
) -> Learned:
  """Takes the updates of one step.

  Args:
    parts: of the run.
    fns: the compiled pieces of the learner.
    state: donated.
    reference: parameters of the reference policy, None where unused.
    groups: the episodes to learn from.
    version: of the weights before the step.
  """
  settings = parts.settings
  rollout, learner = settings.rollout, settings.learner
  shape = dict(
    num_rows=rollout.max_rows,
    num_turns=rollout.max_turns,
  )
  batch = batching.collate_groups(
    groups,
    **shape,
    length=rollout.max_length,
    min_group_size=min(2, rollout.group_size),
  )
  num_accepted = int(batch.row_mask.sum())
  trained = batch
  if learner.train_on_observations:
    trained = observations.observations_as_actions(batch)
  logprobs = None
  if learner.recompute_logprobs or settings.filters.reads_logprobs:
    logprobs = _score(parts, fns, state, trained)
  facts = batching.collate_facts(
    groups, version=version, seed=settings.seed, **shape
  )
  batch, advantages, live, measured = _credit(settings, batch, facts, logprobs)
  trained = _with(trained, row_mask=batch.row_mask)
  per_token = {"advantages": advantages}
  if learner.train_on_observations:
    per_token["advantages"] = observations.carry_over_observations(
      advantages, batch
    )
  if learner.recompute_logprobs and logprobs is not None:
    per_token["old_logprobs"] = logprobs
  if settings.loss.needs_ages:
    per_token["ages"] = np.float32(version - batch.policy_versions)
  minibatches = batching.split_minibatches(
    live,
    num_minibatches=learner.minibatches_per_step,
    min_rows=learner.min_minibatch_rows,
    seed=seeds.mix_seed(settings.seed, version),
  )
  all_metrics = []
  num_computed = 0
  for rows in minibatches:
    micros = []
    for piece in _pieces(settings, trained, rows, per_token):
      num_computed += piece.num_computed
      micros.append(_micro_batch(parts, piece))
    state, metrics = update(state, micros, fns=fns, ref_params=reference)
    all_metrics.append(metrics)
  metrics = _merge(all_metrics) | measured
  metrics |= {
    "num_updates": len(minibatches),
    "rows/trained": int(live.sum()),
    "rows/rejected": num_accepted - int(batch.row_mask.sum()),
    "tokens/sampled": int(batch.action_mask.sum()),
    "tokens/total": int((batch.segment_ids > 0).sum()),
    "tokens/trained": int((batch.segment_ids[live] > 0).sum()),
    "tokens/observations_trained": int(
      (trained.action_mask & ~batch.action_mask)[live].sum()
    ),
    "tokens/computed": num_computed,
  }
  rows = [row for g in groups for e in g.episodes for row in e.rows]
  credit = [advantages[b, : len(row)] for b, row in enumerate(rows)]
  return Learned(state, metrics, credit)


def _pieces(
  settings: Settings,
  batch: TrajectoryBatch,
  rows: npt.NDArray[np.int64],
  per_token: Mapping[str, npt.NDArray[np.float32]],
) -> Iterator[pieces.Piece]:
  return pieces.micro_batches(
    batch,
    rows,
    micro_batch_rows=settings.learner.micro_batch_rows,
    lengths=settings.learner.length_buckets,
    packed_lengths=settings.learner.packed_lengths,
    rows_per_pack=settings.learner.rows_per_pack,
    per_token=per_token,
  )


def _micro_batch(parts: RunParts, piece: pieces.Piece) -> MicroBatch:
  """Puts a piece on the mesh."""
  packing, scored = piece.packing, None
  if packing is None:
    scored = pieces.scored_columns(piece.batch.action_mask)
  else:
    placed = [sharding.shard_batch(parts.mesh, array) for array in packing]
    packing = Packing(*placed)
  return MicroBatch(
    sharding.shard_batch(parts.mesh, piece.batch),
    scored=scored,
    packing=packing,
    **piece.per_token,
  )


def _credit(
  settings: Settings,
  batch: TrajectoryBatch,
  facts: RowFacts,
  logprobs: Any,
) -> tuple[TrajectoryBatch, Any, Any, dict[str, float]]:
  """Shapes rewards, rejects rows, computes advantages, drops rows.

  Returns:
    The batch without the rejected rows, float32 `[B, T]` advantages, bool
    `[B]` the rows to learn from, NumPy arrays all of them, and metrics of what
    each step of this did.
  """
  filters = settings.filters
  metrics: dict[str, float] = {}

  def note(
    prefix: str, names: Sequence[Any], values: Any, per: int = 1
  ) -> None:
    for name, value in zip(names, np.asarray(values), strict=True):
      label = getattr(name, "__name__", name)
      metrics[f"{prefix}/{label}"] = float(value) / max(per, 1)

  if settings.shaping.names:
    shaped = shape_rewards(batch, config=settings.shaping)
    note("shaping", settings.shaping.names, shaped.changes)
    batch = _with(batch, turn_rewards=shaped.turn_rewards)
  if filters.before_advantages:
    found = accepted_rows(batch, facts, logprobs, config=filters)
    num_rows = int(batch.row_mask.sum())
    note("rejected", filters.before_advantages, found.turned_away, num_rows)
    batch = _with(batch, row_mask=found.rows)
  advantages = np.asarray(compute_advantages(batch, config=settings.advantage))
  found = trained_rows(batch, facts, advantages, logprobs, config=filters)
  num_rows = int(batch.row_mask.sum())
  note("dropped", filters.after_advantages, found.turned_away, num_rows)
  live = np.asarray(found.rows)
  whole = episodes.of_rows(batch, discount=settings.advantage.discount)
  counts, returns = np.asarray(whole.counts), np.asarray(whole.returns)
  signs = np.sum(np.where(batch.action_mask, advantages, 0.0), axis=1)
  metrics |= {
    "return/mean": float(returns[counts].mean()) if counts.any() else 0.0,
    "rows/negative": float(np.sum(signs < 0) / max(num_rows, 1)),
    "rows/negative_trained": float(
      np.sum(signs[live] < 0) / max(live.sum(), 1)
    ),
  }
  return batch, advantages, live, metrics


def _with(batch: TrajectoryBatch, **fields: Any) -> TrajectoryBatch:
  arrays: Any = {name: np.asarray(value) for name, value in fields.items()}
  return dataclasses.replace(batch, **arrays)


def _score(
  parts: RunParts, fns: UpdateFns, state: LearnerState, batch: TrajectoryBatch
) -> npt.NDArray[np.float32]:
  """Returns log-probs `[B, T]` under the weights before the step's updates."""
  scores = np.zeros(batch.tokens.shape, np.float32)
  for piece in _pieces(
    parts.settings, batch, np.flatnonzero(batch.row_mask), {}
  ):
    micro = _micro_batch(parts, piece)
    found = fns.logprobs(state.params, micro.batch, micro.scored, micro.packing)
    width = found.shape[1]
    scores[piece.rows, :width] = np.asarray(found)[: len(piece.rows)]
  return scores


def _merge(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
  """Joins the metrics of a step's updates."""
  merged: dict[str, float] = {}
  for name in updates[0] if updates else ():
    values = [metrics[name] for metrics in updates]
    if name.startswith("logprob_gap/") or name in ("engine_kl", "ess"):
      # Of the engine and the learner before the step, not of what it learned.
      merged[name] = values[0]
    elif name.endswith("/max"):
      merged[name] = max(values)
    elif name in ("tokens", "skipped_updates"):
      merged[name] = sum(values)
    else:
      merged[name] = sum(values) / len(values)
  return merged
