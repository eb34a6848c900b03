"""Every name of an algorithm trains, compiles once, and is documented."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arl_jax.learner.credit import ESTIMATORS
from arl_jax.learner.filters import FILTERS
from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.shaping import SHAPINGS
from arl_jax.learner.surrogates import (
  AGGREGATIONS,
  IMPORTANCE_LEVELS,
  SURROGATES,
  LossConfig,
)
from arl_jax.learner.update import update

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "algorithms.md"
MAPPINGS = {
  "advantage": ESTIMATORS,
  "aggregation": AGGREGATIONS,
  "filters": FILTERS,
  "importance": IMPORTANCE_LEVELS,
  "shaping": SHAPINGS,
  "surrogate": SURROGATES,
}


def ratio_of_first_token(terms, config):
  """A correction of one's own."""
  ratio = jnp.exp(terms.old_logprobs - terms.behavior_logprobs)
  return jnp.where(terms.mask, jnp.minimum(ratio, config.importance_upper), 0.0)


LOSSES = [
  *({"surrogate": name} for name in sorted(SURROGATES)),
  *(
    {"aggregation": name, "length": 12}
    for name in sorted(AGGREGATIONS)
    if name != "token_mean"
  ),
  *(
    {"importance": "clamp", "importance_level": name, "importance_lower": 0.5}
    for name in sorted(IMPORTANCE_LEVELS)
  ),
  {"importance": "mask", "importance_level": "sequence"},
  {"importance": ratio_of_first_token},
  {"surrogate": "decoupled", "proximal": "interpolated"},
]


@pytest.mark.parametrize("fields", LOSSES, ids=lambda f: "-".join(map(str, f)))
def test_every_loss_trains_and_compiles_once(
  make_learner, make_batch, counted_model, fields
):
  model, traces = counted_model
  loss = LossConfig(**fields)
  state, fns = make_learner(loss, optax.adam(1e-2), model=model)
  before = jax.device_get(state.params)
  for seed in range(2):
    batch = make_batch(seed=seed)
    rng = np.random.default_rng(seed)
    advantages, noise = rng.normal(size=(2, *batch.tokens.shape))
    old = batch.behavior_logprobs + np.float32(0.1) * noise
    micro = MicroBatch(
      batch,
      advantages.astype(np.float32),
      old.astype(np.float32),
      ages=np.float32(seed - batch.policy_versions)
      if loss.needs_ages
      else None,
    )
    state, metrics = update(state, [micro], fns=fns)
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["grad_norm"] > 0
  assert int(state.step) == 2
  for old, new in zip(
    jax.tree.leaves(before), jax.tree.leaves(state.params), strict=True
  ):
    assert np.any(old != np.asarray(new))
  assert traces == [batch.tokens.shape]
  assert fns.gradient._cache_size() == 1
  assert fns.apply._cache_size() == 1


@pytest.mark.parametrize("section", sorted(MAPPINGS))
def test_every_name_is_documented(section):
  text = PAGE.read_text(encoding="utf-8")
  for name in MAPPINGS[section]:
    assert f"`{name}`" in text
