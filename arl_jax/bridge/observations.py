"""Treats observations as actions, to see what masking them is worth.

The policy did not sample the tokens of an observation, so a policy gradient has
no business with them. Without the mask, as in the ablation of Search-R1
(https://arxiv.org/abs/2503.09516), they are pushed like the action before them.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from arl_jax.types import TrajectoryBatch


def observations_as_actions(batch: TrajectoryBatch) -> TrajectoryBatch:
  """Extends the action mask over all that follows a row's first action.

  Each token there belongs to the turn of the action before it. No engine
  reported a log-probability of it, so `behavior_logprobs` is NaN.

  Args:
    batch: NumPy arrays, one row in each, not packed.

  Returns:
    The batch; prompts and padding stay out of the mask.
  """
  last = _last_action(batch)
  added, turn_ids = _observed(batch), np.asarray(batch.turn_ids)
  return dataclasses.replace(
    batch,
    action_mask=batch.action_mask | added,
    turn_ids=np.where(
      added, np.take_along_axis(turn_ids, last, axis=1), turn_ids
    ),
    behavior_logprobs=np.where(
      added, np.float32(np.nan), batch.behavior_logprobs
    ),
  )


def carry_over_observations(
  values: npt.NDArray[np.float32], batch: TrajectoryBatch
) -> npt.NDArray[np.float32]:
  """Gives each observation token the value of the last action token before it.

  Args:
    values: float32 `[B, T]` of the action tokens, such as advantages.
    batch: as it was before `observations_as_actions`.

  Returns:
    float32 `[B, T]`.
  """
  before = np.take_along_axis(values, _last_action(batch), axis=1)
  return np.where(_observed(batch), before, values)


def _observed(batch: TrajectoryBatch) -> npt.NDArray[np.bool_]:
  """Bool `[B, T]`: tokens after the first action that nobody sampled."""
  begun = np.logical_or.accumulate(batch.action_mask, axis=1)
  return begun & ~np.asarray(batch.action_mask) & (batch.segment_ids > 0)


def _last_action(batch: TrajectoryBatch) -> npt.NDArray[np.int64]:
  """Int `[B, T]`: the column of the last action token, 0 before the first."""
  columns = np.arange(batch.action_mask.shape[1])
  return np.maximum.accumulate(np.where(batch.action_mask, columns, 0), axis=1)
