"""A small head on a frozen policy that scores turns, trained on outcomes.

It reads the policy's hidden state at each turn and says how well episodes went
from there on (Math-Shepherd's soft labels; AgentPRM for turns). The policy's
weights get no gradient.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from arl_jax.learner.state import ModelFns
from arl_jax.ops import process_rewards
from arl_jax.types import Array, PyTree, TrajectoryBatch

Place = Literal["before", "after"]
Mode = Literal["potential", "add"]
_PLACES = ("before", "after")
_MODES = ("potential", "add")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScorerConfig:
  """How a head is trained, on all turns at once.

  Attributes:
    num_steps: optimizer steps.
    learning_rate: of Adam, falling to 0 along a cosine.
    weight_decay: pulls the weights to 0; few episodes need more of it.
  """

  num_steps: int = 300
  learning_rate: float = 1e-2
  weight_decay: float = 1e-3

  def __post_init__(self) -> None:
    if self.num_steps < 1:
      raise ValueError(f"num_steps is {self.num_steps}; expected 1 or more")
    if self.learning_rate <= 0 or self.weight_decay < 0:
      raise ValueError(
        f"learning_rate is {self.learning_rate} and weight_decay"
        f" {self.weight_decay}; expected more than 0, and 0 or more"
      )


def init_head(key: Array, dim: int, *, hidden_dim: int = 0) -> dict[str, Array]:
  """Returns a head that gives every turn 0.5.

  Args:
    key: of the hidden layer's weights.
    dim: D, width of the policy.
    hidden_dim: width of a hidden layer; 0 is a linear head.
  """
  if not hidden_dim:
    return {"w": jnp.zeros(dim), "b": jnp.zeros(())}
  return {
    "w_in": dim**-0.5 * jax.random.normal(key, (dim, hidden_dim)),
    "b_in": jnp.zeros(hidden_dim),
    "w": jnp.zeros(hidden_dim),
    "b": jnp.zeros(()),
  }


def head_logits(head: PyTree, vectors: Array) -> Array:
  """Scores before the sigmoid.

  Args:
    head: as `init_head` makes it.
    vectors: `[..., D]` hidden states.

  Returns:
    `[...]` float32.
  """
  x = vectors.astype(jnp.float32)
  if "w_in" in head:
    x = jax.nn.gelu(x @ head["w_in"] + head["b_in"])
  return x @ head["w"] + head["b"]


def turn_places(
  batch: TrajectoryBatch, *, at: Place = "before"
) -> tuple[Array, Array]:
  """Where each turn is read, and whether it is in its row at all.

  Args:
    batch: rows, one to a line.
    at: `before` is the last token before the action: what the policy knew, the
      end of the observation. `after` is the action's last token.

  Returns:
    int32 `[B, K]` places along T, and bool `[B, K]`.
  """
  if at not in _PLACES:
    raise ValueError(f"at is {at!r}; expected one of {_PLACES}")
  num_tokens, num_turns = batch.tokens.shape[1], batch.turn_mask.shape[1]
  token = jnp.arange(num_tokens)[None, :, None]
  is_turn = batch.turn_ids[:, :, None] == jnp.arange(num_turns)  # [B, T, K]
  if at == "before":
    place = jnp.min(jnp.where(is_turn, token, num_tokens), axis=1) - 1
  else:
    place = jnp.max(jnp.where(is_turn, token, -1), axis=1)
  live = batch.turn_mask & jnp.any(is_turn, axis=1) & (place >= 0)
  return jnp.where(live, place, 0), live


@functools.partial(jax.jit, static_argnames=("model", "at", "rows_at_once"))
def turn_vectors(
  params: PyTree,
  batch: TrajectoryBatch,
  *,
  model: ModelFns,
  at: Place = "before",
  rows_at_once: int = 32,
) -> tuple[Array, Array]:
  """The frozen policy's hidden state at each turn.

  Args:
    params: of the policy.
    batch: rows, one to a line.
    model: the architecture.
    at: see `turn_places`.
    rows_at_once: rows per forward pass, which bounds memory.

  Returns:
    float32 `[B, K, D]`, 0 where there is no turn, and bool `[B, K]`.
  """
  places, live = turn_places(batch, at=at)

  inputs = (batch.tokens, batch.positions, batch.segment_ids, places)
  num_rows = places.shape[0]
  rows = min(rows_at_once, num_rows)

  def split(array: Array) -> Array:
    padded = jnp.pad(jnp.asarray(array), ((0, -num_rows % rows), (0, 0)))
    return padded.reshape(-1, rows, array.shape[1])

  def read(part: tuple[Array, ...]) -> Array:
    *tokens, place = part
    hidden = model.apply(params, *tokens)
    return jnp.take_along_axis(hidden, place[:, :, None], axis=1)

  found = jax.lax.map(read, jax.tree.map(split, inputs))
  found = found.reshape(-1, *found.shape[2:])[:num_rows]
  found = jax.lax.stop_gradient(found.astype(jnp.float32))
  return jnp.where(live[:, :, None], found, 0.0), live


def score_turns(
  params: PyTree,
  head: PyTree,
  batch: TrajectoryBatch,
  *,
  model: ModelFns,
  at: Place = "before",
  rows_at_once: int = 32,
) -> Array:
  """Scores each turn.

  Args:
    params: of the policy that the head was trained on.
    head: as `fit_head` made it.
    batch: rows, one to a line.
    model: the architecture.
    at: as in training, see `turn_places`.
    rows_at_once: rows per forward pass.

  Returns:
    float32 `[B, K]` in [0, 1]; 0 where there is no turn.
  """
  vectors, live = turn_vectors(
    params, batch, model=model, at=at, rows_at_once=rows_at_once
  )
  return jnp.where(live, jax.nn.sigmoid(head_logits(head, vectors)), 0.0)


@functools.partial(jax.jit, static_argnames=("config",))
def fit_head(
  head: PyTree,
  vectors: Array,
  targets: Array,
  turn_mask: Array,
  *,
  config: ScorerConfig = ScorerConfig(),
) -> tuple[PyTree, Array]:
  """Trains a head on soft labels; the same arguments give the same head.

  Args:
    head: to start from.
    vectors: `[B, K, D]` hidden states, as `turn_vectors` reads them.
    targets: `[B, K]` in [0, 1], such as `ops.monte_carlo_targets`.
    turn_mask: bool `[B, K]` the turns to learn from.
    config: how.

  Returns:
    The head, and float32 `[num_steps]` the loss before each step.
  """
  optimizer = optax.adamw(
    optax.cosine_decay_schedule(config.learning_rate, config.num_steps),
    weight_decay=config.weight_decay,
  )
  count = jnp.maximum(jnp.sum(turn_mask), 1)

  def loss(head: PyTree) -> Array:
    each = process_rewards.process_score_loss(
      head_logits(head, vectors), targets, turn_mask
    )
    return jnp.sum(each) / count

  def step(carry: Any, _: None) -> tuple[Any, Array]:
    head, state = carry
    value, gradient = jax.value_and_grad(loss)(head)
    updates, state = optimizer.update(gradient, state, head)
    return (optax.apply_updates(head, updates), state), value

  (head, _), losses = jax.lax.scan(
    step, (head, optimizer.init(head)), length=config.num_steps
  )
  return head, losses


def add_process_scores(
  batch: TrajectoryBatch,
  scores: Array,
  *,
  weight: float,
  mode: Mode = "potential",
  discount: float = 1.0,
) -> TrajectoryBatch:
  """Adds scores of turns to their rewards.

  Args:
    batch: all rows of a step.
    scores: `[B, K]` in [0, 1].
    weight: of the scores; 0 changes nothing.
    mode: `potential` pays the weighted difference of the next score and this
      one, which leaves the order of episodes from the same start as it was;
      scores are then values of states, read `before` turns. `add` pays the
      score itself, and with it every further turn.
    discount: per turn, that of the advantage.

  Returns:
    The batch with other `turn_rewards`.
  """
  if mode not in _MODES:
    raise ValueError(f"mode is {mode!r}; expected one of {_MODES}")
  added = jnp.where(batch.turn_mask, scores, 0.0)
  if mode == "potential":
    added = process_rewards.potential_rewards(
      scores, batch.turn_mask, discount=discount
    )
  rewards = jnp.where(batch.turn_mask, batch.turn_rewards, 0.0)
  return dataclasses.replace(batch, turn_rewards=rewards + weight * added)


def make_shaping(
  params: PyTree,
  head: PyTree,
  *,
  model: ModelFns,
  weight: float,
  mode: Mode = "potential",
  discount: float = 1.0,
  at: Place = "before",
  rows_at_once: int = 32,
) -> Callable[[TrajectoryBatch, Any], Array]:
  """Returns a shaping for `ShapingConfig.names`.

  The weights are part of the compiled function, so this is for a small policy
  that stays as it is.

  Args:
    params: of the policy that the head was trained on, not of the learner.
    head: as `fit_head` made it.
    model: the architecture of `params`.
    weight: see `add_process_scores`, as for the next two.
    mode: `potential` or `add`.
    discount: per turn, that of the advantage.
    at: as in training.
    rows_at_once: rows per forward pass.
  """

  def process_scores(batch: TrajectoryBatch, config: Any) -> Array:
    del config
    scores = score_turns(
      params, head, batch, model=model, at=at, rows_at_once=rows_at_once
    )
    return add_process_scores(
      batch, scores, weight=weight, mode=mode, discount=discount
    ).turn_rewards

  return process_scores
