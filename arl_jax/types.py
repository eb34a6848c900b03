"""Records that live on the device: arrays with a shape on every field.

Axes: B rows, T tokens, K turns. Index t always means token t: the value at
`[b, t]` belongs to `tokens[b, t]`.
"""

from typing import Any

from flax import struct
import jax

Array = jax.Array
PyTree = Any


@struct.dataclass(kw_only=True)
class TrajectoryBatch:
  """A padded batch of rows, each one token stream that the policy saw."""

  tokens: Array  # int32 [B, T]
  action_mask: Array  # bool [B, T], True where the policy sampled the token
  turn_ids: Array  # int32 [B, T], -1 outside actions
  segment_ids: Array  # int32 [B, T], 0 is padding, >0 tells packed rows apart
  positions: Array  # int32 [B, T], restart in every segment
  behavior_logprobs: Array  # float32 [B, T], as sampled, 0 outside actions
  policy_versions: Array  # int32 [B, T], -1 outside actions
  turn_rewards: Array  # float32 [B, K]
  turn_mask: Array  # bool [B, K], a prefix mask
  group_ids: Array  # int32 [B], the task within this batch
  episode_ids: Array  # int32 [B]
  agent_ids: Array  # int32 [B]
  state_ids: Array  # int32 [B, K], anchor state before the turn, -1 is none
  edge_ids: Array  # int32 [B, K], (state, action, next state) key, -1 is none
  row_mask: Array  # bool [B], False is a filler or a rejected row


@struct.dataclass(kw_only=True)
class LearnerState:
  """All that a learner step reads and writes; donated to it."""

  params: PyTree
  opt_state: PyTree
  step: Array  # int32 [], optimizer steps taken
