"""Door 3: learner weights become the engine's own copy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from arl_jax.learner import sharding
from arl_jax.models import transformer
from arl_jax.models.transformer import ModelConfig


def make_copy(shardings: Any = None) -> Callable[[Any], Any]:
  """Returns a function that copies weights, for a reference policy.

  The learner donates its parameters to the next update, so nobody else may
  share their buffers.

  Args:
    shardings: where the copy lives, a tree or one NamedSharding; by default
      where the learner's weights live.
  """
  return jax.jit(
    lambda params: jax.tree.map(jnp.copy, params), out_shardings=shardings
  )


def make_publish(
  config: ModelConfig, shardings: Any = None
) -> Callable[[Any], Any]:
  """Returns a function that copies weights for the engine.

  Args:
    config: shape of the transformer; weights are cast to its dtype.
    shardings: of the learner's weights, a tree; the copy lives where they do.

  Returns:
    A function of the learner's weights. Its result has a tree for each layer,
    see `transformer.unstack_layers`.
  """

  def publish(params):
    copied = jax.tree.map(lambda a: jnp.copy(a.astype(config.dtype)), params)
    return transformer.unstack_layers(copied)

  if shardings is not None:
    shardings = sharding.unstack_shardings(shardings, config.num_layers)
  return jax.jit(publish, out_shardings=shardings)
