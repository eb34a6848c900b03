"""The parts of a run, assembled from its settings."""

from collections.abc import Iterator, Sequence
from concurrent import futures
import dataclasses
import functools
import pathlib
from typing import Any

from jax.sharding import Mesh
import optax

from arl_jax.actors.policy import Policy, SamplingParams
from arl_jax.actors.pool import Actor
from arl_jax.actors.rollout import Limits
from arl_jax.bridge import weights
from arl_jax.bridge.engine import Engine
from arl_jax.config import blame
from arl_jax.episode import Task
from arl_jax.learner import sharding
from arl_jax.learner import state as state_lib
from arl_jax.learner import update as update_lib
from arl_jax.learner.optimizer import make_optimizer, make_schedule
from arl_jax.learner.state import ModelFns
from arl_jax.learner.update import UpdateFns
from arl_jax.models import kv_cache, transformer
from arl_jax.run.initial_policy import (
  InitialPolicy,
  blame_policy,
  make_initial_policy,
)
from arl_jax.run.settings import Settings
from arl_jax.run.suite import Suite
from arl_jax.run.suites import make_suite
from arl_jax.text.chat import ChatFormat
from arl_jax.types import LearnerState

# Expert episodes that a small policy's tokenizer is trained on.
_NUM_TOKENIZER_EPISODES = 1500
# All runs are measured on the same held-out tasks, whatever their seed.
_HELDOUT_SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunParts:
  """What training and evaluation share.

  Attributes:
    settings: of the run.
    suite: the environment.
    policy: tokenizer, shape and initial weights.
    chat: messages to token ids.
    mesh: the devices.
    model: the architecture as functions.
    shardings: of the parameters.
    optimizer: of the reinforcement learning.
    device: the one thread that device work runs on.
  """

  settings: Settings
  suite: Suite
  policy: InitialPolicy
  chat: ChatFormat
  mesh: Mesh
  model: ModelFns
  shardings: Any
  optimizer: optax.GradientTransformation
  device: futures.ThreadPoolExecutor

  def state(self, params: Any) -> LearnerState:
    """Makes the learner's state before its first update."""
    return state_lib.init_state(
      params, self.optimizer, shardings=self.shardings
    )

  def abstract_state(self) -> LearnerState:
    """Describes the learner's state, as a restore target."""
    return state_lib.abstract_state(
      self.policy.params, self.optimizer, shardings=self.shardings
    )

  def update_fns(self) -> UpdateFns:
    """Prepares the compiled pieces of the learner."""
    return update_lib.make_update_fns(
      self.model,
      self.settings.loss,
      self.optimizer,
      shardings=state_lib.state_shardings(
        self.policy.params, self.optimizer, shardings=self.shardings
      ),
      schedule=make_schedule(self.settings.optimizer),
      accumulate=self.settings.accumulates_gradients,
    )

  def engine(self, params: Any, *, version: int) -> Engine:
    """Makes an engine on a copy of the parameters."""
    # The engine needs no gradient, so its layers are one scan.
    model = dataclasses.replace(self.policy.model, num_frozen_layers=0)
    config = self.settings.engine
    shape = kv_cache.cache_shape(
      model, num_slots=config.num_slots, max_length=config.max_length
    )
    return Engine(
      model,
      self.publish(params),
      config,
      version=version,
      executor=self.device,
      cache_sharding=sharding.sharding_for(
        self.mesh, kv_cache.CACHE_AXES, shape
      ),
    )

  @functools.cached_property
  def publish(self):
    """Copies learner weights for the engine."""
    return weights.make_publish(self.policy.model, self.shardings)

  @functools.cached_property
  def copy(self):
    """Copies learner weights for a reference policy."""
    return weights.make_copy(self.shardings)

  def heldout_tasks(self) -> list[Task]:
    """Makes the tasks that the policy is measured on."""
    return self.suite.heldout_tasks(
      self.settings.evaluation.num_tasks, _HELDOUT_SEED
    )

  def actor(
    self, policy: Policy, *, name: str, seed: int, temperature: float
  ) -> Actor:
    """Makes an actor on the run's environment and limits."""
    rollout = self.settings.rollout
    return Actor(
      policy=policy,
      make_environment=self.suite.make_environment,
      chat=self.chat,
      limits=Limits(
        max_turns=rollout.max_turns,
        max_tokens_per_turn=rollout.max_tokens_per_turn,
        max_length=rollout.max_length,
        context=rollout.context_policy,
        max_observation_chars=rollout.max_observation_chars,
        step_timeout_seconds=rollout.step_timeout_seconds,
        episode_timeout_seconds=rollout.episode_timeout_seconds,
      ),
      sampling=SamplingParams(
        temperature=temperature, top_k=rollout.top_k, top_p=rollout.top_p
      ),
      reward_weights=self.settings.environment.reward_weights,
      reward_fns=self.suite.reward_fns,
      seed=seed,
      name=name,
    )


def tokenizer_texts(suite: Suite, *, seed: int) -> Iterator[str]:
  """Yields what the tokenizer of a small policy is trained on."""
  for one in suite.demonstrate(_NUM_TOKENIZER_EPISODES, seed, 0.5, True):
    for observations, action in one.turns:
      yield from (message.content for message in observations)
      yield action


def assemble(
  settings: Settings,
  *,
  saved_tokenizer: pathlib.Path | None = None,
  devices: Sequence[Any] | None = None,
) -> RunParts:
  """Builds everything that needs no checkpoint.

  Args:
    settings: of the run.
    saved_tokenizer: folder of the tokenizer that the run began with.
    devices: those to use; all that JAX sees by default.

  Raises:
    ConfigError: the environment or the policy cannot be made.
  """
  suite = make_suite(settings.environment)

  with blame_policy(settings.policy):
    policy = make_initial_policy(
      settings.policy,
      texts=lambda: tokenizer_texts(suite, seed=settings.seed),
      split_pattern=suite.split_pattern,
      seed=settings.seed,
      saved_tokenizer=saved_tokenizer,
    )
  with blame("config.mesh", settings.mesh):
    mesh = sharding.make_mesh(settings.mesh, devices)
  return RunParts(
    settings=settings,
    suite=suite,
    policy=policy,
    chat=ChatFormat(policy.tokenizer),
    mesh=mesh,
    model=ModelFns(
      apply=functools.partial(_apply, policy.model, mesh),
      unembedding=functools.partial(
        transformer.unembedding,
        config=policy.model,
        transposed=policy.model.tie_embeddings,
      ),
      transposed=policy.model.tie_embeddings,
    ),
    shardings=sharding.param_shardings(
      mesh, transformer.param_specs(policy.model)
    ),
    optimizer=make_optimizer(settings.optimizer),
    device=futures.ThreadPoolExecutor(1, "device"),
  )


def _apply(config, mesh, params, tokens, positions, segment_ids):
  hidden = transformer.forward(
    params, tokens, positions, segment_ids, config=config
  )
  return sharding.constrain_rows(mesh, hidden)
