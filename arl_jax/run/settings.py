"""A run's configuration as one frozen record, checked before any compile."""

import dataclasses
from typing import Any, Literal

from arl_jax import config as config_lib
from arl_jax.actors.context import ContextPolicy
from arl_jax.bridge.engine_config import EngineConfig
from arl_jax.learner.credit import AdvantageConfig
from arl_jax.learner.filters import FilterConfig
from arl_jax.learner.optimizer import OptimizerConfig
from arl_jax.learner.shaping import ShapingConfig
from arl_jax.learner.sharding import MeshConfig
from arl_jax.learner.surrogates import LossConfig
from arl_jax.run import config_ranges
from arl_jax.run.initial_policy import PolicySettings
from arl_jax.run.suites import find_suite
from arl_jax.run.warmup import WarmupSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings:
  """How episodes are sampled.

  Attributes:
    tasks_per_step: groups in one learner step.
    group_size: episodes of one task that are learned from.
    num_extra_members: episodes of one task that are sampled beyond them; of
      all, the cleanest successes and some failures stay (resample on correct).
    temperature: divides the logits.
    top_k: most likely tokens kept, 0 for all.
    top_p: probability kept, 1 for all.
    max_turns: actions of one episode.
    max_tokens_per_turn: tokens of one action.
    max_length: tokens of one row.
    context: what happens to an episode whose row is full. `none` ends it;
      `drop_observations` goes on in a new row, which begins with the prompt
      and what the agent did so far, old observations left out.
    context_keep_turns: last turns whose observations the new row keeps.
    context_max_tokens: length at which a row is full; 0 is `max_length`.
    context_max_turns: actions after which a row is full; 0 for any number.
    max_rows_per_episode: rows of one episode, for which each batch has room;
      an episode ends with the last one.
    max_observation_chars: characters of one observation; the rest is cut off,
      with a note, before it becomes tokens.
    mode: `sync` learns after sampling, `async` at the same time.
    max_staleness: updates that may lie between sampling and learning.
    max_concurrent_groups: groups that run at once; 0 is all of a step.
    max_replaced_groups: groups without variance that are replaced by others
      per version of the weights (dynamic sampling); 0 trains on what comes.
    step_timeout_seconds: time for one answer of the environment.
    episode_timeout_seconds: time for one episode.
    group_timeout_seconds: time for one group; members that still run are lost.
  """

  tasks_per_step: int = 16
  group_size: int = 8
  num_extra_members: int = 0
  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  max_turns: int = 12
  max_tokens_per_turn: int = 40
  max_length: int = 208
  context: Literal["none", "drop_observations"] = "none"
  context_keep_turns: int = 2
  context_max_tokens: int = 0
  context_max_turns: int = 0
  max_rows_per_episode: int = 1
  max_observation_chars: int = 32768
  mode: Literal["sync", "async"] = "sync"
  max_staleness: int = 0
  max_concurrent_groups: int = 0
  max_replaced_groups: int = 0
  step_timeout_seconds: float = 60.0
  episode_timeout_seconds: float = 120.0
  group_timeout_seconds: float = 600.0

  def __post_init__(self) -> None:
    if (self.context == "none") != (self.max_rows_per_episode == 1):
      raise ValueError(
        f"context is {self.context!r} and max_rows_per_episode"
        f" {self.max_rows_per_episode}; expected 1 with 'none', and 2 or more"
        " with 'drop_observations'"
      )

  @property
  def context_policy(self) -> ContextPolicy | None:
    """When and how an episode goes on in a new row; None if it does not."""
    if self.context == "none":
      return None
    return ContextPolicy(
      max_rows=self.max_rows_per_episode,
      keep_turns=self.context_keep_turns,
      max_tokens=self.context_max_tokens,
      max_turns=self.context_max_turns,
    )

  @property
  def max_rows(self) -> int:
    """Rows that a step may have."""
    return self.tasks_per_step * self.group_size * self.max_rows_per_episode


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerSettings:
  """How a step's episodes become updates.

  Attributes:
    num_steps: rollouts to learn from.
    minibatches_per_step: most optimizer updates per rollout.
    min_minibatch_rows: fewest rows of an update, unless there are fewer.
    micro_batch_rows: rows per gradient call.
    length_buckets: padded lengths; `rollout.max_length` is always one.
    packed_lengths: lengths of packed rows, which hold several rows behind
      each other; empty packs nothing. `micro_batch_rows` then counts packed
      rows and `length_buckets` are not used.
    rows_per_pack: most rows in a packed one.
    recompute_logprobs: score a step's rows with the weights before its
      updates, which are then the old policy of surrogates and corrections; it
      is the behaviour policy otherwise. Costs a forward pass.
    reference_reset_every: steps after which the reference becomes the current
      policy; 0 is never.
    train_on_observations: train tokens of observations like the action before
      them. Wrong, and here to measure what the mask is worth; needs
      `recompute_logprobs`, since nobody sampled these tokens.
  """

  num_steps: int = 20
  minibatches_per_step: int = 4
  min_minibatch_rows: int = 16
  micro_batch_rows: int = 32
  length_buckets: tuple[int, ...] = ()
  packed_lengths: tuple[int, ...] = ()
  rows_per_pack: int = 8
  recompute_logprobs: bool = False
  reference_reset_every: int = 0
  train_on_observations: bool = False

  def __post_init__(self) -> None:
    if self.train_on_observations and not self.recompute_logprobs:
      raise ValueError(
        "train_on_observations is True and recompute_logprobs False, but the"
        " engine has no log-probabilities of observations; set"
        " recompute_logprobs to True, or train_on_observations to False, which"
        " is right except in an ablation"
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
  """How the policy is measured on tasks it never trained on.

  Attributes:
    num_tasks: held-out tasks.
    samples_per_task: episodes of each; pass@k needs k.
    temperature: divides the logits.
    every: steps between evaluations; 0 is before and after only.
  """

  num_tasks: int = 200
  samples_per_task: int = 1
  temperature: float = 1.0
  every: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
  """When a run is saved.

  Attributes:
    every: steps between checkpoints; the last step is always saved.
    keep: how many of the latest are kept.
  """

  every: int = 5
  keep: int = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreSettings:
  """What is kept of the episodes that were trained on.

  Attributes:
    max_gigabytes: space for them, the oldest steps are deleted beyond it; 0
      keeps none.
  """

  max_gigabytes: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailureSettings:
  """When a run gives up.

  Attributes:
    max_in_a_row: episodes that may fail one after the other.
    watchdog_seconds: time in which something has to move; 0 waits forever.
      Compiling counts as standing still, which takes minutes on accelerators.
  """

  max_in_a_row: int = 128
  watchdog_seconds: float = 1800.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebugSettings:
  """Runs with a part left out.

  Attributes:
    mode: `none`; `rollout_only` samples and stores episodes and learns nothing;
      `simulated_learner` does so too, but takes `learn_seconds` for a step and
      publishes the same weights as new ones, for the actors to be tested;
      `train_from_store` learns from the episodes of another run. The two in
      the middle write no checkpoints.
    learn_seconds: time that a simulated step takes.
    store: the folder of trajectories to train on.
  """

  mode: Literal[
    "none", "rollout_only", "simulated_learner", "train_from_store"
  ] = "none"
  learn_seconds: float = 1.0
  store: str = ""

  @property
  def learns(self) -> bool:
    """True if the weights change."""
    return self.mode in ("none", "train_from_store")

  @property
  def samples(self) -> bool:
    """True if episodes are sampled."""
    return self.mode != "train_from_store"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings:
  """What a run leaves to read.

  Attributes:
    num_episodes_as_text: episodes of the last evaluation written as text.
  """

  num_episodes_as_text: int = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """All sections of a configuration; see each for its fields.

  That of the environment is the record of its `SuiteKind`.
  """

  seed: int
  policy: PolicySettings
  environment: Any
  warmup: WarmupSettings
  rollout: RolloutSettings
  engine: EngineConfig
  shaping: ShapingConfig = ShapingConfig()
  filters: FilterConfig = FilterConfig()
  advantage: AdvantageConfig
  loss: LossConfig
  optimizer: OptimizerConfig
  learner: LearnerSettings
  mesh: MeshConfig
  evaluation: EvaluationSettings
  checkpoint: CheckpointSettings
  store: StoreSettings = StoreSettings()
  failures: FailureSettings = FailureSettings()
  debug: DebugSettings = DebugSettings()
  output: OutputSettings

  @property
  def accumulates_gradients(self) -> bool:
    """True if an update can have more than one micro-batch."""
    learner = self.learner
    if learner.packed_lengths:
      return True
    rows = self.rollout.max_rows
    even = -(-rows // learner.minibatches_per_step)
    # With fewer rows there are fewer updates, of less than twice the minimum.
    most = min(rows, max(even, 2 * learner.min_minibatch_rows - 1))
    return most > learner.micro_batch_rows


def read_settings(config: config_lib.Section) -> Settings:
  """Turns a configuration into settings.

  Args:
    config: all sections, as a configuration file returns them.

  Raises:
    ConfigError: naming the key, what was found and what is allowed.
  """
  environment = _read_environment(config)
  settings = config_lib.build(
    Settings,
    config,
    path="config",
    ignore=("environment",),
    given={"environment": environment},
  )
  config_ranges.check(settings)
  # Two values that other sections own: a row fills a slot, and the learner
  # scores the distribution that was sampled from.
  return dataclasses.replace(
    settings,
    engine=dataclasses.replace(
      settings.engine, max_length=settings.rollout.max_length
    ),
    loss=dataclasses.replace(
      settings.loss, temperature=settings.rollout.temperature
    ),
  )


def _read_environment(config: config_lib.Section) -> Any:
  """Makes the record that the environment's name asks for."""
  name = config_lib.get(config, "environment.name")
  if not isinstance(name, str):
    raise config_lib.ConfigError(
      f"config.environment.name is {name!r}; expected a string."
    )
  try:
    kind = find_suite(name)
  except ValueError as error:
    raise config_lib.ConfigError(str(error)) from error
  return config_lib.build(
    kind.settings,
    config_lib.get(config, "environment"),
    path="config.environment",
  )
