import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.learner.credit import (
  ESTIMATORS,
  AdvantageConfig,
  compute_advantages,
)
from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import update


def outcomes_batch(make_batch, outcomes, **fields):
  """One turn per row, with the row's outcome as its reward."""
  outcomes = np.asarray(outcomes, np.float32)
  batch = make_batch(num_rows=len(outcomes), num_tokens=8, num_turns=2)
  turn_ids = np.full((len(outcomes), 8), -1, np.int32)
  turn_ids[:, 2:5] = 0
  turn_mask = np.zeros((len(outcomes), 2), bool)
  turn_mask[:, 0] = True
  rewards = np.zeros((len(outcomes), 2), np.float32)
  rewards[:, 0] = outcomes
  batch = batch.replace(
    turn_ids=turn_ids,
    action_mask=turn_ids >= 0,
    turn_mask=turn_mask,
    turn_rewards=rewards,
  )
  return batch.replace(**fields)


def of_rows(batch, **config):
  """The one advantage of each row, checked to be 0 outside actions."""
  values = np.asarray(
    compute_advantages(batch, config=AdvantageConfig(**config))
  )
  assert values.dtype == np.float32
  assert values.shape == batch.tokens.shape
  assert not np.any(values[~batch.action_mask])
  per_row = values[:, 2]
  np.testing.assert_array_equal(values[:, 3], per_row)
  return per_row


def test_group_relative_golden(make_batch):
  batch = outcomes_batch(make_batch, [1, 0, 0, 1, 3, 3, 3, 3])
  std = np.std([1, 0, 0, 1], ddof=1)
  expected = np.array([0.5, -0.5, -0.5, 0.5, 0, 0, 0, 0])
  np.testing.assert_allclose(of_rows(batch), expected / std, rtol=1e-5)
  np.testing.assert_allclose(of_rows(batch, scale="none"), expected)
  np.testing.assert_allclose(
    of_rows(batch, name="leave_one_out"), expected * 4 / 3, rtol=1e-6
  )


def test_rejected_row_moves_nobody(make_batch):
  row_mask = np.ones(8, bool)
  row_mask[3] = False
  batch = outcomes_batch(
    make_batch, [1, 0, 0, 100, 3, 3, 3, 3], row_mask=row_mask
  )
  found = of_rows(batch, scale="none")
  np.testing.assert_allclose(
    found, [2 / 3, -1 / 3, -1 / 3, 0, 0, 0, 0, 0], rtol=1e-6
  )


def test_rows_of_one_episode_share_return_and_count_once(make_batch):
  # Episode 0 has rows 0 and 1, worth 1 + 2; the others are worth 0 and 3.
  batch = outcomes_batch(
    make_batch,
    [1, 2, 0, 3],
    episode_ids=np.array([0, 0, 1, 2], np.int32),
    group_ids=np.zeros(4, np.int32),
  )
  found = of_rows(batch, scale="none")
  np.testing.assert_allclose(found, [1, 1, -2, 1], rtol=1e-6)
  # As two agents of a team they are credited apart.
  team = batch.replace(agent_ids=np.array([0, 1, 0, 0], np.int32))
  np.testing.assert_allclose(
    of_rows(team, scale="none"), [-0.5, 0.5, -1.5, 1.5], rtol=1e-6
  )


def test_turn_credit_reaches_the_tokens_of_its_turn(make_batch):
  # Two rows act from one state; only the first turn's reward differs.
  batch = outcomes_batch(make_batch, [2, 0], group_ids=np.zeros(2, np.int32))
  turn_ids = np.full((2, 8), -1, np.int32)
  turn_ids[:, 1:3], turn_ids[:, 4:6] = 0, 1
  batch = batch.replace(
    turn_ids=turn_ids,
    action_mask=turn_ids >= 0,
    turn_mask=np.ones((2, 2), bool),
    state_ids=np.array([[0, 1], [0, -1]], np.int32),
  )
  config = AdvantageConfig(name="step_baseline")
  values = np.asarray(compute_advantages(batch, config=config))
  expected = np.zeros((2, 8))
  expected[0, 1:3], expected[1, 1:3] = 1, -1
  np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.fixture(scope="module")
def toy_learner(make_learner):
  return make_learner(LossConfig(), optax.adam(1e-2))


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_trains_and_ignores_the_order_of_rows(
  toy_learner, make_batch, name
):
  batch = make_batch()
  config = AdvantageConfig(name=name)
  values = np.asarray(compute_advantages(batch, config=config))
  order = np.random.default_rng(0).permutation(len(batch.tokens))
  shuffled = jax.tree.map(lambda x: x[order], batch)
  np.testing.assert_allclose(
    compute_advantages(shuffled, config=config),
    values[order],
    rtol=1e-4,
    atol=1e-6,
  )
  initial, fns = toy_learner
  state = jax.tree.map(jnp.copy, initial)
  for _ in range(2):
    state, metrics = update(state, [(batch, values)], fns=fns)
  assert metrics["grad_norm"] > 0
  assert metrics["skipped_updates"] == 0
  assert int(state.step) == 2


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_values_outside_actions_and_turns_never_matter(make_batch, name):
  batch = make_batch()
  config = AdvantageConfig(name=name)
  expected = compute_advantages(batch, config=config)
  rewards = np.where(batch.turn_mask, batch.turn_rewards, np.nan)
  spoilt = batch.replace(turn_rewards=rewards.astype(np.float32))
  found = compute_advantages(spoilt, config=config)
  np.testing.assert_array_equal(found, expected)


def test_an_estimator_of_ones_own(make_batch):
  def ones(batch, config):
    return np.ones(batch.tokens.shape) * config.step_weight

  batch = make_batch()
  config = AdvantageConfig(name=ones, step_weight=3.0)
  found = compute_advantages(batch, config=config)
  np.testing.assert_array_equal(found, 3.0 * batch.action_mask)


def test_mistakes_are_named():
  with pytest.raises(ValueError, match=r"'grpo'.*group_relative"):
    AdvantageConfig(name="grpo")
  with pytest.raises(ValueError, match="scale is 'max'"):
    AdvantageConfig(scale="max")
