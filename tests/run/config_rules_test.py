"""Tests of the combinations that cannot work."""

import dataclasses
from typing import Any

import pytest

from arl_jax import command_line
from arl_jax import config as config_lib
from arl_jax.run import config_rules
from arl_jax.run.settings import read_settings


def _config(
  *overrides: str, variant: str = "", file: str = "flight_booking"
) -> Any:
  name = f"configs/{file}.py{variant}"
  flags = ["test", f"--config={name}", "--workdir=unused"]
  config = command_line.parse([*flags, *overrides]).config
  # As a run does: what a record refuses on its own never gets to the rules.
  return read_settings(config)


@pytest.mark.parametrize("variant", ["", ":smollm2", ":runlocal"])
def test_shipped_variants_are_possible(variant):
  config_rules.check(_config(variant=variant))


@pytest.mark.parametrize(
  ("overrides", "key"),
  [
    (["rollout.group_size=1"], "config.rollout.group_size is 1"),
    (["rollout.group_size=0"], "config.rollout.group_size is 0"),
    (["learner.minibatches_per_step=3"], "does not divide the 128 episodes"),
    (["rollout.max_tokens_per_turn=224"], "leaves no room for a prompt"),
    (["rollout.max_staleness=1"], "config.rollout.max_staleness is 1"),
    (["rollout.max_staleness=-1"], "config.rollout.max_staleness is -1"),
    (
      ["rollout.max_replaced_groups=2", "rollout.group_size=1"],
      "config.rollout.max_replaced_groups is 2",
    ),
    (["rollout.group_timeout_seconds=0"], "group_timeout_seconds is 0.0"),
    (["rollout.max_observation_chars=0"], "max_observation_chars is 0"),
    (
      ["failures.watchdog_seconds=10"],
      "config.failures.watchdog_seconds is 10",
    ),
    (["failures.max_in_a_row=0"], "config.failures.max_in_a_row is 0"),
    (["store.max_gigabytes=-1"], "config.store.max_gigabytes is -1.0"),
    (["debug.mode=train_from_store"], "config.debug.store is ''"),
    (["debug.store=x"], "config.debug.mode is none and config.debug.store"),
    (
      ["debug.mode=rollout_only", "store.max_gigabytes=0"],
      "the store is all that",
    ),
    (["rollout.temperature=0"], "config.rollout.temperature is 0.0"),
    (["rollout.top_p=0"], "config.rollout.top_p is 0.0"),
    (["rollout.step_timeout_seconds=0"], "step_timeout_seconds is 0.0"),
    (["evaluation.num_tasks=0"], "config.evaluation.num_tasks is 0"),
    (["evaluation.temperature=-1"], "config.evaluation.temperature is -1"),
    (["policy.kind=hf"], "config.policy.path is empty"),
    (
      ["policy.kind=hf", "policy.path=Qwen/Qwen3-0.6B"],
      "config.policy.path is 'Qwen/Qwen3-0.6B', which is not a folder",
    ),
    (["policy.path=x"], "config.policy.path is 'x'"),
    (["learner.length_buckets=(160,96)"], "config.learner.length_buckets"),
    (["learner.length_buckets=(96,999)"], "config.learner.length_buckets"),
    (["warmup.length_buckets=(0,96)"], "config.warmup.length_buckets"),
    (["loss.kl_weight=-0.1"], "config.loss.kl_weight is -0.1"),
    (["loss.surrogate=decoupled"], "config.learner.recompute_logprobs"),
    (["loss.surrogate=decoupled"], "config.loss.proximal to interpolated"),
    (
      [
        "loss.surrogate=decoupled",
        "loss.proximal=interpolated",
        "learner.recompute_logprobs=True",
      ],
      "config.loss.proximal is interpolated, which needs no forward pass",
    ),
    (["loss.proximal=interpolated"], "surrogate 'clipped' does not read"),
    (["loss.proximal=guessed"], "config.loss.proximal is 'guessed'; expected"),
    (
      ["loss.surrogate=decoupled", "loss.importance=mask"],
      "already corrects for the behaviour policy",
    ),
    (["loss.importance=clamp"], "needs importance_lower"),
    (["filters.before_advantages=('age',)"], "'age', which needs max_age"),
    (["filters.max_age=2"], "max_age is 2, but no filter reads it"),
    (
      ["filters.before_advantages=('age',)", "filters.max_age=-1"],
      "config.filters.max_age is -1; expected 0 or more",
    ),
    (["warmup.episodes=no/file.jsonl"], "is 'no/file.jsonl', which is not th"),
    (["rollout.max_rows_per_episode=3"], "context is 'none' and max_rows_per"),
    (
      ["rollout.context=drop_observations"],
      "is 'drop_observations' and max_rows_per_episode 1",
    ),
    (
      [
        "rollout.context=drop_observations",
        "rollout.max_rows_per_episode=3",
        "advantage.name=gigpo",
      ],
      "config.advantage.name has gigpo, which looks at one row at a time",
    ),
    (
      [
        "rollout.context=drop_observations",
        "rollout.max_rows_per_episode=3",
        "shaping.names=('soft_min',)",
      ],
      "config.shaping.names has soft_min, which looks at one row at a time",
    ),
    (["learner.reference_reset_every=5"], "there is no reference while"),
    (
      ["learner.train_on_observations=True"],
      "set recompute_logprobs to True",
    ),
    (["policy.num_heads=3"], "config.policy.num_heads is 3; expected a mult"),
    (["policy.head_dim=31"], "config.policy.head_dim is 31; expected an even"),
    (["policy.num_frozen_layers=4"], "config.policy.num_frozen_layers is 4"),
    (["environment.levels=()"], "config.environment.levels is empty"),
    (["environment.kinds=()"], "config.environment.kinds is ()"),
    (["environment.kinds=('red',)"], "expected some of cheapest, earliest"),
    (["environment.num_flights=1"], "config.environment.num_flights is 1"),
    (["environment.num_flights=9"], "config.environment.num_flights is 9"),
    (["optimizer.schedule=cosine"], "config.optimizer.total_steps is 0"),
    (["optimizer.schedule=linear"], "This run makes at most 120"),
    (["warmup.num_steps=20"], "with config.warmup.num_steps 20, but schedule"),
    (["rollout.top_k=5"], "config.rollout.top_k is 5, so the engine's"),
    (["rollout.top_p=0.9"], "config.rollout.top_p is 0.9, so the engine's"),
    (["rollout.top_p=0.9"], "set config.learner.recompute_logprobs to True"),
    (["engine.decode_rows=(129,)"], "config.engine.decode_rows is (129,)"),
    (["engine.kv_lengths=(64,225)"], "config.engine.kv_lengths is (64, 225)"),
    (
      ["loss.dual_clip=3.0", "loss.surrogate=gspo"],
      "config.loss.dual_clip is 3.0, which surrogate gspo does not read",
    ),
    (["loss.importance_lower=2.5"], "config.loss.importance_lower is 2.5"),
    (["filters.ratio_lower=1.5"], "config.filters.ratio_lower is 1.5"),
    (["mesh.fsdp=0"], "config.mesh.fsdp is 0; expected 1 or more, or -1"),
    (["mesh.fsdp=-1"], "config.mesh.data and config.mesh.fsdp are -1"),
  ],
)
def test_impossible_combination_is_named(overrides, key):
  with pytest.raises(config_lib.ConfigError) as caught:
    config_rules.check(
      _config(*[f"--config.{override}" for override in overrides])
    )
  assert key in str(caught.value)


def test_something_is_rewarded():
  settings = _config()
  settings.environment.reward_weights.clear()
  with pytest.raises(config_lib.ConfigError, match="reward_weights is empty"):
    config_rules.check(settings)


def test_an_action_of_endless_programs_ends_before_its_step_does():
  settings = _config("--config.rollout.step_timeout_seconds=20", file="code")
  with pytest.raises(config_lib.ConfigError, match=r"is 4 x 5\.0; use more"):
    config_rules.check(settings)
  more = _config("--config.rollout.step_timeout_seconds=20.1", file="code")
  config_rules.check(more)


def test_every_problem_is_listed():
  config = _config("--config.rollout.max_staleness=1", "--config.policy.path=x")
  with pytest.raises(config_lib.ConfigError) as caught:
    config_rules.check(config)
  assert len(str(caught.value).splitlines()) == 2


def test_a_group_of_one_passes_where_nothing_is_compared():
  config_rules.check(
    _config(
      "--config.rollout.group_size=1",
      "--config.advantage.name=reinforce_plus_plus",
    )
  )


@pytest.mark.parametrize(
  "overrides",
  [
    ["loss.importance=none"],
    ["loss.importance=truncate", "loss.importance_upper=2.0"],
    ["loss.importance=truncate", "learner.recompute_logprobs=True"],
    [
      "loss.importance=mask",
      "loss.importance_lower=0.5",
      "loss.importance_upper=5.0",
    ],
    ["loss.importance=clamp", "loss.importance_lower=0.5"],
    ["loss.importance=mask", "loss.importance_level=sequence"],
    ["loss.importance=truncate", "loss.importance_level=sequence_mean"],
    ["loss.surrogate=decoupled", "learner.recompute_logprobs=True"],
    ["loss.surrogate=decoupled", "loss.proximal=interpolated"],
    [
      "filters.after_advantages=('nonzero_advantages', 'age')",
      "filters.max_age=2",
    ],
    ["filters.before_advantages=('age',)", "filters.max_age=0"],
    ["filters.after_advantages=('nonzero_advantages', 'sequence_ratio')"],
  ],
  ids=", ".join,
)
def test_every_correction_can_be_chosen(overrides):
  stale = ["rollout.mode=async", "rollout.max_staleness=4"]
  settings = _config(*[f"--config.{o}" for o in stale + overrides])
  config_rules.check(settings)
  for override in overrides:
    key, _, text = override.partition("=")
    section, _, name = key.partition(".")
    found = getattr(getattr(settings, section), name)
    assert str(found) == text


def test_possible_neighbours_pass():
  config_rules.check(
    _config(
      "--config.rollout.mode=async",
      "--config.rollout.max_staleness=2",
      "--config.loss.kl_weight=0.1",
      "--config.learner.reference_reset_every=5",
      "--config.evaluation.temperature=0",
      "--config.loss.surrogate=decoupled",
      "--config.learner.recompute_logprobs=True",
      "--config.rollout.top_k=20",
      "--config.rollout.top_p=0.9",
    )
  )
  config_rules.check(
    _config(
      "--config.policy.num_frozen_layers=3",
      "--config.environment.num_flights=8",
      "--config.optimizer.schedule=cosine",
      "--config.optimizer.total_steps=120",
      "--config.warmup.num_steps=21",
      "--config.engine.decode_rows=(128,)",
      "--config.engine.kv_lengths=(224,)",
      "--config.loss.dual_clip=3.0",
      "--config.loss.importance_lower=2.0",
      "--config.mesh.data=1",
      "--config.mesh.fsdp=-1",
    )
  )
  # A schedule without an update has nothing to decay.
  config_rules.check(_config("--config.warmup.num_steps=0"))


def test_a_surrogate_of_ones_own_may_read_dual_clip():
  settings = _config("--config.loss.dual_clip=3.0")
  own = dataclasses.replace(settings.loss, surrogate=lambda terms, _: terms[0])
  config_rules.check(dataclasses.replace(settings, loss=own))
