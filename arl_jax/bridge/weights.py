"""Door 3: learner weights become the engine's own copy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def make_publish(dtype: str, shardings: Any = None) -> Callable[[Any], Any]:
  """Returns a function that copies weights for the engine.

  The learner donates its parameters to the next update, so the engine must
  never share their buffers.

  Args:
    dtype: of the engine's activations; weights are cast to it.
    shardings: where the copy lives, a tree or one NamedSharding; by default
      where the learner's weights live.
  """

  def copy(params):
    return jax.tree.map(lambda a: jnp.copy(a.astype(dtype)), params)

  return jax.jit(copy, out_shardings=shardings)
