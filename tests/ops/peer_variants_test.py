"""Variants of other projects, made of the pieces that docs/ops names."""

import jax.numpy as jnp
import numpy as np

import arl_jax as arl
from tests.ops import golden


def test_other_denominators_are_normalizers():
  inputs, outputs = golden.load("loss_aggregation")
  values, mask = jnp.array(inputs["loss"]), jnp.array(inputs["mask"])
  num_rows, num_tokens = mask.shape
  for normalizer, key in (
    (num_tokens, "seq_mean_token_sum_norm_T4"),
    (num_rows * num_tokens, "dr_grpo_trl"),
  ):
    actual = arl.aggregate(values, mask, normalizer=normalizer)
    golden.assert_close(actual, outputs[key])


def test_batch_normalised_weights():
  inputs, outputs = golden.load("rollout_correction_weights")
  new, mask = jnp.array(inputs["log_ratio"]), jnp.array(inputs["mask"])
  old = jnp.zeros_like(new)
  weights = arl.token_importance_weights(new, old, mask)
  golden.assert_close(
    weights / arl.masked_mean(weights, mask), outputs["token_tis_batchnorm"]
  )
  weights = arl.sequence_importance_weights(new, old, mask)
  weights = weights / arl.masked_mean(weights, jnp.any(mask, axis=1))
  golden.assert_close(weights[:, None] * mask, outputs["seq_tis_batchnorm"])


def test_rejected_tokens_leave_the_denominator():
  inputs, outputs = golden.load("decoupled_ppo_areal")
  proximal = jnp.array([inputs["prox_logp"]])
  behavior, mask = jnp.array([inputs["behave_logp"]]), jnp.ones((1, 3), bool)
  weights = arl.token_importance_weights(
    proximal, behavior, mask, mode="mask", upper=inputs["behave_cap"]
  )
  loss = arl.decoupled_surrogate_loss(
    jnp.array([inputs["logp"]]),
    proximal,
    behavior,
    jnp.array([inputs["adv"]]),
    mask,
    behavior_cap=inputs["behave_cap"],
    cap_mode="mask",
  )
  golden.assert_close(
    arl.aggregate(loss, weights > 0),
    outputs["loss_mask_cap2_kept_denominator"],
  )


def test_cispo_with_an_upper_bound_alone():
  inputs, outputs = golden.load("cispo_loss")
  new = jnp.array([inputs["logp"]])
  loss = arl.cispo_loss(
    new,
    jnp.array([inputs["old_logp"]]),
    jnp.array([inputs["adv"]]),
    jnp.ones_like(new, bool),
    clip_high=inputs["clip_high"],
  )
  # The loss is linear in the log-probability, with this slope.
  golden.assert_close(loss / new, [outputs["dloss_dlogp_upper_only"]])


def test_gmpo_clips_each_token_where_gspo_clips_the_row():
  inputs, outputs = golden.load("gmpo_loss")
  log_ratio, mask = jnp.array(inputs["log_ratio"]), jnp.array(inputs["mask"])
  old, advantages = jnp.zeros_like(log_ratio), jnp.array(inputs["adv"])

  def loss(new, clip_high):
    values = arl.gspo_loss(new, old, advantages, mask, clip_high=clip_high)
    return arl.aggregate(values, mask, mode="sequence_mean")

  row_clip = np.expm1(inputs["clip"])
  golden.assert_close(loss(log_ratio, row_clip), -np.exp(0.7 / 3))
  clipped = jnp.minimum(log_ratio, inputs["clip"])
  golden.assert_close(loss(clipped, row_clip), outputs["loss"])


def test_tree_normalised_in_two_stages():
  inputs, outputs = golden.load("tree_grpo")
  over_group = arl.group_relative_advantages(
    jnp.array(inputs["rewards"]), jnp.array(inputs["prompt"]), num_groups=1
  )
  over_tree = arl.group_relative_advantages(
    over_group, jnp.array(inputs["tree"]), num_groups=3
  )
  golden.assert_close(over_tree, outputs["adv_two_stage_norm"])


def test_shared_prefix_gets_the_mean_of_its_branches():
  inputs, outputs = golden.load("arpo_shared_prefix_hard_advantage")
  advantages = arl.group_relative_advantages(
    jnp.array(inputs["rewards"]), jnp.zeros(3, int), num_groups=1
  )
  golden.assert_close(advantages, outputs["branch_adv"])
  # Rows 0 and 1 walk the same first edge.
  edges = jnp.array([[0, 1], [0, 2], [3, 4]])
  actual = arl.salt_advantages(
    advantages, edges, jnp.ones((3, 2), bool), num_edges=5
  )
  golden.assert_close(actual[:2, 0], np.full(2, outputs["shared_prefix_adv"]))
  golden.assert_close(actual[:, 1], outputs["branch_adv"])


def test_position_wise_baseline_of_information_gains():
  inputs, outputs = golden.load("igpo")
  outcomes = np.array(inputs["outcome_reward"])[:, None]
  rewards = np.concatenate([outputs["info_gain"], outcomes], axis=1)
  mask = np.ones_like(rewards, bool)
  actual = arl.step_baseline_advantages(
    arl.turn_returns(rewards, mask),
    np.broadcast_to(np.arange(3), (2, 3)),
    mask,
    num_states=3,
  )
  golden.assert_close(actual, outputs["repo_variant_positionwise"])


def test_utterance_critic_targets_are_one_step_returns():
  inputs, outputs = golden.load("archer_targets")
  _, targets = arl.turn_gae(
    jnp.array([inputs["r"]]),
    jnp.array([inputs["V_target"]]),
    jnp.ones((1, 3), bool),
    discount=inputs["gamma"],
    lam=0.0,
  )
  golden.assert_close(targets[0], outputs["Q_targets"])


def test_prime_returns():
  inputs, outputs = golden.load("prime_implicit_reward")
  mask, group_ids = jnp.ones((2, 3), bool), jnp.zeros(2, int)
  rewards = arl.implicit_process_rewards(
    jnp.array(inputs["prm_logp"]),
    jnp.array(inputs["ref_logp"]),
    mask,
    beta=inputs["beta"],
  )
  means = arl.masked_mean(rewards, mask, axis=1)
  of_group = means - arl.group_relative_advantages(
    means, group_ids, num_groups=1, scale="none"
  )
  # Two episodes: n / (n - 1) is 2.
  dense = 2.0 * (rewards - of_group[:, None])
  golden.assert_close(dense, outputs["rloo_token_rewards"])
  outcome = arl.leave_one_out_advantages(
    jnp.array(inputs["acc"]), group_ids, num_groups=1
  )
  token_rewards = inputs["coef_dpo"] * dense
  token_rewards = token_rewards.at[:, -1].add(inputs["coef_gt"] * outcome)
  golden.assert_close(
    arl.token_returns(token_rewards, mask), outputs["returns"]
  )


def test_sequence_mask_of_negative_advantages_alone():
  inputs, outputs = golden.load("off_policy_sequence_mask_dsv32")
  new, old = jnp.array([inputs["logp"]]), jnp.array([inputs["old_logp"]])
  near = arl.sequence_keep_mask(
    new,
    old,
    jnp.ones_like(new, bool),
    lower=np.exp(-inputs["delta"]),
    upper=np.inf,
  )
  for sign, key in ((1.0, "mask"), (-1.0, "mask_if_adv_positive")):
    keep = near | (sign * inputs["adv"] >= 0)
    np.testing.assert_array_equal(keep, [bool(outputs[key])])


def test_overlong_rows_leave_the_denominator():
  inputs, outputs = golden.load("overlong_filtering")
  keep = arl.truncation_keep_mask(
    jnp.array(inputs["truncated"]), jnp.array(inputs["adv"]), drop="all"
  )
  mask = jnp.array(inputs["mask"]) * keep[:, None]
  np.testing.assert_array_equal(mask, outputs["mask"])
  _, denominator = arl.aggregate_terms(jnp.ones_like(mask), mask)
  golden.assert_close(denominator, outputs["denominator_token_mean"])


def test_negative_rows_are_dropped_or_weighed_less():
  inputs, outputs = golden.load("negative_sample_control_options")
  advantages = jnp.array(inputs["adv"])
  # The rule for which to drop is open: here those that a limit ended.
  truncated = 1 - jnp.array(inputs["keep_mask"])
  keep = arl.truncation_keep_mask(truncated, advantages, drop="negative")
  np.testing.assert_array_equal(advantages * keep, outputs["drop_some"])
  lighter = jnp.where(advantages < 0, inputs["down_weight"], 1.0)
  np.testing.assert_array_equal(advantages * lighter, outputs["down_weighted"])


def test_main_agents_and_sub_agents_are_groups_of_their_own():
  inputs, outputs = golden.load("m_grpo_alignment")
  aligned = np.concatenate(outputs["aligned_sub_rewards"])
  returns = np.concatenate([inputs["main_rewards"], aligned])
  agents = np.repeat([0, 1], [3, 6])
  actual = arl.group_relative_advantages(returns, agents, num_groups=2)
  golden.assert_close(actual[:3], outputs["main_adv"])
  golden.assert_close(actual[3:], np.concatenate(outputs["sub_adv"]))
  # Without the alignment: a group of six calls, from one to three per row.
  calls = np.concatenate(inputs["sub_rewards"])
  actual = arl.group_relative_advantages(calls, np.zeros(6, int), num_groups=1)
  expected = (calls - calls.mean()) / (calls.std(ddof=1) + 1e-6)
  golden.assert_close(actual, expected)
