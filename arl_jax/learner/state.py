"""The learner's state from parameters and an optimizer."""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from arl_jax.learner import sharding
from arl_jax.types import Array, LearnerState, PyTree


@dataclasses.dataclass(frozen=True)
class ModelFns:
  """A model as two pure functions, so that any architecture can be trained.

  Attributes:
    apply: `(params, tokens, positions, segment_ids) -> hidden [B, T, D]`.
    unembedding: `params -> [D, V]`; logits are `hidden @ unembedding`.
    transposed: `unembedding` gives `[V, D]` instead: a tied embedding as it
      is, for turning it would copy it.
  """

  apply: Callable[[PyTree, Array, Array, Array], Array]
  unembedding: Callable[[PyTree], Array]
  transposed: bool = False


def init_state(
  params: PyTree,
  optimizer: optax.GradientTransformation,
  *,
  shardings: PyTree,
) -> LearnerState:
  """Makes the state before the first update.

  The parameters are copied: an update donates the state, and the caller's
  arrays (a reference policy, an actor's weights) must outlive it.

  Args:
    params: parameters, on the host or on any device.
    optimizer: what will update them.
    shardings: sharding of each parameter, see `sharding.param_shardings`.

  Returns:
    The state on the mesh of `shardings`, moments sharded as their parameters.
  """
  params = jax.device_put(params, shardings, may_alias=False)
  target = state_shardings(params, optimizer, shardings=shardings)
  opt_state = jax.jit(optimizer.init, out_shardings=target.opt_state)(params)
  step = jax.device_put(np.int32(0), target.step)
  return LearnerState(params=params, opt_state=opt_state, step=step)


def abstract_state(
  params: PyTree,
  optimizer: optax.GradientTransformation,
  *,
  shardings: PyTree,
) -> LearnerState:
  """Describes a state without making it, as a restore target.

  Args:
    params: arrays or `jax.ShapeDtypeStruct`s.
    optimizer: what will update them.
    shardings: sharding of each parameter.

  Returns:
    A state of `jax.ShapeDtypeStruct`s that carry shardings.
  """
  params = jax.eval_shape(lambda p: p, params)
  step: Any = jax.ShapeDtypeStruct((), jnp.int32)
  shapes = LearnerState(
    params=params,
    opt_state=jax.eval_shape(optimizer.init, params),
    step=step,
  )
  return jax.tree.map(
    lambda leaf, place: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=place
    ),
    shapes,
    state_shardings(params, optimizer, shardings=shardings),
  )


def state_shardings(
  params: PyTree,
  optimizer: optax.GradientTransformation,
  *,
  shardings: PyTree,
) -> LearnerState:
  """Shards a whole state after its parameters.

  A leaf of the optimizer's state whose path ends as a parameter's path and
  that has its shape is a moment of that parameter; the rest is replicated.
  """
  whole: Any = sharding.replicated(jax.tree.leaves(shardings)[0].mesh)
  places: dict[tuple[str, ...], Any] = {
    _names(path): place
    for path, place in jax.tree_util.tree_leaves_with_path(shardings)
  }
  shapes = {
    _names(path): leaf.shape
    for path, leaf in jax.tree_util.tree_leaves_with_path(params)
  }

  def place_of(path, leaf):
    names = _names(path)
    for start in range(len(names)):
      if shapes.get(names[start:]) == leaf.shape:
        return places[names[start:]]
    return whole

  opt_state = jax.eval_shape(optimizer.init, params)
  return LearnerState(
    params=shardings,
    opt_state=jax.tree_util.tree_map_with_path(place_of, opt_state),
    step=whole,
  )


def _names(path: tuple[Any, ...]) -> tuple[str, ...]:
  return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
