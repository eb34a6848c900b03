"""One learner step on a toy policy: what its settings do to the rows."""

import dataclasses
import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.episode import Episode, EpisodeStatus, Group, Row, Task, Turn
from arl_jax.learner import sharding
from arl_jax.learner.credit import AdvantageConfig
from arl_jax.learner.filters import FilterConfig
from arl_jax.learner.shaping import ShapingConfig
from arl_jax.learner.state import ModelFns, init_state, state_shardings
from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import make_update_fns
from arl_jax.run import learner_step
from arl_jax.run.settings import LearnerSettings, RolloutSettings

TASK = Task(task_id="t", prompt="p")
VOCAB = 5
NO_FILTERS = FilterConfig(after_advantages=())


def make_episode(reward, tokens, *, status=EpisodeStatus.TERMINATED):
  mask = np.arange(len(tokens)) > 0
  return Episode(
    task=TASK,
    member=0,
    status=status,
    rows=(
      Row(
        tokens=np.asarray(tokens, np.int32),
        action_mask=mask,
        turn_ids=np.where(mask, 0, -1).astype(np.int32),
        behavior_logprobs=np.where(mask, -1.5, 0.0).astype(np.float32),
        policy_versions=np.where(mask, 0, -1).astype(np.int32),
      ),
    ),
    turns=(Turn(action="a", finish_reason="stop", reward=reward),),
  )


def make_observed_episode(reward):
  """Two prompt tokens, an action 1, the observation 2 3, an action 4, and 2."""
  tokens = [0, 0, 1, 2, 3, 4, 2]
  turn_ids = [-1, -1, 0, -1, -1, 1, -1]
  mask = np.asarray(turn_ids) >= 0
  return Episode(
    task=TASK,
    member=0,
    status=EpisodeStatus.TIMEOUT,
    rows=(
      Row(
        tokens=np.asarray(tokens, np.int32),
        action_mask=mask,
        turn_ids=np.asarray(turn_ids, np.int32),
        behavior_logprobs=np.where(mask, -1.5, 0.0).astype(np.float32),
        policy_versions=np.where(mask, 0, -1).astype(np.int32),
      ),
    ),
    turns=(
      Turn(action="a", finish_reason="stop"),
      Turn(action="b", finish_reason="stop", reward=reward),
    ),
  )


def make_long_episode(reward, *, num_rows):
  """Two actions, 1 and then 4, in one row or in two."""
  turn_ids = [[-1, 0, -1, 1]] if num_rows == 1 else [[-1, 0], [-1, -1, -1, 1]]
  rows = []
  for ids in turn_ids:
    mask = np.asarray(ids) >= 0
    rows.append(
      Row(
        tokens=np.asarray([0, 1, 2, 4][: len(ids)], np.int32),
        action_mask=mask,
        turn_ids=np.asarray(ids, np.int32),
        behavior_logprobs=np.where(mask, -1.5, 0.0).astype(np.float32),
        policy_versions=np.where(mask, 0, -1).astype(np.int32),
      )
    )
  return Episode(
    task=TASK,
    member=0,
    status=EpisodeStatus.TERMINATED,
    rows=tuple(rows),
    turns=(
      Turn(action="a", finish_reason="stop"),
      Turn(action="b", finish_reason="stop", reward=reward),
    ),
  )


def make_groups():
  """Two groups: one whose first member was cut off, one without a signal."""
  cut = EpisodeStatus.MAX_TOKENS
  members = [
    [make_episode(0.0, [0, 1, 2, 3, 4], status=cut), make_episode(1.0, [0, 1])],
    [make_episode(0.5, [0, 2, 3]), make_episode(0.5, [0, 3, 3, 1])],
  ]
  members[0].append(make_episode(0.5, [0, 4, 4]))
  members[1].append(make_episode(0.5, [0, 1, 1]))
  return [
    Group(ordinal=i, task=TASK, episodes=tuple(episodes))
    for i, episodes in enumerate(members)
  ]


PARAMS = {"table": jnp.zeros((VOCAB, VOCAB))}


@functools.cache
def make_learner(loss):
  """A learner whose parameters are the logits after each token."""
  mesh = sharding.make_mesh(sharding.MeshConfig(), jax.devices()[:1])
  places = {"table": sharding.replicated(mesh)}
  model = ModelFns(
    lambda p, tokens, *_: p["table"][tokens], lambda _: jnp.eye(VOCAB)
  )
  optimizer = optax.sgd(1.0)
  shardings = state_shardings(PARAMS, optimizer, shardings=places)
  fns = make_update_fns(model, loss, optimizer, shardings=shardings)
  return mesh, fns, init_state(PARAMS, optimizer, shardings=places)


def step(*, loss=None, version=0, groups=None, **sections):
  """Takes one step of the given settings; version 0 sampled all tokens."""
  loss = loss or LossConfig(surrogate="policy_gradient")
  fields: dict[str, Any] = dict(
    seed=0,
    rollout=RolloutSettings(
      tasks_per_step=2, group_size=3, max_turns=2, max_length=8
    ),
    learner=LearnerSettings(
      minibatches_per_step=2,
      min_minibatch_rows=1,
      micro_batch_rows=2,
      length_buckets=(4,),
    ),
    filters=FilterConfig(),
    shaping=ShapingConfig(),
    advantage=AdvantageConfig(scale="none"),
    loss=loss,
  )
  settings = types.SimpleNamespace(**(fields | sections))
  mesh, fns, state = make_learner(loss)
  parts: Any = types.SimpleNamespace(settings=settings, mesh=mesh)
  state, metrics, _ = learner_step.learn(
    parts,
    fns,
    jax.tree.map(jnp.copy, state),
    None,
    groups or make_groups(),
    version,
  )
  return np.asarray(state.params["table"]), metrics


@pytest.mark.parametrize(
  ("filters", "trained", "rejected"),
  [
    # Only the first group has a signal, and its third member is its mean.
    (FilterConfig(), 2, 0),
    (NO_FILTERS, 6, 0),
    # The mean of those left is 0.75, so both have a signal.
    (FilterConfig(before_advantages=("truncation",)), 2, 1),
    (FilterConfig(after_advantages=("truncation",)), 5, 0),
    (FilterConfig(before_advantages=("informative_groups",)), 2, 3),
  ],
)
def test_filters_choose_the_rows(filters, trained, rejected):
  _, metrics = step(filters=filters)
  assert metrics["rows/trained"] == trained
  assert metrics["rows/rejected"] == rejected


def test_a_rejected_row_moves_no_baseline_and_a_dropped_one_does():
  learner = LearnerSettings(minibatches_per_step=1, micro_batch_rows=8)
  late = FilterConfig(after_advantages=("truncation", "nonzero_advantages"))
  early = FilterConfig(before_advantages=("truncation",))
  # Dropped: 1 - 1/2 on the single token of [0, 1], which follows token 0.
  table, _ = step(filters=late, learner=learner)
  expected = np.zeros((VOCAB, VOCAB))
  expected[0] = 0.5 * (np.eye(VOCAB)[1] - 1 / VOCAB)
  np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-7)
  # Rejected: 1/4 there, and -1/4 on both tokens of [0, 4, 4]; a mean of three.
  table, _ = step(filters=early, learner=learner)
  expected[0] = (np.eye(VOCAB)[1] - np.eye(VOCAB)[4]) / 12
  expected[4] = -(np.eye(VOCAB)[4] - 1 / VOCAB) / 12
  np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-7)


def test_recomputed_logprobs_are_the_old_policy():
  learner = LearnerSettings(
    minibatches_per_step=1, micro_batch_rows=2, length_buckets=(4,)
  )
  again = dataclasses.replace(learner, recompute_logprobs=True)
  loss = LossConfig(surrogate="decoupled")
  _, metrics = step(loss=loss, learner=again, filters=NO_FILTERS)
  # The first update's ratio is to the weights themselves, not to the engine.
  assert metrics["ratio/mean"] == pytest.approx(1.0, abs=1e-6)
  assert metrics["logprob_gap/max"] == pytest.approx(np.log(5) - 1.5, abs=1e-5)
  _, metrics = step(loss=LossConfig(), learner=learner, filters=NO_FILTERS)
  assert metrics["ratio/max"] == pytest.approx(np.exp(1.5) / 5, rel=1e-5)


@pytest.mark.parametrize("packed_lengths", [(), (8,)])
def test_ages_reach_the_proximal_policy(packed_lengths):
  # All tokens have the ratio r = exp(1.5) / 5 to the engine, and are 3 versions
  # old: the ratio to the interpolated policy is its third root.
  learner = LearnerSettings(
    minibatches_per_step=1, micro_batch_rows=2, packed_lengths=packed_lengths
  )
  loss = LossConfig(surrogate="decoupled", proximal="interpolated")
  _, metrics = step(loss=loss, learner=learner, filters=NO_FILTERS, version=3)
  ratio = np.exp(1.5) / 5
  assert metrics["ratio/mean"] == pytest.approx(ratio ** (1 / 3), rel=1e-5)
  assert metrics["importance/truncated_fraction"] == 0.0


def test_metrics_of_the_engine_are_from_before_the_first_update():
  ratio = np.exp(1.5) / 5
  _, metrics = step(filters=NO_FILTERS)
  assert metrics["num_updates"] == 2
  # Equal weights, until an update makes them differ.
  assert metrics["ess"] == pytest.approx(1.0, abs=1e-6)
  expected = ratio - 1 - np.log(ratio)
  assert metrics["engine_kl"] == pytest.approx(expected, rel=1e-4)
  assert metrics["ratio/mean"] != pytest.approx(ratio, rel=1e-4)


def test_rows_too_old_are_turned_away():
  early = FilterConfig(before_advantages=("age",), max_age=1)
  late = FilterConfig(after_advantages=("age",), max_age=1)
  for version, num_old in ((1, 0), (2, 6)):
    _, metrics = step(filters=early, version=version)
    assert metrics["rows/rejected"] == num_old
    _, metrics = step(filters=late, version=version)
    assert metrics["rows/trained"] == 6 - num_old
    assert metrics["rows/rejected"] == 0


def test_ratios_of_the_learner_filter_rows():
  # Every token has the ratio exp(1.5) / 5 = 0.896: three of them make 0.72.
  near = FilterConfig(
    before_advantages=("sequence_ratio",), ratio_lower=0.89, ratio_upper=0.9
  )
  far = FilterConfig(before_advantages=("sequence_ratio",), ratio_lower=0.95)
  assert step(filters=near)[1]["rows/rejected"] == 0
  table, metrics = step(filters=far)
  assert metrics["rows/rejected"] == 6
  assert metrics["num_updates"] == 0
  assert not table.any()


def test_metrics_say_what_each_filter_and_shaping_did():
  def second(terms, config):
    return np.arange(len(terms.batch.tokens)) != 1

  filters = FilterConfig(
    before_advantages=("truncation",),
    after_advantages=("informative_groups", second),
  )
  _, metrics = step(filters=filters)
  assert metrics["rejected/truncation"] == pytest.approx(1 / 6)
  assert metrics["dropped/informative_groups"] == pytest.approx(3 / 5)
  assert metrics["dropped/second"] == pytest.approx(1 / 5)
  # Left in group 0 are the returns 1 and 1/2, of which the 1 was dropped.
  assert metrics["rows/negative"] == pytest.approx(1 / 5)
  assert metrics["rows/negative_trained"] == 1.0
  shaping = ShapingConfig(
    names=("overlong_penalty",), overlong_length=4, overlong_buffer=2
  )
  _, metrics = step(shaping=shaping)
  # Rows of 4, 1, 2, 2, 3 and 2 action tokens: -1 and -1/2.
  assert metrics["shaping/overlong_penalty"] == pytest.approx(-1.5 / 6)
  assert metrics["return/mean"] == pytest.approx((3.0 - 1.5) / 6)


def test_returns_are_reported_with_their_discount():
  group = Group(
    ordinal=0,
    task=TASK,
    episodes=(make_observed_episode(1.0), make_observed_episode(0.0)),
  )
  credit = AdvantageConfig(scale="none", discount=0.5)
  _, metrics = step(groups=[group], advantage=credit)
  assert metrics["return/mean"] == pytest.approx(0.5 / 2)


def test_an_episode_in_two_rows_is_learned_from_as_in_one():
  learner = LearnerSettings(minibatches_per_step=1, micro_batch_rows=2)
  tables, trained = [], []
  for num_rows in (1, 2):
    rollout = RolloutSettings(
      tasks_per_step=1,
      group_size=2,
      max_turns=2,
      max_length=8,
      max_rows_per_episode=num_rows,
      context="none" if num_rows == 1 else "drop_observations",
    )
    episodes = (
      make_long_episode(1.0, num_rows=num_rows),
      make_observed_episode(0.0),
    )
    group = Group(ordinal=0, task=TASK, episodes=episodes)
    table, metrics = step(groups=[group], learner=learner, rollout=rollout)
    tables.append(table)
    trained.append((metrics["rows/trained"], metrics["tokens"]))
    assert metrics["return/mean"] == 0.5
  assert trained == [(2, 4), (3, 4)]
  assert np.any(tables[0])
  np.testing.assert_allclose(tables[0], tables[1], rtol=1e-5, atol=1e-7)


def test_less_weight_on_what_failed():
  learner = LearnerSettings(minibatches_per_step=1, micro_batch_rows=8)
  full, _ = step(learner=learner)
  halved, metrics = step(
    learner=learner,
    advantage=AdvantageConfig(scale="none", negative_weight=0.5),
  )
  # Negative is the row 0 1 2 3 4, positive the row 0 1, both by 1/2.
  half = 0.5 * (np.eye(VOCAB)[1] - 1 / VOCAB) / 5
  np.testing.assert_allclose(full[0], 0.0, atol=1e-7)
  np.testing.assert_allclose(halved[0], half / 2, rtol=1e-5, atol=1e-7)
  np.testing.assert_allclose(halved[1:], full[1:] / 2, rtol=1e-5, atol=1e-7)
  assert metrics["rows/negative"] == pytest.approx(1 / 6)


def test_shaping_comes_before_advantages():
  shaping = ShapingConfig(
    names=("overlong_penalty",), overlong_length=4, overlong_buffer=2
  )
  # The second group gets a signal from its one row of three tokens.
  _, metrics = step(shaping=shaping)
  assert metrics["rows/trained"] == 2 + 1 + 3


@pytest.mark.parametrize("packed_lengths", [(), (8, 16)])
@pytest.mark.parametrize("surrogate", ["policy_gradient", "clipped"])
def test_observations_have_a_gradient_in_the_ablation_alone(
  packed_lengths, surrogate
):
  groups = [
    Group(
      ordinal=0,
      task=TASK,
      episodes=(make_observed_episode(1.0), make_observed_episode(0.0)),
    )
  ]
  groups[0].episodes[0].rows[0].tokens[3] = 1  # else the two cancel
  masked = LearnerSettings(
    minibatches_per_step=1,
    micro_batch_rows=2,
    packed_lengths=packed_lengths,
    recompute_logprobs=True,
  )
  unmasked = dataclasses.replace(masked, train_on_observations=True)
  # Wide open, so that the value of no ratio matters.
  loss = LossConfig(surrogate=surrogate, clip_low=1.0, clip_high=9.0)

  table, metrics = step(loss=loss, groups=groups, learner=masked)
  assert metrics["tokens/observations_trained"] == 0
  assert metrics["tokens"] == 4
  # Action tokens come after 0 and 3 alone, and are the same in both rows.
  np.testing.assert_allclose(table, 0.0, atol=1e-7)

  table, metrics = step(loss=loss, groups=groups, learner=unmasked)
  assert metrics["tokens/observations_trained"] == 2 * 3
  assert metrics["tokens/sampled"] == 4
  assert metrics["tokens"] == 10
  assert metrics["logprob_gap/missing"] == pytest.approx(0.6)
  # Row one has the tokens 1 1 3 where row two has 1 2 3, both of weight 1/2
  # and among ten tokens; what follows 4 is the same again.
  one, zero = np.eye(VOCAB), np.full(VOCAB, 1 / VOCAB)
  expected = np.zeros((VOCAB, VOCAB))
  expected[1] = ((one[1] - zero) + (one[3] - zero) - (one[2] - zero)) / 20
  expected[2] = -(one[3] - zero) / 20
  np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-7)
