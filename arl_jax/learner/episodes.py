"""The episodes whose parts the rows of a batch are."""

from typing import NamedTuple

import jax.numpy as jnp

from arl_jax.ops import returns
from arl_jax.types import Array, TrajectoryBatch


class Episodes(NamedTuple):
  """What every row knows about its episode; agents of a team are apart.

  Attributes:
    returns: float32 `[B]` sum of the returns of the episode's rows.
    lengths: float32 `[B]` action tokens in all of them.
    leader: int32 `[B]` the first live row of the episode.
    counts: bool `[B]` True on leaders, so that an episode counts once.
    live: bool `[B]` rows with an action token that were not rejected.
    turns_before: int32 `[B]` turns of the episode in earlier rows.
    turns_after: int32 `[B]` turns of the episode in later rows.
  """

  returns: Array
  lengths: Array
  leader: Array
  counts: Array
  live: Array
  turns_before: Array
  turns_after: Array


def of_rows(batch: TrajectoryBatch, *, discount: float = 1.0) -> Episodes:
  """Joins the rows of each episode that fanned out into several.

  Args:
    batch: all rows of a step.
    discount: per turn, from the first turn of the episode on.
  """
  live = batch.row_mask & jnp.any(batch.action_mask, axis=1)
  together = _together(batch)
  num_turns = jnp.where(together, jnp.sum(batch.turn_mask, axis=1)[None, :], 0)
  turns_before = jnp.sum(jnp.tril(num_turns, -1), axis=1)
  members = together & live[None, :]  # [B, B]
  leader = jnp.argmax(members, axis=1)
  row_returns = returns.episode_returns(
    batch.turn_rewards, batch.turn_mask, discount=discount
  )
  row_returns *= jnp.float32(discount) ** turns_before
  lengths = jnp.sum(batch.action_mask, axis=1).astype(jnp.float32)
  return Episodes(
    returns=jnp.sum(jnp.where(members, row_returns[None, :], 0.0), axis=1),
    lengths=jnp.sum(jnp.where(members, lengths[None, :], 0.0), axis=1),
    leader=leader,
    counts=live & (leader == jnp.arange(live.shape[0])),
    live=live,
    turns_before=turns_before,
    turns_after=jnp.sum(jnp.triu(num_turns, 1), axis=1),
  )


def all_rows(batch: TrajectoryBatch, keeps: Array) -> Array:
  """Bool `[B]`: rows all of whose episode is in `keeps`.

  Args:
    batch: all rows of a step; those that were rejected before don't matter.
    keeps: bool `[B]`.
  """
  lost = batch.row_mask & ~keeps
  return ~jnp.any(_together(batch) & lost[None, :], axis=1)


def _together(batch: TrajectoryBatch) -> Array:
  """Bool `[B, B]`: pairs of rows of one episode and one agent."""
  return (batch.episode_ids[:, None] == batch.episode_ids[None, :]) & (
    batch.agent_ids[:, None] == batch.agent_ids[None, :]
  )
