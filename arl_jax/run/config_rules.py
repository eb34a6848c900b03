"""Rejects settings that cannot work together, before anything is compiled.

What one section can judge alone, its own record does when it is built; what a
number may be is in `config_ranges`.
"""

from collections.abc import Iterator
import itertools
import pathlib
from typing import Any

from arl_jax import config as config_lib

# Advantages that do not compare the episodes of a group, so one is enough.
_GROUPLESS_ADVANTAGES = ("reinforce_plus_plus", "returns")
# Advantages and shapings that look at each row alone, not at its episode.
_ROW_ADVANTAGES = (
  "gigpo",
  "hgpo",
  "mt_grpo",
  "reinforce_plus_plus",
  "reinforce_plus_plus_baseline",
  "salt",
  "step_baseline",
)
_ROW_SHAPINGS = ("overlong_penalty", "process_return", "soft_min")


def check(settings: Any) -> None:
  """Raises a ConfigError that lists every combination that cannot work.

  Args:
    settings: all sections, by attribute; their keys, types and numbers are
      known to be right.
  """
  problems: list[str] = []
  for rule in (
    _check_policy,
    _check_environment,
    _check_step_timeout,
    _check_warmup_episodes,
    _check_warmup_schedule,
    _check_schedule,
    _check_sampling,
    _check_debug,
    _check_watchdog,
    _check_truncated_sampling,
    _check_engine,
    _check_lengths,
    _check_minibatches,
    _check_learning_signal,
    _check_context,
    _check_bounds,
    _check_references,
    _check_mesh,
  ):
    problems.extend(rule(settings))
  if problems:
    raise config_lib.ConfigError("\n".join(problems))


def _check_policy(settings: Any) -> Iterator[str]:
  kind, path = settings.policy.kind, settings.policy.path
  if kind == "hf" and not path:
    yield (
      "config.policy.path is empty; kind hf needs the folder with config.json, "
      "the safetensors and tokenizer.json."
    )
  if kind == "hf" and path and not pathlib.Path(path).is_dir():
    yield (
      f"config.policy.path is {path!r}, which is not a folder; expected one "
      "with config.json, the safetensors and tokenizer.json. A model on the hub"
      " becomes one with: hf download NAME --local-dir FOLDER"
    )
  if kind == "small" and path:
    yield (
      f"config.policy.path is {path!r}, but kind small trains from nothing; "
      "use kind hf or gguf to load it, or leave the path empty."
    )
  if kind == "small":
    yield from _check_shape(settings.policy)


def _check_shape(policy: Any) -> Iterator[str]:
  if policy.num_heads % policy.num_kv_heads:
    yield (
      f"config.policy.num_heads is {policy.num_heads}; expected a multiple of "
      f"config.policy.num_kv_heads, which is {policy.num_kv_heads}."
    )
  if policy.head_dim % 2:
    yield f"config.policy.head_dim is {policy.head_dim}; expected an even one."
  if policy.num_frozen_layers > policy.num_layers:
    yield (
      f"config.policy.num_frozen_layers is {policy.num_frozen_layers}; "
      "expected at most config.policy.num_layers, which is "
      f"{policy.num_layers}."
    )


def _check_environment(settings: Any) -> Iterator[str]:
  environment = settings.environment
  if hasattr(environment, "problems"):
    yield from environment.problems()
  if not environment.reward_weights:
    yield (
      "config.environment.reward_weights is empty, so nothing is rewarded; "
      "expected a weight for one component or more, such as success."
    )


def _check_step_timeout(settings: Any) -> Iterator[str]:
  """An endless program must be the policy's failure, not the environment's."""
  environment, step = (
    settings.environment,
    settings.rollout.step_timeout_seconds,
  )
  calls = getattr(environment, "max_calls_per_turn", 0)
  seconds = getattr(environment, "timeout_seconds", 0)
  if calls * seconds >= step:
    yield (
      f"config.rollout.step_timeout_seconds is {step}, in which no action ends "
      "whose calls all run out of time: config.environment.max_calls_per_turn "
      f"x timeout_seconds is {calls} x {seconds}; use more than that."
    )


def _check_warmup_episodes(settings: Any) -> Iterator[str]:
  path = settings.warmup.episodes
  if path and not pathlib.Path(path).exists():
    yield (
      f"config.warmup.episodes is {path!r}, which is not there; expected what "
      "python -m arl_jax.synthesize wrote, or nothing for the experts of the "
      "environment."
    )


def _check_warmup_schedule(settings: Any) -> Iterator[str]:
  warmup, optimizer = settings.warmup, settings.warmup.optimizer
  if (
    warmup.num_steps > 0
    and optimizer.schedule != "constant"
    and optimizer.total_steps <= optimizer.warmup_steps
  ):
    yield (
      f"config.warmup.optimizer.total_steps is {optimizer.total_steps}, with "
      f"config.warmup.num_steps {warmup.num_steps}, but schedule "
      f"{optimizer.schedule} decays only after "
      f"config.warmup.optimizer.warmup_steps, which is "
      f"{optimizer.warmup_steps}; use fewer of these, more of "
      "config.warmup.num_steps (total_steps follows it unless set by hand), or "
      "schedule constant."
    )


def _check_schedule(settings: Any) -> Iterator[str]:
  optimizer = settings.optimizer
  if (
    optimizer.schedule != "constant"
    and optimizer.total_steps <= optimizer.warmup_steps
  ):
    updates = settings.learner.num_steps * settings.learner.minibatches_per_step
    yield (
      f"config.optimizer.total_steps is {optimizer.total_steps}; schedule "
      f"{optimizer.schedule} needs the number of updates until its decay ends, "
      "more than config.optimizer.warmup_steps, which is "
      f"{optimizer.warmup_steps}. This run makes at most {updates} "
      "(config.learner.num_steps * config.learner.minibatches_per_step)."
    )


def _check_sampling(settings: Any) -> Iterator[str]:
  rollout = settings.rollout
  if rollout.mode == "sync" and rollout.max_staleness > 0:
    yield (
      f"config.rollout.max_staleness is {rollout.max_staleness}, but in mode "
      "sync it is always 0; use mode async."
    )
  if rollout.max_replaced_groups > 0 and rollout.group_size < 2:
    yield (
      f"config.rollout.max_replaced_groups is {rollout.max_replaced_groups}, "
      "but groups of one episode never have variance; use 0."
    )


def _check_watchdog(settings: Any) -> Iterator[str]:
  watchdog = settings.failures.watchdog_seconds
  step = settings.rollout.step_timeout_seconds
  if 0 < watchdog <= step:
    yield (
      f"config.failures.watchdog_seconds is {watchdog}, but an answer of the "
      f"environment may take config.rollout.step_timeout_seconds, {step}, in "
      "which nothing moves; use more, or 0 for no watchdog."
    )


def _check_debug(settings: Any) -> Iterator[str]:
  debug = settings.debug
  if (debug.mode == "train_from_store") != bool(debug.store):
    yield (
      f"config.debug.mode is {debug.mode} and config.debug.store is "
      f"{debug.store!r}; train_from_store, and nothing else, needs the folder "
      "of trajectories of another run."
    )
  if debug.mode == "rollout_only" and not settings.store.max_gigabytes:
    yield (
      "config.store.max_gigabytes is 0, but the store is all that "
      "config.debug.mode rollout_only makes; use more."
    )


def _check_truncated_sampling(settings: Any) -> Iterator[str]:
  rollout = settings.rollout
  truncated = [
    f"config.rollout.{name} is {value}"
    for name, value, off in (
      ("top_k", rollout.top_k, rollout.top_k == 0),
      ("top_p", rollout.top_p, rollout.top_p == 1),
    )
    if not off
  ]
  if truncated and not settings.learner.recompute_logprobs:
    yield (
      f"{' and '.join(truncated)}, so the engine's log-probabilities are of "
      "the truncated distribution, while the learner scores the whole one and "
      "their ratio would be off; set config.learner.recompute_logprobs to "
      "True, or top_k to 0 and top_p to 1."
    )


def _check_engine(settings: Any) -> Iterator[str]:
  engine, rollout = settings.engine, settings.rollout
  for name, limit, limit_key in (
    ("decode_rows", engine.num_slots, "config.engine.num_slots"),
    ("kv_lengths", rollout.max_length, "config.rollout.max_length"),
  ):
    sizes = tuple(getattr(engine, name))
    if any(size > limit for size in sizes):
      yield (
        f"config.engine.{name} is {sizes}; expected at most {limit_key}, which "
        f"is {limit}."
      )


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
  packed = tuple(settings.learner.packed_lengths)
  if packed and max(packed) < rollout.max_length:
    yield (
      f"config.learner.packed_lengths is {packed}; expected one that holds the "
      "longest row, which config.rollout.max_length makes "
      f"{rollout.max_length} tokens."
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


def _check_context(settings: Any) -> Iterator[str]:
  if settings.rollout.max_rows_per_episode == 1:
    return
  chosen = [
    ("advantage.name", settings.advantage.name, _ROW_ADVANTAGES),
    *(("shaping.names", n, _ROW_SHAPINGS) for n in settings.shaping.names),
  ]
  for key, name, refused in chosen:
    if not callable(name) and name in refused:
      yield (
        f"config.{key} has {name}, which looks at one row at a time, but "
        f"config.rollout.context is {settings.rollout.context}, with several "
        "rows in an episode; use one that takes episodes as a whole, or "
        "context none."
      )


def _check_bounds(settings: Any) -> Iterator[str]:
  loss, filters = settings.loss, settings.filters
  reads_dual_clip = callable(loss.surrogate) or loss.surrogate == "clipped"
  if loss.dual_clip is not None and not reads_dual_clip:
    yield (
      f"config.loss.dual_clip is {loss.dual_clip}, which surrogate "
      f"{loss.surrogate} does not read; use clipped, or None."
    )
  for section, lower, upper, names in (
    ("loss", loss.importance_lower, loss.importance_upper, "importance"),
    ("filters", filters.ratio_lower, filters.ratio_upper, "ratio"),
  ):
    if lower is not None and lower > upper:
      yield (
        f"config.{section}.{names}_lower is {lower}; expected at most "
        f"config.{section}.{names}_upper, which is {upper}."
      )


def _check_references(settings: Any) -> Iterator[str]:
  """What a loss compares with has to be there."""
  loss, learner = settings.loss, settings.learner
  if loss.needs_ages and learner.recompute_logprobs:
    yield (
      "config.loss.proximal is interpolated, which needs no forward pass, but "
      "config.learner.recompute_logprobs is True; set it to False, or "
      "config.loss.proximal to recomputed."
    )
  if (
    loss.surrogate == "decoupled"
    and not loss.needs_ages
    and not learner.recompute_logprobs
  ):
    yield (
      "config.loss.surrogate is decoupled, whose proximal policy is the one "
      "before a step's updates; set config.learner.recompute_logprobs to True "
      "or config.loss.proximal to interpolated, or use clipped."
    )
  if learner.reference_reset_every > 0 and settings.loss.kl_weight == 0:
    yield (
      f"config.learner.reference_reset_every is "
      f"{learner.reference_reset_every}, but there is no reference while "
      "config.loss.kl_weight is 0."
    )


def _check_mesh(settings: Any) -> Iterator[str]:
  sizes = {
    name: getattr(settings.mesh, name)
    for name in ("data", "fsdp", "seq", "tensor")
  }
  for name, size in sizes.items():
    if size != -1 and size < 1:
      yield (
        f"config.mesh.{name} is {size}; expected 1 or more, or -1 for the "
        "devices that are left."
      )
  rest = [f"config.mesh.{name}" for name, size in sizes.items() if size == -1]
  if len(rest) > 1:
    yield (
      f"{' and '.join(rest)} are -1; expected at most one axis that takes the "
      "devices that are left."
    )
