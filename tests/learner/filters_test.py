"""Which rows each filter keeps, and what that does to the others."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.learner.credit import AdvantageConfig, compute_advantages
from arl_jax.learner.filters import (
  FILTERS,
  FilterConfig,
  RowFacts,
  accepted_rows,
  trained_rows,
)
from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import update

OUTCOMES = [1, 0, 0, 1, 3, 3, 3, 3]


def facts_of(batch, *, truncated=(), void=(), ages=(0,), draws=(0.0,)):
  """Facts of rows: which were truncated, which (row, turn) are void, ages."""
  is_truncated = np.zeros(len(batch.tokens), bool)
  is_truncated[list(truncated)] = True
  is_void = np.zeros(batch.turn_mask.shape, bool)
  for row, turn in void:
    is_void[row, turn] = True
  age = np.broadcast_to(np.array(ages, np.int32), is_truncated.shape)
  draw = np.broadcast_to(np.array(draws, np.float32), is_truncated.shape)
  return RowFacts(
    truncated=is_truncated, turn_is_void=is_void, age=age, draws=draw
  )


def before(batch, name, *, facts=None, logprobs=None, **fields):
  config = FilterConfig(before_advantages=(name,), **fields)
  found = accepted_rows(
    batch, facts or facts_of(batch), logprobs, config=config
  )
  return np.asarray(found.rows).astype(int).tolist()


def after(batch, name, advantages, *, facts=None, **fields):
  config = FilterConfig(after_advantages=(name,), **fields)
  values = np.zeros(batch.tokens.shape, np.float32)
  values[:, 2:5] = np.asarray(advantages)[:, None]
  found = trained_rows(batch, facts or facts_of(batch), values, config=config)
  return np.asarray(found.rows).astype(int).tolist()


def test_nonzero_advantages(make_outcomes):
  batch = make_outcomes(OUTCOMES)
  signs = [1, -1, 0, 1, 0, 0, 0, 2]
  assert after(batch, "nonzero_advantages", signs) == [1, 1, 0, 1, 0, 0, 0, 1]


def test_informative_groups(make_outcomes):
  batch = make_outcomes(OUTCOMES)
  assert before(batch, "informative_groups") == [1, 1, 1, 1, 0, 0, 0, 0]
  # A rejected row tells its group apart no longer, and is not kept itself.
  row_mask = np.array([1, 0, 0, 1, 1, 1, 1, 1], bool)
  alike = batch.replace(row_mask=row_mask)
  assert before(alike, "informative_groups") == [0] * 8


def test_groups_are_judged_by_whole_episodes(make_outcomes):
  # Each episode has two rows, worth 1 + 0 and 0 + 1: the same.
  batch = make_outcomes(
    [1, 0, 0, 1],
    episode_ids=np.array([0, 0, 1, 1], np.int32),
    group_ids=np.zeros(4, np.int32),
  )
  assert before(batch, "informative_groups") == [0, 0, 0, 0]
  rewards = batch.turn_rewards + np.array([[1], [0], [0], [0]], np.float32)
  better = batch.replace(turn_rewards=rewards)
  assert before(better, "informative_groups") == [1, 1, 1, 1]


def test_rows_of_an_episode_go_together(make_outcomes):
  episode_ids = np.array([0, 0, 1, 1, 2, 3, 4, 4], np.int32)
  batch = make_outcomes(OUTCOMES, episode_ids=episode_ids)
  facts = facts_of(batch, void=[(1, 0), (4, 0)])
  assert before(batch, "void_turns", facts=facts) == [0, 0, 1, 1, 0, 1, 1, 1]
  signs = [1] * 8
  found = after(batch, "void_turns", signs, facts=facts)
  assert found == [0, 0, 1, 1, 0, 1, 1, 1]
  # One that was rejected before takes nobody along, nor do other agents.
  row_mask = np.array([1, 0, 1, 1, 1, 1, 1, 1], bool)
  alone = batch.replace(row_mask=row_mask)
  assert before(alone, "void_turns", facts=facts) == [1, 0, 1, 1, 0, 1, 1, 1]
  agent_ids = np.array([0, 1, 0, 0, 0, 0, 0, 0], np.int32)
  team = batch.replace(agent_ids=agent_ids)
  assert before(team, "void_turns", facts=facts) == [1, 0, 1, 1, 0, 1, 1, 1]


def test_top_variance_groups(make_outcomes):
  batch = make_outcomes(
    [0, 1, 0, 9, 2, 2, 0, 4],
    group_ids=np.array([0, 0, 1, 1, 2, 2, 3, 3], np.int32),
  )
  keep = {0.25: [1], 0.5: [1, 3], 1.0: [0, 1, 2, 3]}
  for ratio, groups in keep.items():
    expected = [int(group in groups) for group in batch.group_ids]
    found = before(batch, "top_variance_groups", keep_ratio=ratio)
    assert found == expected


def test_truncation(make_outcomes):
  batch = make_outcomes(OUTCOMES)
  facts = facts_of(batch, truncated=(0, 1))
  signs = [1, -1, -1, 1, 0, 0, 0, 0]
  expected = {
    "none": [1] * 8,
    "negative": [1, 0] + [1] * 6,
    "all": [0, 0] + [1] * 6,
  }
  for drop, rows in expected.items():
    found = after(batch, "truncation", signs, facts=facts, truncation_drop=drop)
    assert found == rows
  assert before(batch, "truncation", facts=facts) == expected["all"]


def test_void_turns(make_outcomes):
  batch = make_outcomes(OUTCOMES)
  # The second turn of row 5 did not take place.
  facts = facts_of(batch, void=[(2, 0), (5, 1)])
  assert before(batch, "void_turns", facts=facts) == [1, 1, 0, 1, 1, 1, 1, 1]


def test_sequence_ratio(make_outcomes):
  batch = make_outcomes(OUTCOMES)
  shift = np.zeros(batch.tokens.shape, np.float32)
  shift[0, 2], shift[1, 2:5], shift[2] = np.log(8), -np.log(2), 99
  shift[2, 2:5] = 0
  logprobs = batch.behavior_logprobs + shift
  rows = before(
    batch,
    "sequence_ratio",
    logprobs=logprobs,
    ratio_lower=0.6,
    ratio_upper=1.9,
  )
  # Geometric means 2 and 1/2; what is masked is not read.
  assert rows == [0, 0, 1, 1, 1, 1, 1, 1]
  rows = before(
    batch,
    "sequence_ratio",
    logprobs=logprobs,
    ratio_metric="max_ratio",
    ratio_upper=7.0,
  )
  assert rows == [0, 1, 1, 1, 1, 1, 1, 1]


def test_age(make_outcomes):
  batch = make_outcomes(OUTCOMES)
  facts = facts_of(batch, ages=[0, 1, 2, 3, 0, 0, 2, 9])
  assert before(batch, "age", facts=facts, max_age=2) == [
    1,
    1,
    1,
    0,
    1,
    1,
    1,
    0,
  ]
  assert before(batch, "age", facts=facts, max_age=0) == [
    1,
    0,
    0,
    0,
    1,
    1,
    0,
    0,
  ]
  kept = after(batch, "age", [1] * 8, facts=facts, max_age=1)
  assert kept == [1, 1, 0, 0, 1, 1, 0, 0]


def test_repetition(make_outcomes):
  # Actions of three tokens.
  tokens = np.zeros((8, 8), np.int32)
  tokens[:, 2:5] = [[1, 2, 3], [1, 1, 2], [1, 1, 1], [1, 2, 1]] * 2
  width = make_outcomes(OUTCOMES).tokens.shape[1]
  batch = make_outcomes(OUTCOMES, tokens=tokens[:, :width])
  expected = {0.0: [1, 0, 0, 0] * 2, 0.34: [1, 1, 0, 1] * 2, 0.7: [1] * 8}
  for limit, rows in expected.items():
    options = dict(max_repetition=limit, repetition_ngram=1)
    assert before(batch, "repetition", **options) == rows


def test_overlong_counts_the_actions_of_whole_episodes(make_outcomes):
  episode_ids = np.array([0, 0, 1, 2, 3, 4, 5, 5], np.int32)
  batch = make_outcomes(OUTCOMES, episode_ids=episode_ids)
  for length, rows in {
    2: [0] * 8,
    3: [0, 0, 1, 1, 1, 1, 0, 0],
    6: [1] * 8,
  }.items():
    found = after(batch, "overlong", [1] * 8, overlong_length=length)
    assert found == rows


def test_negatives_are_left_out_by_their_draw(make_outcomes):
  batch = make_outcomes(OUTCOMES)
  facts = facts_of(batch, draws=[0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
  signs = [1, -1, -1, -1, 0, -1, 1, -1]
  for ratio, rows in {
    0.0: [1, 0, 0, 0, 1, 0, 1, 0],
    0.25: [1, 1, 1, 0, 1, 0, 1, 0],
    1.0: [1] * 8,
  }.items():
    options = dict(facts=facts, negative_keep_ratio=ratio)
    assert after(batch, "negatives", signs, **options) == rows


def test_a_row_too_old_to_compare_moves_no_baseline(make_outcomes):
  batch = make_outcomes([9, 1, 0, 2], group_ids=np.zeros(4, np.int32))
  facts = facts_of(batch, ages=[5, 0, 1, 1])
  config = FilterConfig(before_advantages=("age",), max_age=1)
  rows = accepted_rows(batch, facts, config=config).rows
  batch = batch.replace(row_mask=np.asarray(rows))
  credit = AdvantageConfig(scale="none")
  advantages = np.asarray(compute_advantages(batch, config=credit))
  np.testing.assert_allclose(advantages[:, 2], [0, 0, -1, 1])


def test_each_filter_sees_what_the_ones_before_it_kept(make_outcomes):
  # Without its void row, group 0 is not informative any more.
  batch = make_outcomes([1, 0, 1, 1, 3, 2, 3, 3])
  facts = facts_of(batch, void=[(1, 0)])
  names = ("void_turns", "informative_groups")
  for order, expected, turned_away in (
    (names, [0, 0, 0, 0, 1, 1, 1, 1], [1, 3]),
    (names[::-1], [1, 0, 1, 1, 1, 1, 1, 1], [0, 1]),
  ):
    config = FilterConfig(before_advantages=order)
    found = accepted_rows(batch, facts, config=config)
    np.testing.assert_array_equal(found.rows, expected)
    np.testing.assert_array_equal(found.turned_away, turned_away)


def test_rejected_rows_leave_the_baseline_and_dropped_ones_do_not(
  make_outcomes,
):
  batch = make_outcomes([9, 1, 0, 2], group_ids=np.zeros(4, np.int32))
  facts = facts_of(batch, truncated=[0])
  credit = AdvantageConfig(scale="none")
  early = FilterConfig(before_advantages=("truncation",), after_advantages=())
  rows = accepted_rows(batch, facts, config=early).rows
  rejected = batch.replace(row_mask=np.asarray(rows))
  advantages = np.asarray(compute_advantages(rejected, config=credit))
  np.testing.assert_allclose(advantages[:, 2], [0, 0, -1, 1])

  late = FilterConfig(after_advantages=("truncation",))
  advantages = np.asarray(compute_advantages(batch, config=credit))
  rows = trained_rows(batch, facts, advantages, config=late).rows
  np.testing.assert_array_equal(rows, [0, 1, 1, 1])
  np.testing.assert_allclose(advantages[:, 2], [6, -2, -3, -1])


def test_a_dropped_group_has_no_gradient_at_all(make_learner, make_batch):
  batch = make_batch()
  rewards = np.where(batch.group_ids[:, None] == 0, batch.turn_rewards, 0)
  batch = batch.replace(turn_rewards=rewards)
  advantages = np.asarray(compute_advantages(batch, config=AdvantageConfig()))
  rows = np.asarray(
    trained_rows(batch, facts_of(batch), advantages, config=FilterConfig()).rows
  )
  np.testing.assert_array_equal(rows, batch.group_ids == 0)
  # Its values do not matter, not even with a loss that acts without advantages.
  initial, fns = make_learner(LossConfig(entropy_weight=0.1), optax.sgd(1.0))
  results = []
  for token in (0, 3):
    tokens = np.where(rows[:, None], batch.tokens, token)
    kept = batch.replace(tokens=tokens, row_mask=rows)
    state = jax.tree.map(jnp.copy, initial)
    state, metrics = update(state, [(kept, advantages)], fns=fns)
    results.append((jax.device_get(state.params), metrics))
  assert results[0][1] == results[1][1]
  assert results[0][1]["tokens"] == batch.action_mask[rows].sum()
  jax.tree.map(np.testing.assert_array_equal, results[0][0], results[1][0])


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_every_filter_compiles_once_per_shape(make_batch, name):
  traces = []

  def counted(terms, config):
    traces.append(terms.batch.tokens.shape)
    return FILTERS[name](terms, config)

  config = FilterConfig(
    after_advantages=(counted,), max_age=1, overlong_length=9
  )
  shapes = [(8, 16), (4, 20)]
  for shape in shapes:
    for seed in (0, 1):
      batch = make_batch(*shape, seed=seed)
      values = np.ones(shape, np.float32)
      rows = trained_rows(
        batch, facts_of(batch), values, batch.behavior_logprobs, config=config
      ).rows
      assert rows.shape == shape[:1]
      assert rows.dtype == bool
  assert traces == shapes


def test_a_filter_of_ones_own(make_outcomes):
  def first_half(terms, config):
    assert terms.advantages is None
    return np.arange(len(terms.batch.tokens)) < 8 * config.keep_ratio

  batch = make_outcomes(OUTCOMES)
  assert before(batch, first_half) == [1, 1, 1, 1, 0, 0, 0, 0]


def test_only_ratios_need_logprobs():
  assert not FilterConfig().reads_logprobs
  assert FilterConfig(needs_logprobs=True).reads_logprobs
  assert FilterConfig(before_advantages=("sequence_ratio",)).reads_logprobs


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"before_advantages": ("void",)}, "has 'void'; expected.*void_turns"),
    ({"before_advantages": ("nonzero_advantages",)}, "move it to after"),
    (
      {"before_advantages": ("truncation",), "truncation_drop": "negative"},
      "'negative' reads advantages",
    ),
    ({"truncation_drop": "some"}, "truncation_drop is 'some'"),
    ({"ratio_metric": "k1"}, "ratio_metric is 'k1'"),
    ({"keep_ratio": 0.0}, "keep_ratio is 0.0"),
    ({"before_advantages": ("age",)}, "'age', which needs max_age"),
    ({"max_age": 2}, "max_age is 2, but no filter reads it; add 'age'"),
    ({"before_advantages": ("negatives",)}, "'negatives', which reads adv"),
    ({"after_advantages": ("overlong",)}, "which needs overlong_length"),
  ],
)
def test_mistakes_are_named(fields, message):
  with pytest.raises(ValueError, match=message):
    FilterConfig(**fields)
