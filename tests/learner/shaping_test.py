"""What each shaping makes of turn rewards."""

import numpy as np
import pytest

from arl_jax.learner.credit import AdvantageConfig, compute_advantages
from arl_jax.learner.shaping import SHAPINGS, ShapingConfig, shape_rewards


@pytest.fixture
def two_rows(make_outcomes):
  """Rows of 3 and 2 turns with 6 and 2 action tokens."""
  turn_ids = np.array(
    [[-1, 0, 0, 1, 1, -1, 2, 2], [-1, 0, -1, 1, -1, -1, -1, -1]], np.int32
  )
  return make_outcomes(
    [0, 0],
    group_ids=np.zeros(2, np.int32),
    turn_ids=turn_ids,
    action_mask=turn_ids >= 0,
    turn_mask=np.array([[1, 1, 1], [1, 1, 0]], bool),
    turn_rewards=np.array([[0.5, 0.25, 1.0], [0.5, 0.5, 9.0]], np.float32),
  )


def shaped(batch, *names, **fields):
  config = ShapingConfig(names=names, **fields)
  return shape_rewards(batch, config=config).turn_rewards


def test_overlong_penalty(two_rows):
  # Half of the buffer of 4 before 8 tokens is used, and it weighs 3.
  lengths = dict(overlong_length=8, overlong_buffer=4, overlong_weight=3.0)
  found = shaped(two_rows, "overlong_penalty", **lengths)
  expected = [[0.5, 0.25, 1.0 - 1.5], [0.5, 0.5, 0.0]]
  np.testing.assert_allclose(found, expected)
  # It moves the baseline: the returns are 1.75 - 1.5 and 1.
  batch = two_rows.replace(turn_rewards=np.asarray(found))
  advantages = compute_advantages(batch, config=AdvantageConfig(scale="none"))
  np.testing.assert_allclose(advantages[:, 1], [-0.375, 0.375])


@pytest.mark.parametrize(
  ("mode", "last"),
  [("min", [0.25, 0.5]), ("mean", [1.75 / 3, 0.5]), ("last", [1.0, 0.5])],
)
def test_process_return(two_rows, mode, last):
  found = shaped(two_rows, "process_return", process_mode=mode)
  expected = [[0, 0, last[0]], [0, last[1], 0]]
  np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_soft_min(two_rows):
  found = np.asarray(shaped(two_rows, "soft_min", process_temperature=0.25))
  weights = np.exp([-2.0, -1.0, -4.0])
  expected = [0.5, 0.25, 1.0] * weights / weights.sum()
  np.testing.assert_allclose(found[0], expected, rtol=1e-5)
  np.testing.assert_allclose(found[1], [0.25, 0.25, 0.0], rtol=1e-6)


def test_shapings_follow_each_other_and_may_be_ones_own(two_rows):
  def double(batch, config):
    return 2.0 * batch.turn_rewards

  found = shaped(two_rows, "process_return", double)
  np.testing.assert_allclose(found, [[0, 0, 0.5], [0, 1, 0]])
  np.testing.assert_allclose(shaped(two_rows)[1], [0.5, 0.5, 0.0])


def test_an_action_that_goes_in_circles_costs_its_turn(two_rows):
  # The turns of row 0 are 1 1, 1 1 and 1 1: of two tokens, one is new.
  tokens = np.ones_like(two_rows.tokens)
  fields = dict(repetition_ngram=1, repetition_weight=2.0)
  batch = two_rows.replace(tokens=tokens)
  found = shaped(batch, "repetition_penalty", **fields)
  np.testing.assert_allclose(found, [[-0.5, -0.75, 0.0], [0.5, 0.5, 0.0]])


def test_it_says_how_far_returns_were_moved(two_rows):
  def double(batch, config):
    return 2.0 * batch.turn_rewards

  config = ShapingConfig(names=("process_return", double))
  # Returns of 1.75 and 1 become minima of 0.25 and 0.5, then twice as much.
  found = shape_rewards(two_rows, config=config)
  np.testing.assert_allclose(found.changes, [-1.0, 0.375])
  alone = two_rows.replace(row_mask=np.array([True, False]))
  found = shape_rewards(alone, config=config)
  np.testing.assert_allclose(found.changes, [-1.5, 0.25])


@pytest.mark.parametrize("name", sorted(SHAPINGS))
def test_every_shaping_compiles_once_and_reads_no_other_turn(make_batch, name):
  traces = []

  def counted(batch, config):
    traces.append(batch.tokens.shape)
    return SHAPINGS[name](batch, config)

  config = ShapingConfig(names=(counted,), overlong_length=6, overlong_buffer=4)
  batch = make_batch()
  spoilt = np.where(batch.turn_mask, batch.turn_rewards, np.nan)
  np.testing.assert_array_equal(
    shape_rewards(batch, config=config).turn_rewards,
    shape_rewards(
      batch.replace(turn_rewards=spoilt.astype(np.float32)), config=config
    ).turn_rewards,
  )
  assert traces == [batch.tokens.shape]


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"names": ("overlong",)}, "names has 'overlong'"),
    ({"names": ("overlong_penalty",)}, "found length None and buffer None"),
    (
      {
        "names": ("overlong_penalty",),
        "overlong_length": 4,
        "overlong_buffer": 5,
      },
      "length 4 and buffer 5",
    ),
    ({"process_mode": "max"}, "process_mode is 'max'"),
    ({"process_temperature": 0.0}, "process_temperature is 0.0"),
  ],
)
def test_mistakes_are_named(fields, message):
  with pytest.raises(ValueError, match=message):
    ShapingConfig(**fields)
