"""Rejects configurations that cannot work, before anything is compiled."""

from collections.abc import Iterator
import difflib
import itertools
from typing import Any

from arl_jax import config as config_lib

# Names that a configuration may use. Each is dispatched once, where it is
# used; this table is what a message can list.
ALLOWED_NAMES: dict[str, tuple[str, ...]] = {
  "policy.kind": ("small", "gguf", "hf"),
  "policy.dtype": ("auto", "float32", "bfloat16"),
  "environment.name": ("flight_booking",),
  "rollout.mode": ("sync", "async"),
  "advantage.name": (
    "group_relative",
    "leave_one_out",
    "length_weighted",
    "group_policy_gradient",
  ),
  "advantage.scale": ("std", "none"),
  "loss.surrogate": (
    "clipped",
    "policy_gradient",
    "gspo",
    "turn",
    "cispo",
    "sapo",
  ),
  "loss.aggregation": (
    "token_mean",
    "sequence_mean",
    "sequence_sum",
    "fixed_length",
  ),
  "loss.reference": ("none", "initial"),
  "optimizer.name": ("adamw", "muon", "sgd"),
  "optimizer.schedule": ("constant", "cosine", "linear"),
  "warmup.optimizer.name": ("adamw", "muon", "sgd"),
  "warmup.optimizer.schedule": ("constant", "cosine", "linear"),
}

# Counts that make no sense below one.
POSITIVE_KEYS = (
  "rollout.tasks_per_step",
  "rollout.group_size",
  "rollout.max_turns",
  "rollout.max_tokens_per_turn",
  "rollout.max_length",
  "engine.num_slots",
  "engine.chunk_size",
  "learner.num_steps",
  "learner.minibatches_per_step",
  "learner.micro_batch_rows",
  "evaluation.num_tasks",
  "evaluation.samples_per_task",
)


def check(config: config_lib.Section) -> None:
  """Raises a ConfigError that lists every combination that cannot work."""
  # The rules below compare numbers, so these have to be numbers first.
  problems = [*_check_names(config), *_check_counts(config)]
  if not problems:
    for rule in (_check_policy, _check_rollout, _check_learner, _check_loss):
      problems.extend(rule(config))
  if problems:
    raise config_lib.ConfigError("\n".join(problems))


def _check_names(config: Any) -> Iterator[str]:
  for key, allowed in ALLOWED_NAMES.items():
    value = config_lib.get(config, key)
    if value not in allowed:
      near = difflib.get_close_matches(str(value), allowed, n=1)
      hint = f" Did you mean {near[0]!r}?" if near else ""
      yield f"{key} is {value!r}; allowed: {', '.join(allowed)}.{hint}"


def _check_counts(config: Any) -> Iterator[str]:
  for key in POSITIVE_KEYS:
    value = config_lib.get(config, key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
      yield f"{key} is {value!r}; expected an int of at least 1."
  staleness = config_lib.get(config, "rollout.max_staleness")
  if not isinstance(staleness, int) or staleness < 0:
    yield f"rollout.max_staleness is {staleness!r}; expected an int, 0 or more."


def _check_policy(config: Any) -> Iterator[str]:
  kind, path = config.policy.kind, config.policy.path
  if kind == "hf" and not path:
    yield (
      f"policy.path is empty; policy.kind={kind} needs the folder with "
      "config.json, the safetensors and tokenizer.json."
    )
  if kind == "small" and path:
    yield (
      f"policy.path is {path!r}, but policy.kind=small trains from nothing; "
      "use policy.kind=hf or gguf to load it, or leave the path empty."
    )


def _check_rollout(config: Any) -> Iterator[str]:
  rollout = config.rollout
  if rollout.mode == "sync" and rollout.max_staleness > 0:
    yield (
      f"rollout.max_staleness is {rollout.max_staleness} with "
      "rollout.mode=sync, where it is always 0; use mode=async."
    )
  if rollout.max_tokens_per_turn >= rollout.max_length:
    yield (
      f"rollout.max_tokens_per_turn is {rollout.max_tokens_per_turn}, which "
      f"leaves no room for a prompt in rollout.max_length of "
      f"{rollout.max_length}."
    )
  if rollout.temperature <= 0:
    yield (
      f"rollout.temperature is {rollout.temperature}; training needs samples "
      "that differ, so more than 0 (evaluation.temperature may be 0)."
    )
  if not 0 < rollout.top_p <= 1:
    yield f"rollout.top_p is {rollout.top_p}; expected 0 < top_p <= 1."
  if rollout.top_k < 0:
    yield f"rollout.top_k is {rollout.top_k}; expected 0 (off) or more."


def _check_learner(config: Any) -> Iterator[str]:
  rollout, learner = config.rollout, config.learner
  num_rows = rollout.tasks_per_step * rollout.group_size
  if num_rows % learner.minibatches_per_step:
    yield (
      f"learner.minibatches_per_step is {learner.minibatches_per_step}, which "
      f"does not divide the {num_rows} episodes of a step "
      f"(rollout.tasks_per_step {rollout.tasks_per_step} * "
      f"rollout.group_size {rollout.group_size})."
    )
  for key in ("learner.length_buckets", "engine.prefill_buckets"):
    buckets = tuple(config_lib.get(config, key))
    ints = all(isinstance(bucket, int) for bucket in buckets)
    if not buckets or not ints or buckets[0] < 1 or not _ascend(buckets):
      yield f"{key} is {buckets}; expected ints from 1 up, ascending."
    elif key.startswith("learner.") and buckets[-1] < rollout.max_length:
      yield (
        f"{key} is {buckets}; the longest must hold rollout.max_length, "
        f"which is {rollout.max_length}."
      )


def _check_loss(config: Any) -> Iterator[str]:
  loss, group_size = config.loss, config.rollout.group_size
  if group_size < 2:
    yield (
      f"rollout.group_size is {group_size}; advantage.name="
      f"{config.advantage.name} compares the episodes of a group, so 2 or more."
    )
  if loss.kl_weight > 0 and loss.reference == "none":
    yield (
      f"loss.kl_weight is {loss.kl_weight}, but loss.reference is none; use "
      "loss.reference=initial, or a weight of 0."
    )
  if loss.ref_reset_every > 0 and loss.reference == "none":
    yield (
      f"loss.ref_reset_every is {loss.ref_reset_every}, but loss.reference is "
      "none, so there is nothing to reset."
    )
  if loss.kl_weight < 0:
    yield f"loss.kl_weight is {loss.kl_weight}; expected 0 (off) or more."


def _ascend(values: tuple[int, ...]) -> bool:
  return all(low < high for low, high in itertools.pairwise(values))
