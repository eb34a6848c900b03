"""Reinforcement learning of language-model agents over whole trajectories."""

from arl_jax.episode import (
  Episode,
  EpisodeStatus,
  Group,
  Message,
  Row,
  Task,
  ToolCall,
  Turn,
)
from arl_jax.ops.advantages import (
  group_policy_gradient_advantages,
  group_relative_advantages,
  leave_one_out_advantages,
  length_weighted_advantages,
  pass_at_k_advantages,
  tree_advantages,
)
from arl_jax.ops.aggregation import aggregate, aggregate_terms
from arl_jax.ops.calibration import brier_score, calibration_error
from arl_jax.ops.critics import (
  bi_level_gae,
  gae,
  length_adaptive_lambda,
  turn_gae,
  value_loss,
)
from arl_jax.ops.divergences import kl_k1, kl_k2, kl_k3, kl_penalty_loss
from arl_jax.ops.filters import (
  informative_groups,
  overlong_penalty,
  top_variance_groups,
  truncation_keep_mask,
  void_turn_keep_mask,
)
from arl_jax.ops.grouping import (
  dense_ids,
  history_context_ids,
  resample_on_correct,
  salt_edge_ids,
)
from arl_jax.ops.importance import (
  effective_sample_size,
  interpolated_logprobs,
  sequence_importance_weights,
  sequence_keep_mask,
  token_importance_weights,
)
from arl_jax.ops.logprobs import (
  chunked_token_logprobs,
  token_entropies,
  token_logprobs,
)
from arl_jax.ops.losses import (
  cispo_loss,
  clipped_surrogate_loss,
  decoupled_surrogate_loss,
  masked_cross_entropy,
  policy_gradient_loss,
  sapo_loss,
)
from arl_jax.ops.masking import (
  masked_mean,
  masked_sum,
  masked_var,
  masked_whiten,
)
from arl_jax.ops.packing import pack_rows
from arl_jax.ops.process_rewards import (
  aggregate_process_rewards,
  implicit_process_rewards,
  monte_carlo_targets,
  potential_rewards,
  process_score_loss,
  progress_loss,
  soft_min_process_rewards,
)
from arl_jax.ops.returns import (
  episode_returns,
  outcome_to_turns,
  token_returns,
  turn_returns,
)
from arl_jax.ops.sequence_losses import (
  gspo_loss,
  mirror_descent_loss,
  turn_surrogate_loss,
)
from arl_jax.ops.state_advantages import (
  gigpo_advantages,
  hgpo_advantages,
  salt_advantages,
  step_baseline_advantages,
)
from arl_jax.ops.teams import (
  critical_steps,
  parallel_agent_rewards,
  shapley_values,
  team_average_rewards,
  weighted_team_rewards,
)
from arl_jax.ops.token_advantages import (
  reinforce_plus_plus_advantages,
  reinforce_plus_plus_baseline_advantages,
)
from arl_jax.ops.turn_advantages import (
  igpo_advantages,
  mt_grpo_advantages,
  state_value_advantages,
)
from arl_jax.ops.turns import (
  broadcast_turns,
  mean_over_turns,
  sum_over_turns,
  turn_end_mask,
)
from arl_jax.types import LearnerState, TrajectoryBatch

__all__ = [
  "Episode",
  "EpisodeStatus",
  "Group",
  "LearnerState",
  "Message",
  "Row",
  "Task",
  "ToolCall",
  "TrajectoryBatch",
  "Turn",
  "aggregate",
  "aggregate_process_rewards",
  "aggregate_terms",
  "bi_level_gae",
  "brier_score",
  "broadcast_turns",
  "calibration_error",
  "chunked_token_logprobs",
  "cispo_loss",
  "clipped_surrogate_loss",
  "critical_steps",
  "decoupled_surrogate_loss",
  "dense_ids",
  "effective_sample_size",
  "episode_returns",
  "gae",
  "gigpo_advantages",
  "group_policy_gradient_advantages",
  "group_relative_advantages",
  "gspo_loss",
  "hgpo_advantages",
  "history_context_ids",
  "igpo_advantages",
  "implicit_process_rewards",
  "informative_groups",
  "interpolated_logprobs",
  "kl_k1",
  "kl_k2",
  "kl_k3",
  "kl_penalty_loss",
  "leave_one_out_advantages",
  "length_adaptive_lambda",
  "length_weighted_advantages",
  "masked_cross_entropy",
  "masked_mean",
  "masked_sum",
  "masked_var",
  "masked_whiten",
  "mean_over_turns",
  "mirror_descent_loss",
  "monte_carlo_targets",
  "mt_grpo_advantages",
  "outcome_to_turns",
  "overlong_penalty",
  "pack_rows",
  "parallel_agent_rewards",
  "pass_at_k_advantages",
  "policy_gradient_loss",
  "potential_rewards",
  "process_score_loss",
  "progress_loss",
  "reinforce_plus_plus_advantages",
  "reinforce_plus_plus_baseline_advantages",
  "resample_on_correct",
  "salt_advantages",
  "salt_edge_ids",
  "sapo_loss",
  "sequence_importance_weights",
  "sequence_keep_mask",
  "shapley_values",
  "soft_min_process_rewards",
  "state_value_advantages",
  "step_baseline_advantages",
  "sum_over_turns",
  "team_average_rewards",
  "token_entropies",
  "token_importance_weights",
  "token_logprobs",
  "token_returns",
  "top_variance_groups",
  "tree_advantages",
  "truncation_keep_mask",
  "turn_end_mask",
  "turn_gae",
  "turn_returns",
  "turn_surrogate_loss",
  "value_loss",
  "void_turn_keep_mask",
  "weighted_team_rewards",
]
