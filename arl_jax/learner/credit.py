"""Advantages of a whole batch, by the name of their estimator.

An estimator here is an adapter: it picks the fields of the batch that one
function of `ops.advantages` reads. It runs over all rows of a step at once,
since a baseline needs the whole group, and never over a micro-batch.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from arl_jax.ops import (
  advantages,
  returns,
  state_advantages,
  token_advantages,
  turn_advantages,
  turns,
)
from arl_jax.types import Array, TrajectoryBatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdvantageConfig:
  """Settings of the credit assignment.

  Attributes:
    name: a key of `ESTIMATORS`, or a function `(batch, config) -> [B, T]`.
    scale: `std` divides by the group's standard deviation, `none` does not.
    discount: per turn, inside a row.
    step_weight: weight of GiGPO's step term.
    turn_weight: weight of MT-GRPO's turn term.
  """

  name: "str | Estimator" = "group_relative"
  scale: str = "std"
  discount: float = 1.0
  step_weight: float = 1.0
  turn_weight: float = 1.0

  def __post_init__(self) -> None:
    if not callable(self.name) and self.name not in ESTIMATORS:
      raise ValueError(
        f"advantage name is {self.name!r}; expected one of"
        f" {sorted(ESTIMATORS)} or a function (batch, config) -> [B, T]"
      )
    if self.scale not in ("std", "none"):
      raise ValueError(
        f"advantage scale is {self.scale!r}; expected 'std' or 'none'"
      )


Estimator = Callable[[TrajectoryBatch, AdvantageConfig], Array]


@functools.partial(jax.jit, static_argnames=("config",))
def compute_advantages(
  batch: TrajectoryBatch, *, config: AdvantageConfig
) -> Array:
  """Gives every action token of a step its advantage.

  Args:
    batch: all rows of the step, not a micro-batch: a group must be whole.
    config: estimator and its settings.

  Returns:
    float32 `[B, T]`, 0 outside actions and on rejected rows.
  """
  estimate = config.name if callable(config.name) else ESTIMATORS[config.name]
  values = estimate(batch, config)
  live = batch.action_mask & batch.row_mask[:, None]
  return jnp.where(live, values, 0.0).astype(jnp.float32)


def _by_episode(
  batch: TrajectoryBatch,
  config: AdvantageConfig,
  estimate: Callable[..., Array],
  **options: Any,
) -> Array:
  """Runs an estimator of one number per row on one row per episode.

  An episode that fanned out into several rows counts once in the baseline,
  with the sum of its rows' returns and lengths, and all its rows get its
  advantage. Agents of a team are credited apart.
  """
  live = batch.row_mask & jnp.any(batch.action_mask, axis=1)
  together = (batch.episode_ids[:, None] == batch.episode_ids[None, :]) & (
    batch.agent_ids[:, None] == batch.agent_ids[None, :]
  )
  members = together & live[None, :]  # [B, B]
  leader = jnp.argmax(members, axis=1)  # [B], the first live row
  row_returns = returns.episode_returns(
    batch.turn_rewards, batch.turn_mask, discount=config.discount
  )
  lengths = jnp.sum(batch.action_mask, axis=1).astype(jnp.float32)
  values = estimate(
    jnp.sum(jnp.where(members, row_returns[None, :], 0.0), axis=1),
    jnp.sum(jnp.where(members, lengths[None, :], 0.0), axis=1),
    batch.group_ids,
    num_groups=_num_rows(batch),
    row_mask=live & (leader == jnp.arange(live.shape[0])),
    **options,
  )
  return jnp.broadcast_to(values[leader][:, None], batch.tokens.shape)


def _without_lengths(estimate: Callable[..., Array]) -> Callable[..., Array]:
  def on_returns(episode_returns, lengths, group_ids, **options):
    del lengths
    return estimate(episode_returns, group_ids, **options)

  return on_returns


def _group_relative(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  estimate = _without_lengths(advantages.group_relative_advantages)
  return _by_episode(batch, config, estimate, scale=config.scale)


def _leave_one_out(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  estimate = _without_lengths(advantages.leave_one_out_advantages)
  return _by_episode(batch, config, estimate)


def _length_weighted(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  return _by_episode(batch, config, advantages.length_weighted_advantages)


def _group_policy_gradient(
  batch: TrajectoryBatch, config: AdvantageConfig
) -> Array:
  estimate = _without_lengths(advantages.group_policy_gradient_advantages)
  return _by_episode(batch, config, estimate)


def _pass_at_k(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  estimate = _without_lengths(advantages.pass_at_k_advantages)
  return _by_episode(batch, config, estimate, scale=config.scale)


def _returns(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  def raw(episode_returns, *_, **__):
    return episode_returns

  return _by_episode(batch, config, raw)


def _reinforce_plus_plus(
  batch: TrajectoryBatch, config: AdvantageConfig
) -> Array:
  per_token = turns.broadcast_turns(
    jnp.where(batch.turn_mask, batch.turn_rewards, 0.0), batch.turn_ids
  )
  ends = turns.turn_end_mask(batch.turn_ids)
  return token_advantages.reinforce_plus_plus_advantages(
    jnp.where(ends, per_token, 0.0),
    batch.action_mask,
    discount=config.discount,
    row_mask=batch.row_mask,
  )


def _reinforce_plus_plus_baseline(
  batch: TrajectoryBatch, config: AdvantageConfig
) -> Array:
  return token_advantages.reinforce_plus_plus_baseline_advantages(
    returns.episode_returns(
      batch.turn_rewards, batch.turn_mask, discount=config.discount
    ),
    batch.group_ids,
    batch.action_mask,
    num_groups=_num_rows(batch),
    row_mask=batch.row_mask,
  )


def _gigpo(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  values = state_advantages.gigpo_advantages(
    batch.turn_rewards,
    batch.state_ids,
    batch.group_ids,
    batch.turn_mask,
    num_groups=_num_rows(batch),
    num_states=batch.state_ids.size,
    discount=config.discount,
    step_weight=config.step_weight,
    scale=config.scale,
    row_mask=batch.row_mask,
  )
  return turns.broadcast_turns(values, batch.turn_ids)


def _step_baseline(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  values = state_advantages.step_baseline_advantages(
    returns.turn_returns(
      batch.turn_rewards, batch.turn_mask, discount=config.discount
    ),
    batch.state_ids,
    batch.turn_mask,
    num_states=batch.state_ids.size,
    row_mask=batch.row_mask,
  )
  return turns.broadcast_turns(values, batch.turn_ids)


def _salt(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  per_row = advantages.group_relative_advantages(
    returns.episode_returns(
      batch.turn_rewards, batch.turn_mask, discount=config.discount
    ),
    batch.group_ids,
    num_groups=_num_rows(batch),
    scale=config.scale,
    row_mask=batch.row_mask & jnp.any(batch.action_mask, axis=1),
  )
  values = state_advantages.salt_advantages(
    per_row,
    batch.edge_ids,
    batch.turn_mask,
    num_edges=batch.edge_ids.size,
    row_mask=batch.row_mask,
  )
  return turns.broadcast_turns(values, batch.turn_ids)


def _mt_grpo(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  # The last turn's reward is the outcome; the others are turn rewards.
  num_turns = jnp.sum(batch.turn_mask, axis=1, keepdims=True)
  is_last = jnp.arange(batch.turn_mask.shape[1])[None] == num_turns - 1
  rewards = jnp.where(batch.turn_mask, batch.turn_rewards, 0.0)
  values = turn_advantages.mt_grpo_advantages(
    jnp.where(is_last, 0.0, rewards),
    jnp.sum(jnp.where(is_last, rewards, 0.0), axis=1),
    batch.group_ids,
    batch.turn_mask,
    num_groups=_num_rows(batch),
    turn_weight=config.turn_weight,
    row_mask=batch.row_mask,
  )
  return turns.broadcast_turns(values, batch.turn_ids)


def _num_rows(batch: TrajectoryBatch) -> int:
  # Ids are dense within a batch, so its rows bound the number of groups: a
  # static bound that never causes another compile.
  return batch.tokens.shape[0]


ESTIMATORS: Mapping[str, Estimator] = {
  "group_relative": _group_relative,
  "leave_one_out": _leave_one_out,
  "length_weighted": _length_weighted,
  "group_policy_gradient": _group_policy_gradient,
  "pass_at_k": _pass_at_k,
  "reinforce_plus_plus": _reinforce_plus_plus,
  "reinforce_plus_plus_baseline": _reinforce_plus_plus_baseline,
  "gigpo": _gigpo,
  "mt_grpo": _mt_grpo,
  "step_baseline": _step_baseline,
  "salt": _salt,
  "returns": _returns,
}
