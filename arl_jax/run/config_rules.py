"""Rejects settings that cannot work together, before anything is compiled.

What one section can judge alone, its own record does when it is built.
"""

from collections.abc import Iterator
import itertools
from typing import Any

from arl_jax import config as config_lib

# Counts that make no sense below one.
_AT_LEAST_ONE = {
  "rollout": (
    "tasks_per_step",
    "group_size",
    "max_turns",
    "max_tokens_per_turn",
    "max_length",
  ),
  "engine": ("num_slots", "chunk_size"),
  "learner": ("num_steps", "minibatches_per_step", "micro_batch_rows"),
  "evaluation": ("num_tasks", "samples_per_task"),
  "checkpoint": ("every", "keep"),
}
# Advantages that do not compare the episodes of a group, so one is enough.
_GROUPLESS_ADVANTAGES = ("reinforce_plus_plus", "returns")


def check(settings: Any) -> None:
  """Raises a ConfigError that lists every combination that cannot work.

  Args:
    settings: all sections, by attribute; their keys and types are known to be
      right.
  """
  problems = list(_check_counts(settings))
  # The other rules divide by these counts.
  if not problems:
    for rule in (
      _check_policy,
      _check_sampling,
      _check_lengths,
      _check_minibatches,
      _check_learning_signal,
    ):
      problems.extend(rule(settings))
  if problems:
    raise config_lib.ConfigError("\n".join(problems))


def _check_counts(settings: Any) -> Iterator[str]:
  for section, names in _AT_LEAST_ONE.items():
    for name in names:
      value = getattr(getattr(settings, section), name)
      if value < 1:
        yield f"config.{section}.{name} is {value}; expected 1 or more."
  for name in ("max_staleness", "top_k"):
    value = getattr(settings.rollout, name)
    if value < 0:
      yield f"config.rollout.{name} is {value}; expected 0 or more."


def _check_policy(settings: Any) -> Iterator[str]:
  kind, path = settings.policy.kind, settings.policy.path
  if kind == "hf" and not path:
    yield (
      "config.policy.path is empty; kind hf needs the folder with config.json, "
      "the safetensors and tokenizer.json."
    )
  if kind == "small" and path:
    yield (
      f"config.policy.path is {path!r}, but kind small trains from nothing; "
      "use kind hf or gguf to load it, or leave the path empty."
    )


def _check_sampling(settings: Any) -> Iterator[str]:
  rollout = settings.rollout
  if rollout.mode == "sync" and rollout.max_staleness > 0:
    yield (
      f"config.rollout.max_staleness is {rollout.max_staleness}, but in mode "
      "sync it is always 0; use mode async."
    )
  if rollout.temperature <= 0:
    yield (
      f"config.rollout.temperature is {rollout.temperature}; training needs "
      "episodes that differ, so more than 0 (config.evaluation.temperature may "
      "be 0)."
    )
  if settings.evaluation.temperature < 0:
    yield (
      f"config.evaluation.temperature is {settings.evaluation.temperature}; "
      "expected 0 (greedy) or more."
    )
  if not 0 < rollout.top_p <= 1:
    yield f"config.rollout.top_p is {rollout.top_p}; expected 0 < top_p <= 1."
  for name in ("step_timeout_seconds", "episode_timeout_seconds"):
    value = getattr(rollout, name)
    if value <= 0:
      yield f"config.rollout.{name} is {value}; expected more than 0."


def _check_lengths(settings: Any) -> Iterator[str]:
  rollout = settings.rollout
  if rollout.max_tokens_per_turn >= rollout.max_length:
    yield (
      f"config.rollout.max_tokens_per_turn is {rollout.max_tokens_per_turn}, "
      "which leaves no room for a prompt in config.rollout.max_length of "
      f"{rollout.max_length}."
    )
  for section in ("warmup", "learner"):
    buckets = tuple(getattr(settings, section).length_buckets)
    ascend = all(low < high for low, high in itertools.pairwise((0, *buckets)))
    if not ascend or any(bucket > rollout.max_length for bucket in buckets):
      yield (
        f"config.{section}.length_buckets is {buckets}; expected lengths that "
        "ascend from 1 up to config.rollout.max_length, which is "
        f"{rollout.max_length}."
      )


def _check_minibatches(settings: Any) -> Iterator[str]:
  rollout, learner = settings.rollout, settings.learner
  num_rows = rollout.tasks_per_step * rollout.group_size
  if num_rows % learner.minibatches_per_step:
    yield (
      f"config.learner.minibatches_per_step is {learner.minibatches_per_step}, "
      f"which does not divide the {num_rows} episodes of a step "
      f"(tasks_per_step {rollout.tasks_per_step} * group_size "
      f"{rollout.group_size})."
    )


def _check_learning_signal(settings: Any) -> Iterator[str]:
  group_size, name = settings.rollout.group_size, settings.advantage.name
  if group_size < 2 and not (callable(name) or name in _GROUPLESS_ADVANTAGES):
    yield (
      f"config.rollout.group_size is {group_size}, but advantage {name} "
      "compares the episodes of a group; use 2 or more."
    )
  weight = settings.loss.kl_weight
  if weight < 0:
    yield f"config.loss.kl_weight is {weight}; expected 0 (off) or more."
  if (
    settings.loss.surrogate == "decoupled"
    and not settings.learner.recompute_logprobs
  ):
    yield (
      "config.loss.surrogate is decoupled, whose proximal policy is the one "
      "before a step's updates; set config.learner.recompute_logprobs to True, "
      "or use clipped."
    )
  reset_every = settings.learner.reference_reset_every
  if reset_every > 0 and weight == 0:
    yield (
      f"config.learner.reference_reset_every is {reset_every}, but there is no "
      "reference while config.loss.kl_weight is 0."
    )
