"""Log-probabilities of tokens whose row has cells of several versions.

It knows nothing of slots: it runs the transformer once for each version, and
takes the keys and values of every cell from the version that computed it.
"""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from arl_jax.actors.policy import Completion
from arl_jax.models import transformer
from tests.bridge.tiny_engine import CONFIG, MODEL


@jax.jit
def _one_version(params, tokens, caches, is_mine):
  """Runs rows under one version, which owns the cells where `is_mine`."""
  num_rows, width = tokens.shape
  mask = jnp.tril(jnp.ones((width, width), bool))[None]

  def attend(cache, q, k, v):
    k, v = (
      jnp.where(is_mine[..., None, None], new, old)
      for new, old in zip((k, v), cache, strict=True)
    )
    out = transformer.attend(q, k.swapaxes(1, 2), v.swapaxes(1, 2), mask)
    return out, (k, v)

  positions = jnp.broadcast_to(jnp.arange(width), (num_rows, width))
  hidden, caches = transformer.run_layers(
    params, tokens, positions, caches, attend, config=MODEL
  )
  logprobs = jax.nn.log_softmax(hidden @ params["unembed"])
  # Position t speaks of token t + 1.
  chosen = jnp.take_along_axis(logprobs[:, :-1], tokens[:, 1:, None], axis=-1)
  return jnp.pad(chosen[..., 0], ((0, 0), (1, 0))), caches


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
  """A turn: what was fed, what came back, and who computed its cells."""

  fed: np.ndarray  # [n]
  done: Completion
  cells: np.ndarray | None = None  # [max_length] version of each cell


def expected_logprobs(samples, weights):
  """Log-probabilities of each turn's tokens; old cells stay where given.

  A turn without `cells` had all of them computed by the version that sampled
  the token in question.
  """
  shape = len(samples), CONFIG.max_length
  tokens = np.zeros(shape, np.int32)
  sampled_by, cells = np.full(shape, -1), np.full(shape, -1)
  exact = np.array([sample.cells is None for sample in samples])
  for row, sample in enumerate(samples):
    start, end = len(sample.fed), len(sample.fed) + len(sample.done.token_ids)
    tokens[row, :end] = np.concatenate([sample.fed, sample.done.token_ids])
    sampled_by[row, start:end] = sample.done.policy_versions
    if sample.cells is not None:
      cells[row] = sample.cells
  shape = (*shape, MODEL.num_kv_heads, MODEL.head_dim)
  caches = ((jnp.zeros(shape), jnp.zeros(shape)),) * MODEL.num_layers
  result = np.zeros(tokens.shape)
  for version in np.unique([sampled_by, cells]):
    if version < 0:
      continue
    is_mine = (cells == version) | exact[:, None]
    logprobs, caches = _one_version(
      weights[version % 2], tokens, caches, is_mine
    )
    result = np.where(sampled_by == version, logprobs, result)
  return [
    result[row, len(s.fed) : len(s.fed) + len(s.done.token_ids)]
    for row, s in enumerate(samples)
  ]


def assert_exact(samples, weights):
  expected = expected_logprobs(samples, weights)
  for sample, logprobs in zip(samples, expected, strict=True):
    np.testing.assert_allclose(sample.done.logprobs, logprobs, atol=1e-4)


class CellVersions:
  """Keeps account of which version computed each cell of each session."""

  def __init__(self, engine):
    self._engine = engine
    self._owner = {}
    self.of = collections.defaultdict(lambda: np.full(CONFIG.max_length, -1))
    self.num_lost = 0

  def on_step(self, placements):
    """Updates the account; only cells in a session's own slot may be old."""
    engine = self._engine
    for p in placements:
      session = engine._active[p.slot].session
      kept = p.source == p.slot and self._owner.get(p.slot) == session
      self.num_lost += not kept and session in self.of
      self.of[session][p.start if kept else 0 :] = engine.version
      self._owner[p.slot] = session
    for request in engine._active.values():
      self.of[request.session][len(request.all_ids()) - 1 :] = engine.version
