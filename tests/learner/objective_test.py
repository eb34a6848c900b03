import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.state import ModelFns
from arl_jax.learner.surrogates import SURROGATES, LossConfig
from arl_jax.learner.update import update

SGD = optax.sgd(1.0)


def copied(state):
  return jax.tree.map(jnp.copy, state)


def normal(batch, seed=1):
  rng = np.random.default_rng(seed)
  return rng.normal(size=batch.tokens.shape).astype(np.float32)


@pytest.mark.parametrize("surrogate", sorted(SURROGATES))
def test_values_at_masked_tokens_never_matter(
  make_learner, make_batch, surrogate
):
  batch = make_batch(num_rows=4)
  advantages, old = normal(batch), normal(batch, 2) - 3
  weights = "none" if surrogate == "decoupled" else "clamp"
  loss = LossConfig(
    surrogate=surrogate,
    kl_weight=0.1,
    entropy_weight=0.1,
    importance=weights,
    importance_lower=0.5,
  )
  initial, fns = make_learner(loss, SGD)
  reference = copied(initial.params)
  results = []
  for value in (0.0, np.nan, np.inf, -np.inf):

    def spoil(x, value=value):
      return np.where(batch.action_mask, x, value).astype(np.float32)

    micro = MicroBatch(
      batch.replace(behavior_logprobs=spoil(batch.behavior_logprobs)),
      spoil(advantages),
      spoil(old),
    )
    state, metrics = update(
      copied(initial), [micro], fns=fns, ref_params=reference
    )
    assert metrics.pop("logprob_gap/missing", 0.0) == 0.0
    results.append((state.params, metrics))
  assert results[0][1]["grad_norm"] > 0
  for params, metrics in results[1:]:
    assert metrics == results[0][1]
    chex.assert_trees_all_equal(params, results[0][0])


def test_only_logits_before_actions_get_a_gradient(make_learner, make_batch):
  # The "model" is a table of logits, so its gradient is that of the logits.
  batch = make_batch(num_rows=3)
  table = np.random.default_rng(3).normal(size=(*batch.tokens.shape, 7))
  model = ModelFns(lambda p, *_: p["logits"], lambda _: jnp.eye(7))
  params = {"logits": jnp.asarray(table, jnp.float32)}
  loss = LossConfig(surrogate="policy_gradient", logprob_chunk=4)
  state, fns = make_learner(loss, SGD, model=model, params=params)
  advantages = np.ones(batch.tokens.shape, np.float32)
  state, _ = update(state, [(batch, advantages)], fns=fns)
  moved = np.any(np.asarray(state.params["logits"]) != params["logits"], -1)
  expected = np.zeros_like(batch.action_mask)
  expected[:, :-1] = batch.action_mask[:, 1:]
  np.testing.assert_array_equal(moved, expected)


def test_chunked_logprobs_give_the_same_update(make_learner, make_batch):
  batch = make_batch()
  results = []
  for chunk in (None, 5):
    loss = LossConfig(logprob_chunk=chunk, temperature=0.7, entropy_weight=0.01)
    state, fns = make_learner(loss, SGD)
    state, metrics = update(state, [(batch, normal(batch))], fns=fns)
    results.append((state.params, metrics))
  chex.assert_trees_all_close(*(r[0] for r in results), rtol=1e-5, atol=1e-6)
  assert results[0][1] == pytest.approx(results[1][1], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("estimator", ["k2", "k3", "k3_unbiased"])
def test_kl_penalty_pulls_towards_the_reference(
  make_learner, make_batch, toy_params, estimator
):
  batch = make_batch()
  loss = LossConfig(kl_weight=1.0, kl_estimator=estimator)
  state, fns = make_learner(loss, optax.sgd(0.05))
  reference = jax.tree.map(lambda x: 0.7 * x, toy_params)
  # Sampled by the current policy, so that every ratio is 1.
  scores = np.asarray(fns.logprobs(state.params, batch))
  batch = batch.replace(behavior_logprobs=scores)
  advantages = np.zeros(batch.tokens.shape, np.float32)
  before = exact_kl(state.params, reference, batch)
  kls = []
  for _ in range(2):
    state, metrics = update(
      state, [(batch, advantages)], fns=fns, ref_params=reference
    )
    kls.append(metrics["kl"])
  assert 0 < kls[1] < kls[0]
  assert exact_kl(state.params, reference, batch) < before


def exact_kl(params, reference, batch):
  """KL over the whole vocabulary at the places where actions are drawn."""
  total = 0.0
  for row, t in zip(*np.nonzero(batch.action_mask), strict=True):
    tokens = np.tile(batch.tokens[row : row + 1], (7, 1))
    tokens[:, t] = np.arange(7)
    policies = [
      score(tree, tokens, batch, row)[:, t] for tree in (params, reference)
    ]
    current, ref = (np.asarray(p, np.float64) for p in policies)
    total += float(np.sum(np.exp(current) * (current - ref)))
  return total


def score(params, tokens, batch, row):
  segments = np.tile(batch.segment_ids[row : row + 1], (7, 1))
  same = segments[:, :, None] == segments[:, None, :]
  mixing = np.tril(same.astype(np.float32))
  mixing /= mixing.sum(-1, keepdims=True)
  x = np.asarray(params["embed"])[tokens]
  hidden = np.tanh(x + mixing @ x @ np.asarray(params["mix"]))
  logits = hidden @ np.asarray(params["unembed"])
  logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
  scores = np.zeros(tokens.shape, np.float32)
  rows, index = np.arange(7)[:, None], np.arange(tokens.shape[1] - 1)[None]
  scores[:, 1:] = logits[rows, index, tokens[:, 1:]]
  return scores


def test_a_surrogate_of_ones_own(make_learner, make_batch):
  def squared(terms, config):
    del config
    return jnp.where(terms.mask, (terms.logprobs - 1.0) ** 2, 0.0)

  batch = make_batch()
  state, fns = make_learner(LossConfig(surrogate=squared), SGD)
  scores = np.asarray(fns.logprobs(state.params, batch))
  expected = np.mean((scores[batch.action_mask] - 1) ** 2)
  _, metrics = update(state, [(batch, normal(batch))], fns=fns)
  assert metrics["loss"] == pytest.approx(expected, rel=1e-5)


def test_mirror_descent_is_the_mean_over_rows(make_learner, make_batch):
  batch = make_batch()
  loss = LossConfig(
    surrogate="mirror_descent", aggregation="sequence_mean", tau=0.5
  )
  state, fns = make_learner(loss, SGD)
  scores = np.asarray(fns.logprobs(state.params, batch))
  advantages = np.arange(8, dtype=np.float32)[:, None] + np.zeros((8, 16))
  log_ratio = np.where(batch.action_mask, scores - batch.behavior_logprobs, 0)
  expected = np.mean((np.arange(8) - 0.5 * log_ratio.sum(axis=1)) ** 2)
  _, metrics = update(state, [(batch, advantages)], fns=fns)
  assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
  assert metrics["grad_norm"] > 0


def test_an_aggregation_of_ones_own(make_learner, make_batch):
  def per_turn(values, mask, *, length):
    assert length is None
    return jnp.sum(jnp.where(mask, values, 0.0)), 10.0 * jnp.sum(mask)

  batch = make_batch()
  loss = LossConfig(surrogate="cross_entropy", aggregation=per_turn)
  state, fns = make_learner(loss, SGD)
  scores = np.asarray(fns.logprobs(state.params, batch))
  micros = [
    (jax.tree.map(lambda x, at=at: x[at : at + 4], batch),) for at in (0, 4)
  ]
  _, metrics = update(state, micros, fns=fns)
  expected = -scores[batch.action_mask].mean() / 10
  assert metrics["loss"] == pytest.approx(expected, rel=1e-5)


def test_first_ratio_is_one_and_metrics_are_of_live_tokens(
  make_learner, make_batch
):
  batch = make_batch()
  initial, fns = make_learner(LossConfig(), SGD)
  state = copied(initial)
  scores = np.asarray(fns.logprobs(state.params, batch))
  same = batch.replace(behavior_logprobs=scores)
  _, metrics = update(state, [(same, normal(batch))], fns=fns)
  assert metrics["ratio/mean"] == pytest.approx(1.0, abs=1e-6)
  assert metrics["ratio/max"] == pytest.approx(1.0, abs=1e-6)
  assert metrics["engine_kl"] == pytest.approx(0.0, abs=1e-6)
  assert metrics["ess"] == pytest.approx(1.0, abs=1e-6)
  assert metrics["logprob_gap/max"] < 1e-6
  assert metrics["tokens"] == batch.action_mask.sum()

  # Two live tokens whose ratios are 2 and 1/2, the first with advantage 1.
  first, second = np.argwhere(batch.action_mask)[:2]
  turn_ids = np.full_like(batch.turn_ids, -1)
  advantages = np.ones(batch.tokens.shape, np.float32)
  shifted = scores.copy()
  for (row, t), ratio, sign in ((first, 2.0, 1.0), (second, 0.5, -1.0)):
    turn_ids[row, t] = 0
    shifted[row, t] -= np.log(ratio)
    advantages[row, t] = sign
  two = batch.replace(
    turn_ids=turn_ids, action_mask=turn_ids >= 0, behavior_logprobs=shifted
  )
  _, metrics = update(initial, [(two, advantages)], fns=fns)
  log2 = np.log(2)
  expected = {
    "loss": (-1.28 + 0.8) / 2,
    "tokens": 2,
    "ratio/mean": 1.25,
    "ratio/max": 2.0,
    "clip_fraction/low": 0.5,
    "clip_fraction/high": 0.5,
    "logprob_gap/mean": log2,
    "logprob_gap/max": log2,
    "logprob_gap/missing": 0.0,
    # KL(behaviour || current), r = current / behaviour: r - 1 - log r.
    "engine_kl": ((2 - 1 - log2) + (0.5 - 1 + log2)) / 2,
    "ess": (2 + 0.5) ** 2 / (2 * (4 + 0.25)),
    "importance/masked_fraction": 0.0,
    "importance/truncated_fraction": 0.0,
    "advantage/zero_fraction": 0.0,
    # Both tokens are clipped, so neither has a gradient.
    "grad_norm": 0.0,
  }
  for name, value in expected.items():
    assert metrics[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_importance_weight_is_of_the_old_policy(make_learner, make_batch):
  # Ratio old / behaviour is 1.5 everywhere, whatever the current policy is:
  # the loss and its gradient are 1.5 times those without a correction.
  batch = make_batch()
  results = {}
  for mode in ("none", "truncate"):
    loss = LossConfig(importance=mode, importance_upper=2.0)
    state, fns = make_learner(loss, SGD)
    before = state.params["embed"].copy()
    old = np.asarray(fns.logprobs(state.params, batch)) - 0.1
    shifted = batch.replace(behavior_logprobs=old - np.float32(np.log(1.5)))
    micro = MicroBatch(shifted, normal(batch), old)
    state, metrics = update(state, [micro], fns=fns)
    results[mode] = (metrics["loss"], before - state.params["embed"])
  assert results["truncate"][0] == pytest.approx(1.5 * results["none"][0])
  np.testing.assert_allclose(
    results["truncate"][1], 1.5 * results["none"][1], rtol=1e-4, atol=1e-6
  )


@pytest.mark.parametrize("level", ["sequence", "sequence_mean", "own"])
def test_importance_of_sequences(make_learner, make_batch, level):
  # Ratio old / behaviour is 1.1 on every token.
  batch = make_batch()

  def own(terms, config):
    return 1.0 + jnp.arange(len(terms.mask))[:, None] + 0 * terms.logprobs

  loss = LossConfig(
    surrogate="policy_gradient",
    importance=own if level == "own" else "truncate",
    importance_level="token" if level == "own" else level,
    importance_upper=1.3,
  )
  state, fns = make_learner(loss, SGD)
  scores = np.asarray(fns.logprobs(state.params, batch))
  shifted = batch.replace(behavior_logprobs=scores - np.float32(np.log(1.1)))
  advantages = normal(batch)
  lengths = batch.action_mask.sum(axis=1)
  weights = {
    "sequence": np.minimum(1.1**lengths, 1.3),
    "sequence_mean": np.full(8, 1.1),
    "own": np.arange(1, 9),
  }[level]
  assert (1.1**lengths > 1.3).any()
  values = weights[:, None] * -advantages * scores
  _, metrics = update(state, [MicroBatch(shifted, advantages, scores)], fns=fns)
  assert metrics["loss"] == pytest.approx(
    values[batch.action_mask].mean(), rel=1e-4
  )


def test_importance_without_old_logprobs_uses_the_current_ones(
  make_learner, make_batch
):
  # Then the surrogate's ratio is 1 and the weight is current / behaviour.
  batch = make_batch()
  loss = LossConfig(importance="truncate", importance_upper=1e6)
  state, fns = make_learner(loss, SGD)
  scores = np.asarray(fns.logprobs(state.params, batch))
  advantages = normal(batch)
  live = batch.action_mask
  weights = np.exp((scores - batch.behavior_logprobs)[live])
  _, metrics = update(state, [(batch, advantages)], fns=fns)
  assert metrics["loss"] == pytest.approx(
    np.mean(-weights * advantages[live]), rel=1e-5
  )
  assert metrics["ratio/max"] == 1.0


def test_missing_behavior_logprob_counts_as_ratio_one(make_learner, make_batch):
  batch = make_batch()
  row, t = np.argwhere(batch.action_mask)[0]
  behavior = batch.behavior_logprobs.copy()
  behavior[row, t] = np.nan
  batch = batch.replace(behavior_logprobs=behavior)
  advantages = np.zeros(batch.tokens.shape, np.float32)
  advantages[row, t] = 1.0
  state, fns = make_learner(LossConfig(), SGD)
  _, metrics = update(state, [(batch, advantages)], fns=fns)
  count = batch.action_mask.sum()
  assert metrics["loss"] == pytest.approx(-1.0 / count)
  assert metrics["logprob_gap/missing"] == pytest.approx(1 / count)
  assert metrics["grad_norm"] > 0


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"surrogate": "ppo"}, "surrogate is 'ppo'.*clipped"),
    ({"aggregation": "mean"}, "aggregation is 'mean'.*token_mean"),
    ({"importance": "tis"}, "importance is 'tis'.*truncate"),
    ({"importance_level": "row"}, "importance_level is 'row'.*sequence_mean"),
    ({"tau": -1.0}, "tau is -1.0"),
    ({"proximal": "guessed"}, "proximal is 'guessed'.*interpolated"),
    ({"proximal": "interpolated"}, "surrogate 'clipped' does not read"),
    ({"kl_estimator": "k4"}, "kl_estimator is 'k4'.*k3_unbiased"),
    ({"aggregation": "fixed_length"}, "needs length"),
    ({"importance": "clamp"}, "needs importance_lower"),
    ({"surrogate": "decoupled", "importance": "mask"}, "already corrects"),
    ({"temperature": 0.0}, "temperature is 0.0"),
    ({"logprob_chunk": 0}, "logprob_chunk is 0"),
  ],
)
def test_mistakes_are_named(fields, message):
  with pytest.raises(ValueError, match=message):
    LossConfig(**fields)
