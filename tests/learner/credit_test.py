import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.learner.credit import (
  ESTIMATORS,
  AdvantageConfig,
  compute_advantages,
  history_contexts,
)
from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import update
from arl_jax.ops.grouping import dense_ids, history_context_ids


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


def test_group_relative_golden(make_outcomes):
  batch = make_outcomes([1, 0, 0, 1, 3, 3, 3, 3])
  std = np.std([1, 0, 0, 1], ddof=1)
  expected = np.array([0.5, -0.5, -0.5, 0.5, 0, 0, 0, 0])
  np.testing.assert_allclose(of_rows(batch), expected / std, rtol=1e-5)
  np.testing.assert_allclose(of_rows(batch, scale="none"), expected)
  np.testing.assert_allclose(
    of_rows(batch, name="leave_one_out"), expected * 4 / 3, rtol=1e-6
  )


def test_rejected_row_moves_nobody(make_outcomes):
  row_mask = np.ones(8, bool)
  row_mask[3] = False
  batch = make_outcomes([1, 0, 0, 100, 3, 3, 3, 3], row_mask=row_mask)
  found = of_rows(batch, scale="none")
  np.testing.assert_allclose(
    found, [2 / 3, -1 / 3, -1 / 3, 0, 0, 0, 0, 0], rtol=1e-6
  )


_WHOLE = [
  "group_relative",
  "leave_one_out",
  "length_weighted",
  "group_policy_gradient",
  "pass_at_k",
  "returns",
  "decayed_outcome",
]


@pytest.mark.parametrize("discount", [1.0, 0.5])
@pytest.mark.parametrize("name", _WHOLE)
def test_an_episode_in_several_rows_is_credited_as_in_one(
  make_outcomes, name, discount
):
  turn_ids = np.full((3, 8), -1, np.int32)
  turn_ids[:, 1:7] = [0, 0, 1, 1, 2, 2]
  turn_ids[2, 5:7] = -1  # two turns alone
  rewards = np.array([[1, 0, 4], [0, 2, 1], [3, 5, 0]], np.float32)

  def batch_of(turn_ids, rewards, episode_ids):
    num_turns = turn_ids.max(axis=1)[:, None] + 1
    return make_outcomes(
      [0] * len(turn_ids),
      group_ids=np.zeros(len(turn_ids), np.int32),
      episode_ids=np.array(episode_ids, np.int32),
      turn_ids=turn_ids,
      action_mask=turn_ids >= 0,
      turn_mask=np.arange(3) < num_turns,
      turn_rewards=rewards,
    )

  config = AdvantageConfig(name=name, discount=discount)
  whole = batch_of(turn_ids, rewards, [0, 1, 2])
  expected = np.asarray(compute_advantages(whole, config=config))
  # The first episode has its turns 0 and 1 in one row, and 2 in the next; the
  # second one has a row for each turn.
  split_ids = np.full((6, 8), -1, np.int32)
  split_ids[0, 1:5], split_ids[1, 5:7] = [0, 0, 1, 1], 0
  split_ids[2, 1:3] = split_ids[3, 3:5] = split_ids[4, 5:7] = 0
  split_ids[5] = turn_ids[2]
  split_rewards = np.array(
    [[1, 0, 0], [4, 0, 0], [0, 0, 0], [2, 0, 0], [1, 0, 0], [3, 5, 0]],
    np.float32,
  )
  split = batch_of(split_ids, split_rewards, [0, 0, 1, 1, 1, 2])
  found = np.asarray(compute_advantages(split, config=config))
  joined = np.stack([found[:2].sum(0), found[2:5].sum(0), found[5]])
  np.testing.assert_allclose(joined, expected, rtol=1e-5, atol=1e-6)
  assert np.any(expected)


def test_outcomes_decay_towards_the_first_turn(make_outcomes):
  turn_ids = np.array(
    [[-1, 0, 0, 1, -1, 2, 2, -1], [-1, 0, 0, 1, 1, -1, -1, -1]], np.int32
  )
  batch = make_outcomes(
    [0, 0],
    group_ids=np.zeros(2, np.int32),
    turn_ids=turn_ids,
    action_mask=turn_ids >= 0,
    turn_mask=np.array([[1, 1, 1], [1, 1, 0]], bool),
    turn_rewards=np.array([[0, 0, 1], [0, 0, 0]], np.float32),
  )
  config = AdvantageConfig(name="decayed_outcome", discount=0.5)
  values = compute_advantages(batch, config=config)
  expected = [
    [0, 0.25, 0.25, 0.5, 0, 1, 1, 0],
    [0, -0.5, -0.5, -1, -1, 0, 0, 0],
  ]
  np.testing.assert_allclose(values, expected, rtol=1e-6)
  halved = dataclasses.replace(config, negative_weight=0.5)
  values = compute_advantages(batch, config=halved)
  expected[1] = [value / 2 for value in expected[1]]
  np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_rows_of_one_episode_share_return_and_count_once(make_outcomes):
  # Episode 0 has rows 0 and 1, worth 1 + 2; the others are worth 0 and 3.
  batch = make_outcomes(
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


def test_turn_credit_reaches_the_tokens_of_its_turn(make_outcomes):
  # Two rows act from one state; only the first turn's reward differs.
  batch = make_outcomes([2, 0], group_ids=np.zeros(2, np.int32))
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


def test_history_contexts_are_those_of_the_host(make_batch):
  batch = make_batch(num_rows=12, num_tokens=32, num_turns=6)
  rng = np.random.default_rng(2)
  known = batch.turn_mask & (rng.random(batch.turn_mask.shape) < 0.9)
  keys = [
    [int(key) if is_known else None for key, is_known in zip(*row, strict=True)]
    for row in zip(rng.integers(0, 2, size=known.shape), known, strict=True)
  ]
  groups = np.asarray(batch.group_ids)
  ids = dense_ids(
    None if key is None else (group, key)
    for group, row in zip(groups, keys, strict=True)
    for key in row
  )
  batch = batch.replace(state_ids=ids.reshape(known.shape))
  expected = history_context_ids(keys, groups.tolist(), num_levels=3)
  found = np.asarray(history_contexts(batch, num_levels=3))
  assert found.max() < found[0].size
  np.testing.assert_array_equal(found >= 0, expected >= 0)
  for one, two in zip(found, expected, strict=True):
    assert len(np.unique(two)) > 2
    np.testing.assert_array_equal(
      one.reshape(-1, 1) == one.reshape(-1), two.reshape(-1, 1) == two.ravel()
    )


def test_hgpo_golden(make_outcomes):
  # Both rows go from state 0 to state 1, a third comes to it from nowhere.
  turn_ids = np.full((3, 8), -1, np.int32)
  turn_ids[:, 1:3], turn_ids[:2, 4:6] = 0, 1
  batch = make_outcomes(
    [0, 0, 6],
    turn_ids=turn_ids,
    action_mask=turn_ids >= 0,
    turn_mask=np.array([[1, 1], [1, 1], [1, 0]], bool),
    turn_rewards=np.array([[0, 3], [0, 0], [6, 0]], np.float32),
    state_ids=np.array([[0, 1], [0, 1], [1, -1]], np.int32),
  )
  values = np.asarray(
    compute_advantages(
      batch,
      config=AdvantageConfig(
        name="hgpo", scale="none", history_levels=2, history_power=1.0
      ),
    )
  )
  # State 1: returns 3, 0, 6 with mean 3. After state 0: 3, 0 with mean 1.5.
  # Level 1 weighs twice as much as level 0.
  np.testing.assert_allclose(values[:, 1], [1.5, -1.5, 3.0])
  np.testing.assert_allclose(
    values[:2, 4], [(0 + 2 * 1.5) / 3, (-3 + 2 * -1.5) / 3], rtol=1e-6
  )
  with pytest.raises(ValueError, match="history_levels is 0"):
    AdvantageConfig(history_levels=0)


@pytest.fixture(scope="module")
def toy_learner(make_learner):
  return make_learner(LossConfig(), optax.adam(1e-2))


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_trains_and_ignores_the_order_of_rows(
  toy_learner, make_batch, name
):
  traces = []

  def counted(batch, config):
    traces.append(batch.tokens.shape)
    return ESTIMATORS[name](batch, config)

  batch = make_batch()
  config = AdvantageConfig(name=counted)
  values = np.asarray(compute_advantages(batch, config=config))
  order = np.random.default_rng(0).permutation(len(batch.tokens))
  shuffled = jax.tree.map(lambda x: x[order], batch)
  np.testing.assert_allclose(
    compute_advantages(shuffled, config=config),
    values[order],
    rtol=1e-4,
    atol=1e-6,
  )
  assert traces == [batch.tokens.shape]
  initial, fns = toy_learner
  state = jax.tree.map(jnp.copy, initial)
  for _ in range(2):
    state, metrics = update(state, [(batch, values)], fns=fns)
  assert metrics["grad_norm"] > 0
  assert metrics["skipped_updates"] == 0
  assert int(state.step) == 2
  # One compile of the update serves every estimator.
  assert fns.gradient._cache_size() == 1
  assert fns.apply._cache_size() == 1


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
