"""Tests of the combinations that cannot work."""

from typing import Any

import pytest

from arl_jax import command_line
from arl_jax import config as config_lib
from arl_jax.run import config_rules


def _config(*overrides: str, variant: str = "") -> Any:
  name = "configs/flight_booking.py" + variant
  flags = ["test", f"--config={name}", "--workdir=unused"]
  return command_line.parse([*flags, *overrides]).config


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
    (["rollout.temperature=0"], "config.rollout.temperature is 0.0"),
    (["rollout.top_p=0"], "config.rollout.top_p is 0.0"),
    (["rollout.step_timeout_seconds=0"], "step_timeout_seconds is 0.0"),
    (["evaluation.num_tasks=0"], "config.evaluation.num_tasks is 0"),
    (["evaluation.temperature=-1"], "config.evaluation.temperature is -1"),
    (["policy.kind=hf"], "config.policy.path is empty"),
    (["policy.path=x"], "config.policy.path is 'x'"),
    (["learner.length_buckets=(160,96)"], "config.learner.length_buckets"),
    (["learner.length_buckets=(96,999)"], "config.learner.length_buckets"),
    (["warmup.length_buckets=(0,96)"], "config.warmup.length_buckets"),
    (["loss.kl_weight=-0.1"], "config.loss.kl_weight is -0.1"),
    (["loss.surrogate=decoupled"], "config.learner.recompute_logprobs"),
    (["learner.reference_reset_every=5"], "there is no reference while"),
  ],
)
def test_impossible_combination_is_named(overrides, key):
  config = _config(*[f"--config.{override}" for override in overrides])
  with pytest.raises(config_lib.ConfigError) as caught:
    config_rules.check(config)
  assert key in str(caught.value)


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
    )
  )
