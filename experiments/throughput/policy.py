"""A policy with random weights and the compiled pieces of its learner."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
from workload import Workload

from arl_jax.bridge import weights
from arl_jax.learner import sharding, state
from arl_jax.learner.optimizer import OptimizerConfig, make_optimizer
from arl_jax.learner.state import ModelFns
from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import UpdateFns, make_update_fns
from arl_jax.models import transformer
from arl_jax.models.transformer import ModelConfig
from arl_jax.types import LearnerState


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomPolicy:
  """A policy with random weights.

  Attributes:
    model: its shape.
    params: its weights, which nobody donates; also those of the reference.
    initial_state: makes the learner's state before the first update.
    fns: the compiled pieces of an update.
    publish: copies the learner's weights for the engine.
  """

  model: ModelConfig
  params: Any
  initial_state: Callable[[], LearnerState]
  fns: UpdateFns
  publish: Callable[[Any], Any]


def small_model(work: Workload, *, remat: str = "none") -> ModelConfig:
  """Returns the shape of the workload's policy."""
  return ModelConfig(
    vocab_size=work.vocab_size,
    num_layers=work.num_layers,
    model_dim=work.model_dim,
    num_heads=work.num_heads,
    num_kv_heads=work.num_kv_heads,
    head_dim=work.head_dim,
    mlp_dim=work.mlp_dim,
    rope_theta=1e6,
    qk_norm=True,
    tie_embeddings=True,
    remat=remat,
  )


def make_policy(
  model: ModelConfig,
  loss: LossConfig,
  *,
  optimizer_config: OptimizerConfig | None = None,
  accumulate: bool = True,
) -> RandomPolicy:
  """Draws the weights of a policy with a tied head; compiles no update yet."""
  mesh = sharding.make_mesh(sharding.MeshConfig())
  places = sharding.param_shardings(mesh, transformer.param_specs(model))
  params = jax.jit(
    lambda: transformer.init_params(jax.random.key(0), model),
    out_shardings=places,
  )()
  optimizer = make_optimizer(optimizer_config or OptimizerConfig())
  head = functools.partial(
    transformer.unembedding, config=model, transposed=True
  )
  fns = make_update_fns(
    ModelFns(
      apply=functools.partial(transformer.forward, config=model),
      unembedding=head,
      transposed=True,
    ),
    loss,
    optimizer,
    shardings=state.state_shardings(params, optimizer, shardings=places),
    accumulate=accumulate,
  )
  return RandomPolicy(
    model=model,
    params=params,
    initial_state=lambda: state.init_state(params, optimizer, shardings=places),
    fns=fns,
    publish=weights.make_publish(model, places),
  )
