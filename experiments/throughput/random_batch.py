"""A micro-batch of random rows, each of which ends with an action."""

from typing import Any

import numpy as np

from arl_jax.bridge import pieces
from arl_jax.learner.objective import MicroBatch
from arl_jax.types import TrajectoryBatch


def make_micro_batch(
  shape: tuple[int, int], *, num_actions: int, vocab_size: int
) -> MicroBatch:
  """Makes whole rows without padding.

  Args:
    shape: rows and tokens.
    num_actions: tokens at the end of each row that the policy sampled.
    vocab_size: ids are below it.
  """
  rng = np.random.default_rng(0)
  num_rows, num_tokens = shape
  mask = np.zeros(shape, bool)
  mask[:, -num_actions:] = True
  batch: Any = TrajectoryBatch(
    tokens=rng.integers(0, vocab_size, shape).astype(np.int32),
    action_mask=mask,
    turn_ids=np.where(mask, 0, -1).astype(np.int32),
    segment_ids=np.ones(shape, np.int32),
    positions=np.tile(np.arange(num_tokens, dtype=np.int32), (num_rows, 1)),
    behavior_logprobs=np.where(mask, -9.0, 0.0).astype(np.float32),
    policy_versions=np.where(mask, 0, -1).astype(np.int32),
    turn_rewards=rng.random((num_rows, 1)).astype(np.float32),
    turn_mask=np.ones((num_rows, 1), bool),
    group_ids=np.zeros(num_rows, np.int32),
    episode_ids=np.arange(num_rows, dtype=np.int32),
    agent_ids=np.zeros(num_rows, np.int32),
    state_ids=np.full((num_rows, 1), -1, np.int32),
    edge_ids=np.full((num_rows, 1), -1, np.int32),
    row_mask=np.ones(num_rows, bool),
  )
  return MicroBatch(
    batch,
    advantages=rng.standard_normal(shape).astype(np.float32),
    scored=pieces.scored_columns(mask),
  )
