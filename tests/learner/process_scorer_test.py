"""What a head learns of turns, and what its scores do to credit."""

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from arl_jax.learner import process_scorer
from arl_jax.learner.credit import AdvantageConfig, compute_advantages
from arl_jax.learner.process_scorer import (
  Place,
  ScorerConfig,
  add_process_scores,
  fit_head,
  init_head,
  make_shaping,
  score_turns,
  turn_places,
  turn_vectors,
)
from arl_jax.learner.shaping import ShapingConfig, shape_rewards
from arl_jax.learner.state import ModelFns
from arl_jax.models import transformer
from arl_jax.types import TrajectoryBatch

CONFIG = transformer.ModelConfig(
  vocab_size=16,
  num_layers=2,
  model_dim=32,
  num_heads=2,
  num_kv_heads=1,
  head_dim=16,
  mlp_dim=64,
)
MODEL = ModelFns(
  functools.partial(transformer.forward, config=CONFIG),
  functools.partial(transformer.unembedding, config=CONFIG),
)
NUM_TURNS = 4
ASK, OKAY, ERROR = 1, 2, 3
# Actions from here on are good, those below are mistakes.
FIRST_ACTION, FIRST_GOOD = 6, 11


@pytest.fixture(scope="module")
def params():
  return transformer.init_params(jax.random.key(0), CONFIG)


def make_rows(num_rows, seed) -> Any:
  """Episodes that succeed the rarer, the more mistakes are in them.

  A row is [ask, (action, action, answer of the tool) for each turn].
  """
  rng = np.random.default_rng(seed)
  num_tokens = 1 + 3 * NUM_TURNS
  tokens = np.zeros((num_rows, num_tokens), np.int32)
  turn_ids = np.full((num_rows, num_tokens), -1, np.int32)
  turn_mask = np.zeros((num_rows, NUM_TURNS), bool)
  rewards = np.zeros((num_rows, NUM_TURNS), np.float32)
  segments = np.zeros((num_rows, num_tokens), np.int32)
  for b in range(num_rows):
    tokens[b, 0], length = ASK, int(rng.integers(2, NUM_TURNS + 1))
    bad = rng.random(length) < 0.35
    for k in range(length):
      low, high = (FIRST_ACTION, FIRST_GOOD) if bad[k] else (FIRST_GOOD, 16)
      tokens[b, 1 + 3 * k : 3 + 3 * k] = rng.integers(low, high, 2)
      tokens[b, 3 + 3 * k] = ERROR if bad[k] else OKAY
      turn_ids[b, 1 + 3 * k : 3 + 3 * k] = k
    turn_mask[b, :length] = True
    segments[b, : 1 + 3 * length] = 1
    rewards[b, length - 1] = rng.random() < 0.95 * 0.25 ** bad.sum()
  shape = (num_rows, num_tokens)
  fields: dict[str, Any] = dict(
    tokens=tokens,
    action_mask=turn_ids >= 0,
    turn_ids=turn_ids,
    segment_ids=segments,
    positions=np.broadcast_to(np.arange(num_tokens, dtype=np.int32), shape),
    behavior_logprobs=np.zeros(shape, np.float32),
    policy_versions=np.where(turn_ids >= 0, 0, -1).astype(np.int32),
    turn_rewards=rewards,
    turn_mask=turn_mask,
    group_ids=(np.arange(num_rows) // 4).astype(np.int32),
    episode_ids=np.arange(num_rows, dtype=np.int32),
    agent_ids=np.zeros(num_rows, np.int32),
    state_ids=np.full((num_rows, NUM_TURNS), -1, np.int32),
    edge_ids=np.full((num_rows, NUM_TURNS), -1, np.int32),
    row_mask=np.ones(num_rows, bool),
  )
  return TrajectoryBatch(**fields)


def targets_of(batch):
  return arl.monte_carlo_targets(
    batch.turn_rewards,
    batch.state_ids,
    batch.turn_mask,
    num_states=batch.state_ids.size,
  )


def area_under_curve(scores, labels):
  """Chance that a success is scored above a failure."""
  good, bad = scores[labels > 0.5], scores[labels < 0.5]
  wins = (good[:, None] > bad) + 0.5 * (good[:, None] == bad)
  return float(wins.mean())


def judged(params, head, batch, **options):
  """Area, calibration error and Brier score on a batch."""
  scores = score_turns(params, head, batch, model=MODEL, **options)
  targets = targets_of(batch)
  live = np.asarray(batch.turn_mask)
  area = area_under_curve(np.asarray(scores)[live], np.asarray(targets)[live])
  error = arl.calibration_error(scores, targets, live)
  return area, float(error), float(arl.brier_score(scores, targets, live))


@pytest.mark.parametrize(("at", "hidden_dim"), [("before", 0), ("after", 32)])
def test_a_head_learns_what_turns_lead_to(params, at, hidden_dim):
  train, test = make_rows(1024, seed=1), make_rows(512, seed=2)
  vectors, live = turn_vectors(params, train, model=MODEL, at=at)
  targets = targets_of(train)
  head = init_head(jax.random.key(1), 32, hidden_dim=hidden_dim)
  untrained = judged(params, head, test, at=at)
  assert untrained[0] == 0.5  # it says 0.5 of everything
  head, losses = fit_head(head, vectors, targets, live)
  assert losses[-1] < losses[0]
  area, error, brier = judged(params, head, test, at=at)
  # Before the first action there is nothing to know.
  assert area > (0.72 if at == "after" else 0.66)
  assert error < 0.15
  assert brier < untrained[2] - 0.02
  # The same head on labels of other rows knows nothing.
  shuffled = targets[np.random.default_rng(0).permutation(len(targets))]
  fresh = init_head(jax.random.key(1), 32, hidden_dim=hidden_dim)
  guess, _ = fit_head(fresh, vectors, shuffled, live)
  assert judged(params, guess, test, at=at)[0] < 0.62


def test_the_same_key_gives_the_same_head(params):
  batch = make_rows(16, seed=3)
  vectors, live = turn_vectors(params, batch, model=MODEL)
  config = ScorerConfig(num_steps=20)

  def fitted(seed):
    head = init_head(jax.random.key(seed), 32, hidden_dim=8)
    return fit_head(head, vectors, targets_of(batch), live, config=config)[0]

  first, again, other = fitted(0), fitted(0), fitted(1)
  jax.tree.map(np.testing.assert_array_equal, first, again)
  assert not np.allclose(first["w_in"], other["w_in"])


def test_turns_are_read_where_they_begin_or_end(params):
  batch = make_rows(5, seed=4)
  before, live = turn_places(batch, at="before")
  after, _ = turn_places(batch, at="after")
  np.testing.assert_array_equal(live, batch.turn_mask)
  wanted = 3 * np.arange(NUM_TURNS)
  np.testing.assert_array_equal(before, np.where(live, wanted, 0))
  np.testing.assert_array_equal(after, np.where(live, wanted + 2, 0))
  hidden = MODEL.apply(
    params,
    jnp.asarray(batch.tokens),
    jnp.asarray(batch.positions),
    jnp.asarray(batch.segment_ids),
  )
  # Parts of any size, the last not full, read the same.
  for rows_at_once in (2, 5, 64):
    vectors, _ = turn_vectors(
      params, batch, model=MODEL, at="after", rows_at_once=rows_at_once
    )
    expected = np.take_along_axis(
      np.asarray(hidden), np.asarray(after)[:, :, None], axis=1
    )
    np.testing.assert_allclose(
      vectors, np.where(live[:, :, None], expected, 0.0), atol=1e-5
    )
  with pytest.raises(ValueError, match="at is 'between'"):
    turn_places(batch, at=cast(Any, "between"))


def test_the_future_of_a_turn_is_not_in_its_score(params):
  batch = make_rows(6, seed=5)
  head = {"w": jnp.ones(32), "b": jnp.zeros(())}
  tokens = np.array(batch.tokens)
  tokens[:, 4:] = ERROR  # all but the first turn and its answer
  other = batch.replace(tokens=tokens)
  places: tuple[tuple[Place, int], ...] = (("before", 2), ("after", 1))
  for at, same in places:
    found, changed = (
      np.asarray(score_turns(params, head, b, model=MODEL, at=at))
      for b in (batch, other)
    )
    np.testing.assert_allclose(found[:, :same], changed[:, :same], atol=1e-6)
    assert not np.allclose(found[:, same], changed[:, same], atol=1e-3)
    assert (found[~np.asarray(batch.turn_mask)] == 0).all()


def test_scores_become_rewards():
  batch = make_rows(4, seed=6)
  scores = np.where(batch.turn_mask, [[0.25, 0.5, 0.75, 1.0]], np.nan)
  kept = add_process_scores(batch, jnp.asarray(scores), weight=0.0)
  np.testing.assert_array_equal(kept.turn_rewards, batch.turn_rewards)
  added = add_process_scores(batch, jnp.asarray(scores), weight=2.0, mode="add")
  wanted = batch.turn_rewards + 2.0 * np.nan_to_num(scores)
  np.testing.assert_allclose(added.turn_rewards, wanted)
  with pytest.raises(ValueError, match="mode is 'sum'"):
    add_process_scores(
      batch, jnp.asarray(scores), weight=1.0, mode=cast(Any, "sum")
    )


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_potentials_move_turns_but_not_episodes(params, discount):
  batch = make_rows(8, seed=7)
  head = {"w": jnp.ones(32), "b": jnp.zeros(())}
  options: Any = {"model": MODEL, "weight": 0.5, "discount": discount}

  def advantages(name, mode):
    shaping = make_shaping(params, head, mode=mode, **options)
    found = shape_rewards(batch, config=ShapingConfig(names=(shaping,)))
    config = AdvantageConfig(name=name, scale="none", discount=discount)
    shaped = batch.replace(turn_rewards=np.asarray(found.turn_rewards))
    return tuple(
      np.asarray(compute_advantages(b, config=config)) for b in (batch, shaped)
    )

  # All rows have the same prompt, and so the same first value.
  before, after = advantages("group_relative", "potential")
  np.testing.assert_allclose(after, before, atol=1e-5)
  before, after = advantages("mt_grpo", "potential")
  assert not np.allclose(after, before, atol=1e-3)
  # Paid as they are, scores favour what takes longer.
  before, after = advantages("group_relative", "add")
  assert not np.allclose(after, before, atol=1e-3)


@pytest.mark.parametrize(
  ("field", "value"),
  [("num_steps", 0), ("learning_rate", 0.0), ("weight_decay", -1.0)],
)
def test_settings_are_checked(field, value):
  with pytest.raises(ValueError, match=f"{field} is|{field} {value}"):
    process_scorer.ScorerConfig(**{field: value})
