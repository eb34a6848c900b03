"""Advantages of a whole batch, by the name of their estimator.

An estimator here is an adapter: it picks the fields of the batch that one
function of `ops` reads. It runs over all rows of a step at once, since a
baseline needs the whole group, and never over a micro-batch.

What needs more than a batch holds (the tree of a leaf, log-probs of a gold
answer, values of a critic) has no name here; pass a function that closes over
it, as `docs/algorithms.md` shows.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from arl_jax.learner import episodes
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
    discount: per turn. `decayed_outcome` discounts by the turns up to the end,
      the others by those from the first or the current turn on.
    step_weight: weight of GiGPO's step term.
    turn_weight: weight of MT-GRPO's turn term.
    history_levels: of HGPO; the last compares turns that share a state and
      the `history_levels - 1` before it.
    history_power: how much more a longer history weighs in HGPO.
    negative_weight: scales advantages below 0, so that what failed is pushed
      down less than what worked is pushed up; 1 leaves them.
  """

  name: "str | Estimator" = "group_relative"
  scale: str = "std"
  discount: float = 1.0
  step_weight: float = 1.0
  turn_weight: float = 1.0
  history_levels: int = 3
  history_power: float = 1.0
  negative_weight: float = 1.0

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
    if self.history_levels < 1:
      raise ValueError(
        f"advantage history_levels is {self.history_levels}; expected 1 or more"
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
  values = jnp.where(values < 0, config.negative_weight * values, values)
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
  whole = episodes.of_rows(batch, discount=config.discount)
  values = estimate(
    whole.returns,
    whole.lengths,
    batch.group_ids,
    num_groups=_num_rows(batch),
    row_mask=whole.counts,
    **options,
  )
  return jnp.broadcast_to(values[whole.leader][:, None], batch.tokens.shape)


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


def _decayed_outcome(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  # A_k = γ^(K - 1 - k) · (R - mean of the others' R), k over all rows.
  whole = episodes.of_rows(batch)
  outcomes = _leave_one_out(batch, dataclasses.replace(config, discount=1.0))
  num_turns = jnp.sum(batch.turn_mask, axis=1) + whole.turns_after
  still_to_come = num_turns[:, None] - 1 - jnp.maximum(batch.turn_ids, 0)
  return outcomes * jnp.float32(config.discount) ** still_to_come


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


def _hgpo(batch: TrajectoryBatch, config: AdvantageConfig) -> Array:
  values = state_advantages.hgpo_advantages(
    returns.turn_returns(
      batch.turn_rewards, batch.turn_mask, discount=config.discount
    ),
    history_contexts(batch, num_levels=config.history_levels),
    batch.turn_mask,
    num_contexts=batch.state_ids.size,
    alpha=config.history_power,
    scale=config.scale,
    row_mask=batch.row_mask,
  )
  return turns.broadcast_turns(values, batch.turn_ids)


def history_contexts(batch: TrajectoryBatch, *, num_levels: int) -> Array:
  """Names each turn's state together with the states that led to it.

  The jitted form of `ops.grouping.history_context_ids`, from a batch whose
  state ids tell groups apart already.

  Args:
    batch: all rows of the step.
    num_levels: C; level 0 is the state alone.

  Returns:
    int32 `[C, B, K]` below B * K, -1 where there is no context; ids of
    different levels have nothing to do with each other.
  """
  states = jnp.where(batch.turn_mask, batch.state_ids, -1)
  levels = [states]
  for _ in range(1, num_levels):
    before = jnp.pad(levels[-1], ((0, 0), (1, 0)), constant_values=-1)
    levels.append(_pair_ids(before[:, :-1], states))
  return jnp.stack(levels)


def _pair_ids(first: Array, second: Array) -> Array:
  """Numbers the pairs that occur, below their count; -1 if a part is -1."""
  ids = jnp.stack([first.reshape(-1), second.reshape(-1)])
  order = jnp.lexsort((ids[1], ids[0]))
  ordered = ids[:, order]
  # Products of ids would overflow int32 in a large batch; ranks never do.
  changes = jnp.any(ordered[:, 1:] != ordered[:, :-1], axis=0)
  ranks = jnp.pad(jnp.cumsum(changes, dtype=jnp.int32), (1, 0))
  numbers = jnp.zeros_like(ranks).at[order].set(ranks).reshape(first.shape)
  return jnp.where((first >= 0) & (second >= 0), numbers, -1)


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
  "decayed_outcome": _decayed_outcome,
  "length_weighted": _length_weighted,
  "group_policy_gradient": _group_policy_gradient,
  "pass_at_k": _pass_at_k,
  "reinforce_plus_plus": _reinforce_plus_plus,
  "reinforce_plus_plus_baseline": _reinforce_plus_plus_baseline,
  "gigpo": _gigpo,
  "mt_grpo": _mt_grpo,
  "hgpo": _hgpo,
  "step_baseline": _step_baseline,
  "salt": _salt,
  "returns": _returns,
}
