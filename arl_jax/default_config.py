"""A configuration with every key at its default, to start one's own from."""

from collections.abc import Callable, Mapping
import dataclasses
import types
import typing
from typing import Any

from ml_collections import config_dict

from arl_jax.run.settings import Settings
from arl_jax.run.suites import find_suite

# Values that another section owns.
_OWNED = {("engine", "max_length"), ("loss", "temperature")}
# What shortens a run has the last word.
_LAST = "runlocal"


def default_config(environment: str) -> Any:
  """Returns all sections, each key at its default.

  Which keys there are, and what they mean, is written in the records of
  `run/settings.py` and in `configs/flight_booking.py`.

  Args:
    environment: a key of `SUITES` or `module:attribute` of your own.

  Returns:
    An unlocked `ConfigDict`; `warmup.optimizer.total_steps` follows
    `warmup.num_steps`.

  Raises:
    ValueError: there is no such environment.

  Example:
    >>> config = default_config("search")
    >>> config.rollout.group_size
    8
  """
  config: Any = config_dict.ConfigDict({"seed": 0})
  for name, hint in typing.get_type_hints(Settings).items():
    if name == "environment":
      record = find_suite(environment).settings
      config.environment = _section(record, name)
      config.environment.name = environment
    elif dataclasses.is_dataclass(hint):
      config[name] = _section(hint, name)
  config.warmup.optimizer.total_steps = config.warmup.get_ref("num_steps")
  return config


def apply_variants(
  config: Any,
  names: str | None,
  variants: Mapping[str, Callable[[Any], None]],
) -> None:
  """Changes a configuration by what follows the colon of its file's name.

  Args:
    config: an unlocked configuration.
    names: of variants, with commas between; each goes over those before it, and
      `runlocal` over all. None, or nothing, is none.
    variants: what each changes.

  Raises:
    ValueError: there is no variant of a name; lists those that there are.
  """
  chosen = [name.strip() for name in names.split(",")] if names else []
  for name in chosen:
    if name not in variants:
      raise ValueError(
        f"there is no variant {name!r}; expected one of {', '.join(variants)},"
        " or several with commas between, or none."
      )
  for name in sorted(chosen, key=lambda name: name == _LAST):
    variants[name](config)


def shrink(config: Any) -> None:
  """Makes a configuration two tiny steps long, to see that its parts fit.

  A toy policy solves nothing; turns and errors are rewarded, too, so that the
  episodes of a group differ and updates run.
  """
  config.policy.update(
    kind="small",
    path="",
    vocab_size=400,
    num_layers=1,
    model_dim=32,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    mlp_dim=64,
    num_frozen_layers=0,
  )
  config.environment.reward_weights.update(
    {"turns": -0.01, "tool_errors": -0.1}
  )
  # All of its turns are void, and its episodes cut off.
  config.filters.after_advantages = ("nonzero_advantages",)
  config.warmup.update(num_steps=4, batch_size=4, length_buckets=())
  config.warmup.optimizer.update(name="adamw", warmup_steps=1)
  config.rollout.update(tasks_per_step=2, group_size=4, max_turns=4)
  config.engine.update(
    num_slots=8, decode_rows=(), prefill_rows=(8,), prefill_lengths=(64,)
  )
  config.learner.update(num_steps=2, minibatches_per_step=1)
  config.evaluation.num_tasks = 4
  config.checkpoint.every = 1
  config.output.num_episodes_as_text = 2


def _section(record: Any, section: str) -> config_dict.ConfigDict:
  hints = typing.get_type_hints(record)
  values = config_dict.ConfigDict()
  for field in dataclasses.fields(record):
    if not field.init or (section, field.name) in _OWNED:
      continue
    value, hint = _default(field), hints[field.name]
    if dataclasses.is_dataclass(hint):
      value = _section(hint, f"{section}.{field.name}")
    elif value is None:
      value = config_dict.placeholder(_kind(hint))
    values[field.name] = value
  return values


def _default(field: dataclasses.Field[Any]) -> Any:
  if field.default is not dataclasses.MISSING:
    return field.default
  if field.default_factory is not dataclasses.MISSING:
    return field.default_factory()
  return None


def _kind(hint: Any) -> type[Any]:
  """The type that a value has where it is not None."""
  options: tuple[Any, ...] = (hint,)
  if typing.get_origin(hint) in (typing.Union, types.UnionType):
    options = typing.get_args(hint)
  found = [option for option in options if option is not type(None)]
  kind = typing.get_origin(found[0]) or found[0]
  return kind if isinstance(kind, type) else object
