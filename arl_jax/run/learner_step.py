"""One learner step: groups of episodes become updated weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from arl_jax.actors import seeds
from arl_jax.bridge import batching
from arl_jax.episode import Group
from arl_jax.learner import sharding
from arl_jax.learner.credit import compute_advantages
from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.update import UpdateFns, update
from arl_jax.run.parts import RunParts
from arl_jax.types import LearnerState


def learn(
  parts: RunParts,
  fns: UpdateFns,
  state: LearnerState,
  reference: Any,
  groups: Sequence[Group],
  version: int,
) -> tuple[LearnerState, dict[str, float]]:
  """Takes the updates of one step.

  Args:
    parts: of the run.
    fns: the compiled pieces of the learner.
    state: donated.
    reference: parameters of the reference policy, None where unused.
    groups: the episodes to learn from.
    version: of the weights before the step.

  Returns:
    The state and the step's metrics.
  """
  rollout, learner = parts.settings.rollout, parts.settings.learner
  batch = batching.collate_groups(
    groups,
    num_rows=rollout.tasks_per_step * rollout.group_size,
    length=rollout.max_length,
    num_turns=rollout.max_turns,
  )
  advantages = np.asarray(
    compute_advantages(batch, config=parts.settings.advantage)
  )
  live = np.asarray(batch.row_mask)
  if learner.drop_zero_variance:
    live = live & (advantages != 0).any(axis=1)
  minibatches = batching.split_minibatches(
    live,
    num_minibatches=learner.minibatches_per_step,
    min_rows=learner.min_minibatch_rows,
    seed=seeds.mix_seed(parts.settings.seed, version),
  )
  all_metrics = []
  for rows in minibatches:
    micros = [
      MicroBatch(
        jax.device_put(micro, sharding.batch_shardings(parts.mesh, micro)),
        advantage,
        scored=batching.scored_columns(micro.action_mask),
      )
      for micro, advantage in batching.micro_batches(
        batch,
        advantages,
        rows,
        micro_batch_rows=learner.micro_batch_rows,
        lengths=learner.length_buckets,
      )
    ]
    state, metrics = update(state, micros, fns=fns, ref_params=reference)
    all_metrics.append(metrics)
  return state, _merge(all_metrics) | {
    "num_updates": len(minibatches),
    "rows/trained": int(live.sum()),
    "tokens/sampled": int(batch.action_mask.sum()),
    "tokens/total": int((batch.segment_ids > 0).sum()),
  }


def _merge(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
  """Joins the metrics of a step's updates."""
  merged: dict[str, float] = {}
  for name in updates[0] if updates else ():
    values = [metrics[name] for metrics in updates]
    if name.startswith("logprob_gap/"):
      # Before the first update both sides hold the same weights.
      merged[name] = values[0]
    elif name.endswith("/max"):
      merged[name] = max(values)
    elif name in ("tokens", "skipped_updates"):
      merged[name] = sum(values)
    else:
      merged[name] = sum(values) / len(values)
  return merged
