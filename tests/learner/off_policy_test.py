"""What the corrections do to a batch that other weights sampled."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.learner import surrogates
from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.surrogates import LossConfig, Terms
from arl_jax.learner.update import update

SGD = optax.sgd(0.5)
# How a run asks for each of them.
CORRECTIONS: dict[str, dict[str, Any]] = {
  "none": {},
  "truncate": {"importance": "truncate"},
  "mask": {"importance": "mask", "importance_lower": 0.5},
  "clamp": {"importance": "clamp", "importance_lower": 0.5},
  "sequence": {
    "importance": "mask",
    "importance_level": "sequence",
    "importance_lower": 0.5,
  },
  "sequence_mean": {
    "importance": "mask",
    "importance_level": "sequence_mean",
    "importance_lower": 0.9,
    "importance_upper": 1.2,
  },
  "decoupled": {"surrogate": "decoupled"},
  "interpolated": {
    "surrogate": "decoupled",
    "proximal": "interpolated",
    "importance_upper": 1.4,
  },
}


@pytest.fixture(scope="module")
def learner(make_learner):
  """Returns a fresh state and functions, which compile once per correction."""
  build = functools.cache(
    lambda name: make_learner(LossConfig(**CORRECTIONS[name]), SGD)
  )

  def make(name):
    state, fns = build(name)
    return jax.tree.map(jnp.copy, state), fns

  return make


def micro_batch(batch, advantages, scores, ages: Any = 0.0):
  """One of the same structure for all corrections, whatever they read."""
  ages = np.broadcast_to(np.float32(ages), batch.tokens.shape)
  return MicroBatch(batch, advantages, scores, ages=ages)


def normal(batch, seed=1):
  rng = np.random.default_rng(seed)
  return rng.normal(size=batch.tokens.shape).astype(np.float32)


def stale(batch, scores):
  """The batch as if weights had sampled it to which tokens have such ratios."""
  ratios = np.resize([3.0, 1.0, 0.25, 1.5], batch.tokens.shape)
  shifted = np.where(batch.action_mask, scores - np.log(ratios), 0.0)
  return batch.replace(behavior_logprobs=shifted.astype(np.float32)), ratios


def expected_weights(name, ratios, mask):
  """Weight of each token, which were silenced, which were cut."""
  nothing = np.zeros_like(mask)
  logs = np.where(mask, np.log(ratios), 0.0)
  totals = logs.sum(axis=1, keepdims=True)
  sequence = np.exp(totals) + 0 * ratios
  mean = np.exp(totals / mask.sum(axis=1, keepdims=True)) + 0 * ratios
  if name == "none":
    return np.ones_like(ratios), nothing, nothing
  if name in ("truncate", "decoupled"):
    return np.minimum(ratios, 2.0), nothing, ratios > 2
  if name == "clamp":
    outside = (ratios < 0.5) | (ratios > 2)
    return np.clip(ratios, 0.5, 2.0), nothing, outside
  values, low, high = {
    "mask": (ratios, 0.5, 2.0),
    "sequence": (sequence, 0.5, 2.0),
    "sequence_mean": (mean, 0.9, 1.2),
  }[name]
  outside = (values < low) | (values > high)
  return np.where(outside, 0.0, values), outside, nothing


@pytest.mark.parametrize(
  "name", [name for name in CORRECTIONS if name != "interpolated"]
)
def test_corrections_do_what_they_say(learner, make_batch, name):
  batch = make_batch()
  state, fns = learner(name)
  scores = np.asarray(fns.logprobs(state.params, batch))
  batch, ratios = stale(batch, scores)
  advantages, mask = normal(batch), batch.action_mask
  weights, silenced, cut = expected_weights(name, ratios, mask)
  if name not in ("none", "truncate", "clamp", "decoupled"):
    assert 0 < silenced[mask].mean() < 1
  # The old policy is the current one, so that the surrogate's ratio is 1.
  micro = micro_batch(batch, advantages, scores)
  _, metrics = update(state, [micro], fns=fns)
  expected = {
    "loss": np.mean((-weights * advantages)[mask]),
    "importance/masked_fraction": silenced[mask].mean(),
    "importance/truncated_fraction": cut[mask].mean(),
    "ratio/mean": 1.0,
    # These are of the engine, whatever is done about it.
    "ess": ratios[mask].sum() ** 2 / (mask.sum() * (ratios[mask] ** 2).sum()),
    "engine_kl": np.mean((ratios - 1 - np.log(ratios))[mask]),
  }
  for metric, value in expected.items():
    assert metrics[metric] == pytest.approx(value, rel=1e-4, abs=1e-6), metric


def test_an_interpolated_policy_bounds_by_age(learner, make_batch):
  batch = make_batch()
  state, fns = learner("interpolated")
  scores = np.asarray(fns.logprobs(state.params, batch))
  batch, ratios = stale(batch, scores)
  advantages, mask = normal(batch), batch.action_mask
  ages = np.resize([0, 1, 2, 3, 5], mask.shape)
  pull = 1 / np.maximum(ages, 1)
  rho, weights = ratios**pull, ratios ** (1 - pull)
  clipped = np.clip(rho, 0.8, 1.28)
  values = np.maximum(-advantages * rho, -advantages * clipped)
  micro = micro_batch(batch, advantages, scores, ages)
  _, metrics = update(state, [micro], fns=fns)
  expected = {
    "loss": np.mean((np.minimum(weights, 1.4) * values)[mask]),
    "ratio/mean": rho[mask].mean(),
    "ratio/max": rho[mask].max(),
    "importance/truncated_fraction": (weights > 1.4)[mask].mean(),
    "importance/masked_fraction": 0.0,
  }
  assert 0 < expected["importance/truncated_fraction"] < 1
  for metric, value in expected.items():
    assert metrics[metric] == pytest.approx(value, rel=1e-4), metric


def test_fresh_tokens_need_no_interpolation(learner, make_batch):
  """At age 0 it is the recomputed policy, in every update of a step."""
  batch = make_batch()
  results = {}
  for name in ("decoupled", "interpolated"):
    state, fns = learner(name)
    scores = np.asarray(fns.logprobs(state.params, batch))
    fresh = batch.replace(behavior_logprobs=scores)
    micro = micro_batch(fresh, normal(batch), scores)
    results[name] = []
    for _ in range(2):
      state, metrics = update(state, [micro], fns=fns)
      results[name].append((metrics, jax.device_get(state.params)))
  first, second = results["interpolated"]
  assert first[0]["ratio/mean"] == pytest.approx(1.0, abs=1e-6)
  assert first[0]["ratio/max"] == pytest.approx(1.0, abs=1e-6)
  assert second[0]["ratio/max"] > 1.001
  for found, expected in zip(*results.values(), strict=True):
    assert found[0] == pytest.approx(expected[0], rel=1e-5, abs=1e-6)
    chex.assert_trees_all_close(found[1], expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CORRECTIONS)
def test_values_at_masked_tokens_never_matter(learner, make_batch, name):
  batch = make_batch()
  state, fns = learner(name)
  scores = np.asarray(fns.logprobs(state.params, batch))
  batch, _ = stale(batch, scores)
  results = []
  for value in (0.0, np.nan, np.inf, -np.inf):

    def spoil(x, value=value):
      return np.where(batch.action_mask, x, value).astype(np.float32)

    micro = micro_batch(
      batch.replace(behavior_logprobs=spoil(batch.behavior_logprobs)),
      spoil(normal(batch)),
      spoil(scores),
      spoil(2.0),
    )
    state, _ = learner(name)
    state, metrics = update(state, [micro], fns=fns)
    results.append((metrics, state.params))
  assert results[0][0]["grad_norm"] > 0
  for metrics, params in results[1:]:
    assert metrics == results[0][0]
    chex.assert_trees_all_equal(params, results[0][1])


# A missing log-prob is not an extreme one: a NaN would pass a test of bounds.
@pytest.mark.parametrize(
  "name", ["truncate", "mask", "clamp", "decoupled", "interpolated"]
)
def test_a_missing_log_prob_weighs_one_and_is_counted(  # trl#6166
  learner, make_batch, name
):
  batch = make_batch()
  state, fns = learner(name)
  scores = np.asarray(fns.logprobs(state.params, batch))
  batch, _ = stale(batch, scores)
  row, t = np.argwhere(batch.action_mask)[0]
  batch.behavior_logprobs[row, t] = np.nan
  advantages = np.zeros(batch.tokens.shape, np.float32)
  advantages[row, t] = 1.0
  micro = micro_batch(batch, advantages, scores, 3.0)
  _, metrics = update(state, [micro], fns=fns)
  count = batch.action_mask.sum()
  assert metrics["loss"] == pytest.approx(-1.0 / count, rel=1e-6)
  assert metrics["logprob_gap/missing"] == pytest.approx(1 / count)
  assert metrics["grad_norm"] > 0
  assert np.isfinite(list(metrics.values())).all()


@pytest.mark.parametrize(
  "name", ["truncate", "mask", "clamp", "sequence", "sequence_mean"]
)
def test_weights_are_of_the_old_policy_and_have_no_gradient(name):  # slime#179
  loss = LossConfig(**CORRECTIONS[name])
  rng = np.random.default_rng(0)
  old, behavior, shift = rng.normal(scale=0.2, size=(3, 3, 5)) - 1.0
  zeros = np.zeros((3, 5), np.float32)

  def weights(current, old, behavior):
    terms = Terms(
      logprobs=current,
      entropies=jnp.asarray(zeros),
      old_logprobs=old,
      behavior_logprobs=behavior,
      advantages=jnp.asarray(zeros),
      mask=jnp.ones((3, 5), bool),
      turn_ids=jnp.zeros((3, 5), jnp.int32),
      num_turns=1,
    )
    found = surrogates.importance_weights(terms, loss)
    assert found is not None
    return found

  arrays = [jnp.asarray(x, jnp.float32) for x in (shift, old, behavior)]
  found = weights(*arrays)
  current, old, behavior = arrays
  np.testing.assert_array_equal(found, weights(current + 5.0, old, behavior))
  assert np.any(np.asarray(found) != weights(current, old, behavior - 0.1))
  grads = jax.grad(lambda x, y, z: weights(x, y, z).sum(), argnums=(0, 1, 2))(
    *arrays
  )
  for grad in grads:
    np.testing.assert_array_equal(grad, zeros)


def test_interpolation_without_ages_is_refused(learner, make_batch):
  batch = make_batch()
  state, fns = learner("interpolated")
  with pytest.raises(ValueError, match="a micro-batch has no ages"):
    update(state, [MicroBatch(batch, normal(batch))], fns=fns)
