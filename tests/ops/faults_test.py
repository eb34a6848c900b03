"""Faults that users of other systems reported, each as a test of ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden

# Masks and credit across observations.


def test_return_is_not_reset_at_an_observation():  # verl#6376
  actual = arl.token_returns(
    jnp.array([[0.0, 0.0, 1.0]]), jnp.array([[1, 0, 1]]), discount=0.5
  )
  golden.assert_close(actual, [[0.5, 0.0, 1.0]])


def test_reference_at_an_observation_moves_no_return():  # slime#1370
  rng = np.random.default_rng(0)
  logprobs, reference = rng.normal(size=(2, 2, 6)).astype(np.float32)
  mask = np.array([[1, 0, 0, 1, 1, 0], [0, 1, 1, 0, 0, 1]])

  def advantages(reference):
    penalty = -0.1 * arl.kl_k1(logprobs, reference)
    return arl.reinforce_plus_plus_advantages(penalty, mask)

  moved = np.where(mask, reference, reference + 100.0)
  np.testing.assert_array_equal(advantages(reference), advantages(moved))


def test_divergence_ignores_observations():  # Search-R1#21
  logprobs, mask = jnp.full((1, 3), -1.0), jnp.array([[1, 0, 1]])
  means = [
    arl.masked_mean(arl.kl_k3(logprobs, logprobs.at[0, 1].set(x)), mask)
    for x in (-1.0, 80.0, -jnp.inf)
  ]
  assert [float(mean) for mean in means] == [0.0, 0.0, 0.0]


def test_an_outcome_lands_on_the_last_action_token():  # verl#6392
  turn_ids = jnp.array([[0, 0, -1, 1, 1, -1, -1]])
  ends = arl.turn_end_mask(turn_ids)
  last = arl.broadcast_turns(jnp.array([[0.0, 1.0]]), turn_ids) * ends
  np.testing.assert_array_equal(last, [[0, 0, 0, 0, 1, 0, 0]])


@pytest.mark.parametrize(
  "function", [arl.group_relative_advantages, arl.leave_one_out_advantages]
)
def test_a_rejected_sibling_moves_no_baseline(function):  # verl#6375, #6362
  groups = jnp.array([0, 0, 0])

  def call(outlier):
    return function(
      jnp.array([1.0, 0.0, outlier]),
      groups,
      num_groups=1,
      row_mask=jnp.array([1, 1, 0]),
    )

  np.testing.assert_array_equal(call(100.0), call(0.0))
  assert call(100.0)[0] > 0 > call(100.0)[1]


def _loss_of_logits(logits, tokens, mask):
  logprobs = arl.token_logprobs(logits, tokens)
  loss = arl.clipped_surrogate_loss(
    logprobs, jax.lax.stop_gradient(logprobs), jnp.ones(tokens.shape[0]), mask
  )
  return arl.aggregate(loss, mask)


def test_only_the_logits_before_an_action_learn():  # RAGEN#71, verl#3287
  logits = jnp.asarray(np.random.default_rng(0).normal(size=(1, 6, 5)))
  tokens = jnp.array([[0, 1, 2, 3, 4, 0]])
  mask = jnp.array([[0, 1, 0, 0, 1, 1]])
  grad = jax.grad(_loss_of_logits)(logits, tokens, mask)
  moved = np.asarray(jnp.any(grad != 0, axis=-1))[0]
  np.testing.assert_array_equal(moved, [True, False, False, True, True, False])


def test_observations_do_not_make_a_row_long():  # OpenRLHF#1243, #1252
  mask = jnp.array([[1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1]])
  lengths = jnp.sum(mask, axis=1)
  assert lengths[0] == 9
  assert arl.overlong_penalty(lengths, max_length=10, buffer=1)[0] == 0.0


def test_observations_do_not_dilute_a_loss():  # slime#365
  values, mask = jnp.array([[1.0, 2.0]]), jnp.array([[1, 1]])
  padded = jnp.pad(values, ((0, 0), (0, 5)), constant_values=9.0)
  wide = jnp.pad(mask, ((0, 0), (0, 5)))
  for mode in ("token_mean", "sequence_mean", "sequence_sum", "fixed_length"):
    expected = arl.aggregate(values, mask, mode=mode, length=4)
    assert arl.aggregate(padded, wide, mode=mode, length=4) == expected


# Grouping and normalisation.


def test_four_rollouts_of_one_task_are_centred():  # rllm#605, #924
  keys = ["task-7"] * 4
  actual = arl.group_relative_advantages(
    jnp.array([1.0, 0.0, 1.0, 0.0]), arl.dense_ids(keys), num_groups=1
  )
  golden.assert_close(actual.mean(), 0.0)
  assert np.all(np.asarray(actual) != 0)


def test_a_turn_keeps_its_own_reward():  # AReaL#1674
  rewards = jnp.array([[-0.2, 1.0], [0.0, 1.0]])
  mask = jnp.ones((2, 2), bool)
  returns = arl.turn_returns(rewards, mask)
  golden.assert_close(returns[:, 0], [0.8, 1.0])
  actual = arl.mt_grpo_advantages(
    rewards, jnp.ones(2), jnp.zeros(2, int), mask, num_groups=1
  )
  assert actual[0, 0] < 0 < actual[1, 0]


def test_groups_need_not_be_neighbours():  # prime-rl#600
  returns = jnp.array([1.0, 5.0, 0.0, 9.0])
  mixed = arl.group_relative_advantages(
    returns, jnp.array([0, 1, 0, 1]), num_groups=2, scale="none"
  )
  np.testing.assert_array_equal(mixed, [0.5, -2.0, -0.5, 2.0])


@pytest.mark.parametrize(
  "returns", [[1.0, np.nan, np.nan], [0.3] * 3, [1.0, 0.0, np.nan]]
)
def test_no_group_gives_nan(returns):  # DeepAnalyze#116, trl#5773
  groups = jnp.zeros(3, int)
  for function in (
    arl.group_relative_advantages,
    arl.leave_one_out_advantages,
    arl.group_policy_gradient_advantages,
    arl.pass_at_k_advantages,
  ):
    actual = function(jnp.array(returns), groups, num_groups=1)
    assert np.isfinite(actual).all()


def test_a_single_member_gets_zero_from_every_estimator():  # rllm#916, #917
  returns, groups = jnp.array([7.0]), jnp.array([0])
  for function in (
    arl.group_relative_advantages,
    arl.leave_one_out_advantages,
    arl.group_policy_gradient_advantages,
    arl.pass_at_k_advantages,
  ):
    assert function(returns, groups, num_groups=1)[0] == 0.0


def test_group_advantages_are_not_normalised_again():  # axon-rl/gem#113
  advantages = jnp.array([3.0, -3.0])
  loss = arl.policy_gradient_loss(
    jnp.full((2, 1), -1.0), advantages, jnp.ones((2, 1), bool)
  )
  np.testing.assert_array_equal(loss, [[3.0], [-3.0]])


def test_a_dropped_group_has_no_gradient_at_all():  # trl#7068
  returns, groups = jnp.array([1.0, 1.0, 1.0, 0.0]), jnp.array([0, 0, 1, 1])
  keep = arl.informative_groups(returns, groups, num_groups=2)
  mask = jnp.ones((4, 2), bool) & keep[:, None]
  reference = jnp.full((4, 2), -2.0)

  def loss(logprobs):
    penalty = arl.kl_penalty_loss(logprobs, reference, logprobs, mask)
    return arl.aggregate(penalty, mask)

  grad = np.asarray(jax.grad(loss)(jnp.full((4, 2), -1.0)))
  assert (grad[:2] == 0).all()
  assert (grad[2:] != 0).all()


def test_turn_rewards_speak_where_sums_are_equal():  # SkyRL#2104
  rewards = jnp.array([[1.0, 0.0], [0.0, 1.0]])
  mask, groups = jnp.ones((2, 2), bool), jnp.zeros(2, int)
  outcomes = arl.episode_returns(rewards, mask)
  assert not arl.informative_groups(outcomes, groups, num_groups=1).any()
  actual = arl.mt_grpo_advantages(rewards, outcomes, groups, mask, num_groups=1)
  assert (np.asarray(actual) != 0).all()


def test_turns_are_normalised_before_they_are_discounted():  # IGPO#5
  # Rewards 0.4, 1 and -0.2, 0 of mean 0.3 and sample deviation 0.52915.
  beliefs = np.log([[0.2, 0.6, 1.0], [0.5, 0.3, 1.0]])
  actual = arl.igpo_advantages(
    beliefs,
    np.array([1.0, 0.0]),
    np.zeros(2, int),
    np.ones((2, 2), bool),
    num_groups=1,
    discount=0.5,
  )
  z = np.array([[0.188982, 1.322876], [-0.944911, -0.566947]])
  golden.assert_close(actual[:, 1], z[:, 1], 1e-4)
  golden.assert_close(actual[:, 0], z[:, 0] + 0.5 * z[:, 1], 1e-4)


def test_episodes_are_discounted_before_they_are_normalised():  # IGPO#5
  rewards = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
  returns = arl.episode_returns(rewards, np.ones((3, 2), bool), discount=0.5)
  golden.assert_close(returns, [0.5, 1.0, 0.0])
  actual = arl.group_relative_advantages(
    returns, np.zeros(3, int), num_groups=1
  )
  # The first two would be equal if outcomes were normalised before.
  golden.assert_close(actual, [0.0, 1.0, -1.0], 1e-4)


# Reduction.


def test_the_constant_does_not_depend_on_the_width():  # verl#3741, #5366
  values, mask = jnp.ones((2, 16)), jnp.ones((2, 16), bool)
  wide = [jnp.pad(x, ((0, 0), (0, 48))) for x in (values, mask)]
  options = {"mode": "fixed_length", "length": 16}
  assert arl.aggregate(values, mask, **options) == 1.0
  assert arl.aggregate(*wide, **options) == 1.0


@pytest.mark.parametrize(
  "mode", ["token_mean", "sequence_mean", "sequence_sum", "fixed_length"]
)
def test_a_row_out_of_the_loss_is_out_of_the_count(mode):  # trl#6369, #6439
  values = jnp.array([[1.0, 3.0], [50.0, 50.0]])
  mask = jnp.array([[1, 1], [0, 0]])
  both = arl.aggregate(values, mask, mode=mode, length=2)
  assert both == arl.aggregate(values[:1], mask[:1], mode=mode, length=2)


def test_a_batch_without_tokens_trains_nothing():  # trl#7077, fla#189
  logits, tokens = jnp.ones((2, 3, 4)), jnp.zeros((2, 3), int)
  value, grad = jax.value_and_grad(_loss_of_logits)(
    logits, tokens, jnp.zeros((2, 3), bool)
  )
  assert value == 0.0
  np.testing.assert_array_equal(grad, np.zeros((2, 3, 4)))


@pytest.mark.parametrize("fill", [1.0, np.nan, np.inf, -np.inf])
def test_what_fills_a_masked_place_never_shows(fill):  # OpenRLHF#1240
  mask = jnp.array([[1, 0], [1, 1]])  # Flash-RL#19
  live = jnp.array([[-1.0, -1.0], [-2.0, -0.5]])
  filled = jnp.where(mask == 1, live, fill)
  advantages = jnp.array([1.0, -1.0])

  def total(logprobs, old):
    return arl.clipped_surrogate_loss(logprobs, old, advantages, mask).sum()

  expected = jax.value_and_grad(total)(live, live - 0.1)
  actual = jax.value_and_grad(total)(filled, filled - 0.1)
  np.testing.assert_array_equal(actual[0], expected[0])
  np.testing.assert_array_equal(actual[1], expected[1])


def test_a_row_ratio_does_not_grow_with_length():  # NeMo-RL#2269
  rng = np.random.default_rng(0)
  noise = rng.normal(scale=3e-4, size=(1, 8192)).astype(np.float32)
  old, mask = np.full((1, 8192), -1.0, np.float32), np.ones((1, 8192), bool)
  weight = arl.sequence_importance_weights(
    old + noise, old, mask, reduce="mean"
  )
  golden.assert_close(weight, [1.0], 1e-4)
  twice = [np.concatenate([x, x], axis=1) for x in (old + noise, old, mask)]
  again = arl.sequence_importance_weights(*twice, reduce="mean")
  golden.assert_close(again, weight, 1e-6)


def test_a_row_ratio_ignores_padding_and_observations():  # Soup#723
  new, old = jnp.array([[-1.0, 5.0, -2.0]]), jnp.array([[-1.5, 0.0, -2.5]])
  mask, advantages = jnp.array([[1, 0, 1]]), jnp.array([1.0])  # EasyR1#596
  loss = arl.gspo_loss(new, old, advantages, mask, clip_high=9.0)
  ratio = np.exp(0.5)
  golden.assert_close(loss, [[-ratio, 0.0, -ratio]])


# Log-probabilities.


def test_the_first_ratio_is_one_at_any_temperature():  # trl#4159, NeMo-RL#902
  rng = np.random.default_rng(0)
  hidden, matrix = rng.normal(size=(1, 5, 3)), rng.normal(size=(3, 7))
  tokens, mask = rng.integers(0, 7, (1, 5)), jnp.array([[0, 1, 1, 1, 1]])
  sampler = arl.token_logprobs(hidden @ matrix, tokens, temperature=0.6)
  learner, _ = arl.chunked_token_logprobs(
    jnp.asarray(hidden),
    jnp.asarray(matrix),
    tokens,
    chunk_size=3,
    temperature=0.6,
  )
  assert np.abs(sampler - learner).max() < 1e-5
  # Scaling log-probs, and not logits, is another distribution.
  wrong = arl.token_logprobs(hidden @ matrix, tokens) / 0.6
  assert np.abs(sampler - wrong).max() > 0.1
  ratio = arl.token_importance_weights(learner, sampler, mask, mode="none")
  golden.assert_close(ratio[0, 1:], np.ones(4))


def test_a_missing_log_prob_weighs_one():  # trl#6166, #6693
  new, mask = jnp.array([[-0.1, -0.2]]), jnp.ones((1, 2), bool)
  old = jnp.array([[jnp.nan, -0.2]])
  for mode in ("truncate", "mask", "clamp", "none"):
    weights = arl.token_importance_weights(
      new, old, mask, mode=mode, lower=0.5, upper=2.0
    )
    np.testing.assert_array_equal(weights, [[1.0, 1.0]])
  kept = arl.sequence_keep_mask(new, old, mask, metric="max_ratio", upper=1.1)
  assert kept[0]
  loss = arl.decoupled_surrogate_loss(new, new, old, jnp.ones(1), mask)
  golden.assert_close(loss, [[-1.0, -1.0]])


def test_the_correction_reads_the_proximal_policy_only():  # slime#179
  proximal, behavior = jnp.log(jnp.array([[0.4]])), jnp.log(jnp.array([[0.2]]))
  mask = jnp.ones((1, 1), bool)

  def loss(logprobs, proximal, behavior):
    return arl.decoupled_surrogate_loss(
      logprobs, proximal, behavior, jnp.ones(1), mask, clip_high=9.0
    ).sum()

  for p in (0.4, 0.5, 0.8):
    value = loss(jnp.log(jnp.array([[p]])), proximal, behavior)
    golden.assert_close(value, -2.0 * p / 0.4)
  grads = jax.grad(loss, argnums=(1, 2))(proximal, proximal, behavior)
  assert [float(grad.sum()) for grad in grads] == [0.0, 0.0]


def test_a_missing_reference_gradient_is_by_estimator():  # open-instruct#534
  # k1 as a loss has the gradient 1 everywhere: it knows no reference.
  grad = jax.grad(lambda x, ref: arl.kl_k1(x, ref).sum())
  for ref in (-1.0, -5.0):
    assert grad(jnp.array([-2.0]), jnp.array([ref]))[0] == 1.0
  zeros = jnp.zeros((1, 1))
  with pytest.raises(ValueError, match="estimator is 'k1'"):
    arl.kl_penalty_loss(zeros, zeros, zeros, zeros, estimator="k1")
