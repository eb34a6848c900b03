"""Writes episodes to imitate: `python -m arl_jax.synthesize --config --out`.

They come from scripted experts, a policy, or paths through the tools. All are
played in the real environment; what it does not judge a success is dropped.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
import re
import sys
from typing import Any

from absl import flags

from arl_jax import command_line
from arl_jax import config as config_lib
from arl_jax.synthesis import episode_dataset, episode_file
from arl_jax.synthesis.difficulty import level_difficulty, mix_by_difficulty
from arl_jax.synthesis.quality import FilterSettings, filter_episodes
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode

METHODS = ("experts", "recovery", "graph", "rejection", "hindsight")
_POLICY_METHODS = ("rejection", "hindsight")
_FILE_SUFFIX = ".jsonl"
# Of numbers like `kept/NAME`.
_NUM_SHOWN = 8


_HELP = {
  "out": "a file .jsonl of JSON lines; any other name is a dataset's folder.",
  "method": (
    "experts: scripted ones, careful and careless. recovery: theirs, with a"
    " mistake that is made good. graph: paths through the tools' signatures."
    " rejection: successes of a policy. hindsight: failures of a policy, or"
    " without --workdir of the experts, as what they achieved."
  ),
  "number": "tasks that are played; for graph, episodes that are made.",
  "workdir": "folder of the run whose policy plays.",
  "num_samples": "episodes that a policy plays of each task.",
  "max_per_task": "episodes of a task that rejection keeps.",
  "filters": "drop failures, duplicates and what is too short or too long.",
  "mix": "keep 30 % easy, 50 % middling and 20 % hard ones, by level.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What is asked for; `--help` says what each means."""

  out: str
  method: str = "experts"
  number: int = 1000
  workdir: str | None = None
  num_samples: int = 8
  max_per_task: int = 1
  filters: bool = True
  mix: bool = False


def synthesize(
  config: config_lib.Section, options: Options
) -> dict[str, dict[str, int]]:
  """Makes episodes, filters them and writes them.

  Args:
    config: names the environment, and the seed of all that is drawn.
    options: what is made, and where it is written.

  Returns:
    Counts by stage: of the method, of the filters, of the mix.

  Raises:
    ConfigError: the configuration or an option cannot work.
    ValueError: nothing is left to write, or it cannot be made.
  """
  # Imported here: --help and a typo need not wait for the learner.
  from arl_jax.run.guard import run_loop

  _check(options)
  is_file = options.out.endswith(_FILE_SUFFIX)
  episodes, counts = run_loop(_make(config, options))
  if options.filters:
    episodes, counts["filters"] = filter_episodes(episodes, FilterSettings())
  if options.mix:
    episodes, counts["mix"] = _mix(episodes)
  if not episodes:
    raise ValueError(
      f"nothing is left to write to {options.out}: {counts}. Make more with"
      " --number, or see what was dropped with --filters=false"
    )
  if is_file:
    episode_file.save_episodes(options.out, episodes)
  else:
    episode_dataset.prepare_dataset(options.out, episodes)
  return counts


def format_counts(counts: dict[str, dict[str, int]]) -> str:
  """Returns the counts of all stages as a table, without the rarest kinds."""
  shown = {stage: _fold(numbers) for stage, numbers in counts.items()}
  width = max(len(name) for numbers in shown.values() for name in numbers)
  lines: list[str] = []
  for stage, numbers in shown.items():
    lines.append(stage)
    lines += [f"  {name:<{width}}  {n:>6}" for name, n in numbers.items()]
  return "\n".join(lines)


def _check(options: Options) -> None:
  """Finds what cannot work before anything is played."""
  if options.method == "rejection" and options.workdir is None:
    raise config_lib.ConfigError(
      "--workdir is missing; --method=rejection plays the policy of a run."
    )
  if options.workdir is not None and options.method not in _POLICY_METHODS:
    raise config_lib.ConfigError(
      f"--workdir is {options.workdir}, but --method={options.method} plays no"
      f" policy; that is for {' and '.join(_POLICY_METHODS)}."
    )
  if options.out.endswith(_FILE_SUFFIX):
    return
  if pathlib.Path(options.out).is_file():
    raise config_lib.ConfigError(
      f"--out is {options.out}, a file; name one that ends in {_FILE_SUFFIX},"
      " or the folder of a dataset."
    )
  episode_dataset.check_new(options.out)


def _fold(numbers: dict[str, int]) -> dict[str, int]:
  """Sums the kinds of kept episodes up that are too many to show."""
  kinds = sorted(
    (name for name in numbers if "/" in name), key=lambda name: -numbers[name]
  )
  rare = kinds[_NUM_SHOWN:]
  found = {name: numbers[name] for name in numbers if name not in rare}
  others = {f"kept/{len(rare)} others": sum(numbers[name] for name in rare)}
  return found | (others if rare else {})


async def _make(
  config: config_lib.Section, options: Options
) -> tuple[list[SyntheticEpisode], dict[str, dict[str, int]]]:
  """Makes episodes by a method, with the counts of all that it took."""
  from arl_jax.run import config_rules, synthesizers
  from arl_jax.run.settings import read_settings
  from arl_jax.run.suites import find_suite

  settings = read_settings(config)
  config_rules.check(settings)
  environment: Any = settings.environment
  weights, seed = environment.reward_weights, settings.seed
  method, counts = options.method, {}
  if method == "rejection":
    return await _sample(config, options)
  suite = find_suite(environment.name).make(environment)
  if method == "graph":
    episodes, counts[method] = await synthesizers.make_paths(
      suite,
      synthesizers.find_synthesizer(environment, method=method),
      options.number,
      reward_weights=weights,
      seed=seed,
    )
    return episodes, counts
  if options.workdir is not None:
    episodes, counts = await _sample(config, options)
  else:
    episodes, counts["experts"] = await synthesizers.make_experts(
      suite,
      options.number,
      reward_weights=weights,
      seed=seed,
      careful=settings.warmup.careful_fraction,
      drill=settings.warmup.drill,
    )
  if method == "experts":
    return episodes, counts
  synthesizer = synthesizers.find_synthesizer(environment, method=method)
  if method == "recovery":
    episodes, counts[method] = await synthesizers.make_recoveries(
      suite, synthesizer, episodes, reward_weights=weights, seed=seed
    )
  else:
    episodes, counts[method] = await synthesizers.make_relabelled(
      suite, synthesizer, episodes, reward_weights=weights
    )
  return episodes, counts


async def _sample(
  config: config_lib.Section, options: Options
) -> tuple[list[SyntheticEpisode], dict[str, dict[str, int]]]:
  """Plays the policy of a run; keeps what the method has a use for."""
  from arl_jax.actors import seeds
  from arl_jax.synthesis.rejection import rejection_sample, solved
  from arl_jax.train import open_checkpoint

  assert options.workdir is not None
  wants_failures = options.method == "hindsight"
  with open_checkpoint(config, options.workdir) as (parts, state, extras):
    settings = parts.settings
    tasks = parts.suite.train_tasks(settings.seed)[: options.number]
    async with parts.engine(state.params, version=extras["version"]) as engine:
      actor = parts.actor(
        engine,
        name="synthesis",
        seed=seeds.mix_seed(settings.seed, -2),
        temperature=settings.rollout.temperature,
      )
      result = await rejection_sample(
        lambda task, ordinal, member: actor.run(
          task, ordinal=ordinal, member=member
        ),
        tasks,
        num_samples=options.num_samples,
        accept=(lambda e: not e.success) if wants_failures else solved,
        max_per_task=options.num_samples
        if wants_failures
        else options.max_per_task,
        max_concurrent=settings.engine.num_slots,
      )
  name = "failures" if wants_failures else "rejection"
  return list(result.episodes), {name: result.counts}


def _mix(
  episodes: Sequence[SyntheticEpisode],
) -> tuple[list[SyntheticEpisode], dict[str, int]]:
  """Mixes as many as the shares allow, and says what was left out."""
  levels = [episode.task.level for episode in episodes]
  mixed = mix_by_difficulty(
    episodes, lambda episode: level_difficulty(episode.task.level, levels)
  )
  counts = {str(name): number for name, number in mixed.counts.items()}
  left_out = len(episodes) - len(mixed.items)
  return list(mixed.items), counts | {"left_out": left_out}


def _define_flags() -> flags.FlagValues:
  registry = flags.FlagValues()
  for field in dataclasses.fields(Options):
    name, text, default = field.name, _HELP[field.name], field.default
    if name == "method":
      flags.DEFINE_enum(name, str(default), METHODS, text, flag_values=registry)
    elif isinstance(default, bool):
      flags.DEFINE_bool(name, default, text, flag_values=registry)
    elif isinstance(default, int):
      flags.DEFINE_integer(
        name, default, text, lower_bound=1, flag_values=registry
      )
    else:
      flags.DEFINE_string(name, None, text, flag_values=registry)
  return registry


def _read_options(argv: Sequence[str]) -> Options:
  registry = _define_flags()
  try:
    registry(argv, known_only=True)
  except flags.Error as error:
    raise config_lib.ConfigError(str(error)) from None
  values: Any = {
    field.name: registry[field.name].value
    for field in dataclasses.fields(Options)
  }
  if not values["out"]:
    raise config_lib.ConfigError(
      "--out is missing; name a file such as --out=episodes.jsonl, or the"
      " folder of a dataset."
    )
  return Options(**values)


def main(argv: Sequence[str] | None = None) -> None:
  """Runs the command."""
  argv = list(sys.argv if argv is None else argv)
  names = "|".join(field.name for field in dataclasses.fields(Options))
  own = re.compile(rf"--?(no)?({names})(=|$)")
  rest = [one for one in argv if not own.match(one)]

  def run(arguments: command_line.Arguments) -> None:
    command_line.connect(arguments)
    options = _read_options([a for a in argv if own.match(a) or a == argv[0]])
    counts = synthesize(arguments.config, options)
    print(f"{format_counts(counts)}\n\n  written to {options.out}")

  # The run's folder is optional here.
  described = f"{__doc__}\n{_define_flags().get_help()}"
  command_line.run(run, [*rest, "--workdir=."], description=described)


if __name__ == "__main__":
  main()
