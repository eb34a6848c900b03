"""A toy policy and toy rows for the learner's tests."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arl_jax.learner import sharding
from arl_jax.learner.state import ModelFns, init_state, state_shardings
from arl_jax.learner.update import make_update_fns
from arl_jax.types import TrajectoryBatch

VOCAB, DIM = 7, 4


def _apply(params, tokens, positions, segment_ids):
  """Each token mixed with the mean of those before it in its segment."""
  del positions
  x = params["embed"][tokens]
  same = segment_ids[:, :, None] == segment_ids[:, None, :]
  mixing = jnp.tril(same.astype(jnp.float32))
  mixing /= jnp.sum(mixing, axis=-1, keepdims=True)
  return jnp.tanh(x + mixing @ x @ params["mix"])


@pytest.fixture(scope="session")
def toy_model():
  return ModelFns(_apply, lambda params: params["unembed"])


@pytest.fixture(scope="session")
def toy_params():
  rng = np.random.default_rng(0)
  shapes = {"embed": (VOCAB, DIM), "mix": (DIM, DIM), "unembed": (DIM, VOCAB)}
  return {
    name: jnp.asarray(rng.normal(size=shape), jnp.float32)
    for name, shape in shapes.items()
  }


@pytest.fixture(scope="session")
def make_batch():
  """Rows of a prompt, then turns of actions with an observation after each."""

  def make(num_rows=8, num_tokens=16, num_turns=3, seed=0, group_size=4):
    rng = np.random.default_rng(seed)
    shape = (num_rows, num_tokens)
    turn_ids = np.full(shape, -1, np.int32)
    segment_ids = np.zeros(shape, np.int32)
    turn_mask = np.zeros((num_rows, num_turns), bool)
    for row in range(num_rows):
      t = int(rng.integers(1, 4))
      for turn in range(int(rng.integers(1, num_turns + 1))):
        length = int(rng.integers(1, 4))
        turn_ids[row, t : t + length] = turn
        turn_mask[row, turn] = True
        t += length + int(rng.integers(1, 3))
      segment_ids[row, :t] = 1
    action_mask = turn_ids >= 0
    rewards = rng.integers(0, 3, size=turn_mask.shape) * turn_mask
    logprobs = -rng.uniform(0.5, 3.0, size=shape)
    edges = rng.integers(0, 4, size=turn_mask.shape)
    fields: dict[str, Any] = dict(
      tokens=rng.integers(0, VOCAB, size=shape).astype(np.int32),
      action_mask=action_mask,
      turn_ids=turn_ids,
      segment_ids=segment_ids,
      positions=np.broadcast_to(np.arange(num_tokens, dtype=np.int32), shape),
      behavior_logprobs=np.where(action_mask, logprobs, 0).astype(np.float32),
      policy_versions=np.where(action_mask, 0, -1).astype(np.int32),
      turn_rewards=rewards.astype(np.float32),
      turn_mask=turn_mask,
      group_ids=(np.arange(num_rows) // group_size).astype(np.int32),
      episode_ids=np.arange(num_rows, dtype=np.int32),
      agent_ids=np.zeros(num_rows, np.int32),
      state_ids=np.where(turn_mask, edges // 2, -1).astype(np.int32),
      edge_ids=np.where(turn_mask, edges, -1).astype(np.int32),
      row_mask=np.ones(num_rows, bool),
    )
    return TrajectoryBatch(**fields)

  return make


@pytest.fixture(scope="session")
def make_outcomes(make_batch):
  """Rows of one turn of three tokens, with an outcome as its reward."""

  def make(outcomes, **fields):
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

  return make


@pytest.fixture
def counted_model(toy_model):
  """The toy policy with the list of shapes that it was traced for."""
  traces = []

  def counted(params, tokens, positions, segment_ids):
    traces.append(tokens.shape)
    return toy_model.apply(params, tokens, positions, segment_ids)

  return ModelFns(counted, toy_model.unembedding), traces


@pytest.fixture(scope="session")
def make_learner(toy_model, toy_params):
  """Returns a state on one device and the functions that update it."""

  def make(loss, optimizer, *, model=toy_model, params=toy_params):
    mesh = sharding.make_mesh(sharding.MeshConfig(), jax.devices()[:1])
    places = jax.tree.map(lambda _: sharding.replicated(mesh), params)
    state = init_state(params, optimizer, shardings=places)
    shardings = state_shardings(params, optimizer, shardings=places)
    return state, make_update_fns(model, loss, optimizer, shardings=shardings)

  return make
