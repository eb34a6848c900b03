"""Writes episodes to imitate: `python -m arl_jax.synthesize --config --out`.

They come from scripted experts, a policy, or paths through the tools. All are
played in the real environment; what it does not judge a success is dropped.
"""

from collections import Counter
from collections.abc import Callable, Sequence
import logging
import pathlib
import sys
from typing import Any

from arl_jax import command_line
from arl_jax import config as config_lib
from arl_jax.run import synthesis_options
from arl_jax.run.synthesis_counts import explain_nothing, format_counts
from arl_jax.run.synthesis_options import (
  FILE_SUFFIX,
  Options,
  describe_flags,
  read_options,
  split_arguments,
)
from arl_jax.synthesis import episode_dataset, episode_file
from arl_jax.synthesis.difficulty import level_difficulty, mix_by_difficulty
from arl_jax.synthesis.quality import FilterSettings, filter_episodes
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode

_LOGGER = logging.getLogger(__name__)

# Episodes, and counts by stage.
Made = tuple[list[SyntheticEpisode], dict[str, dict[str, int]]]


def synthesize(
  config: config_lib.Section, options: Options
) -> dict[str, dict[str, int]]:
  """Makes episodes, filters them and writes them.

  Args:
    config: names the environment, and the seed of all that is drawn. Filters
      drop what is longer than its `rollout.max_length`.
    options: what is made, and where it is written.

  Returns:
    Counts by stage: of the method, of the filters, of the mix.

  Raises:
    ConfigError: the configuration or an option cannot work.
    ValueError: nothing is left to write, or it cannot be made.
  """
  # Imported here: --help and a typo need not wait for the learner.
  from arl_jax.run import config_rules
  from arl_jax.run.episode_length import make_counter
  from arl_jax.run.guard import run_loop
  from arl_jax.run.settings import read_settings
  from arl_jax.run.suites import make_suite

  settings = read_settings(config)
  config_rules.check(settings)
  synthesis_options.check(options, settings.environment)
  suite = make_suite(settings.environment)
  workdir = options.workdir
  episodes, counts = run_loop(_make(config, settings, suite, options))
  if options.filters and episodes:
    count_tokens = make_counter(
      settings,
      suite,
      saved_tokenizer=pathlib.Path(workdir) / "tokenizer" if workdir else None,
    )
    episodes, counts["filters"] = _filter(
      episodes, settings.rollout.max_length, count_tokens
    )
  if options.mix and episodes:
    episodes, counts["mix"] = _mix(episodes)
  if not episodes:
    found = explain_nothing(counts, workdir=workdir)
    raise ValueError(f"nothing was written to {options.out}: {found}.")
  with config_lib.blame("--out", options.out):
    if options.out.endswith(FILE_SUFFIX):
      episode_file.save_episodes(options.out, episodes)
    else:
      episode_dataset.prepare_dataset(options.out, episodes)
  return counts


async def _make(
  config: config_lib.Section, settings: Any, suite: Any, options: Options
) -> Made:
  """Makes episodes by a method, with the counts of all that it took."""
  from arl_jax.run import synthesizers

  weights, seed = settings.environment.reward_weights, settings.seed
  method = options.method

  async def play() -> Made:
    if options.workdir is not None:
      return await _sample(config, options)
    episodes, counts = await synthesizers.make_experts(
      suite,
      options.number,
      reward_weights=weights,
      seed=seed,
      careful=settings.warmup.careful_fraction,
      drill=settings.warmup.drill,
    )
    return episodes, {"experts": counts}

  if method in ("experts", "rejection"):
    return await play()
  synthesizer = synthesizers.find_synthesizer(
    settings.environment, method=method
  )
  if method == "graph":
    episodes, found = await synthesizers.make_paths(
      suite, synthesizer, options.number, reward_weights=weights, seed=seed
    )
    return episodes, {method: found}
  episodes, counts = await play()
  if method == "recovery":
    episodes, found = await synthesizers.make_recoveries(
      suite, synthesizer, episodes, reward_weights=weights, seed=seed
    )
  else:
    episodes, found = await synthesizers.make_relabelled(
      suite, synthesizer, episodes, reward_weights=weights
    )
  return episodes, counts | {method: found}


async def _sample(config: config_lib.Section, options: Options) -> Made:
  """Plays the policy of a run; keeps what the method has a use for.

  The first Ctrl-C ends it with what has been played by then.
  """
  from arl_jax.actors import seeds
  from arl_jax.episode import Episode, Task
  from arl_jax.run.stop_signal import StopSignal
  from arl_jax.synthesis.rejection import rejection_sample, solved
  from arl_jax.train import open_checkpoint

  assert options.workdir is not None
  wants_failures = options.method == "hindsight"
  errors: list[str] = []
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

      async def play(task: Task, ordinal: int, member: int) -> Episode:
        episode = await actor.run(task, ordinal=ordinal, member=member)
        if not episode.status.finished:
          errors.append(f"task {task.task_id!r}: {episode.error}")
        return episode

      with StopSignal() as stop:
        result = await rejection_sample(
          play,
          tasks,
          num_samples=options.num_samples,
          accept=(lambda e: not e.success) if wants_failures else solved,
          max_per_task=options.num_samples
          if wants_failures
          else options.max_per_task,
          max_concurrent=settings.engine.num_slots,
          stop=stop.wait,
        )
  if errors:
    _LOGGER.warning(
      "%d of %d episodes did not finish; the first: %s",
      len(errors),
      result.counts["played"],
      errors[0].partition("\n")[0],
    )
  name = "failures" if wants_failures else "rejection"
  return list(result.episodes), {name: result.counts}


def _filter(
  episodes: Sequence[SyntheticEpisode],
  max_length: int,
  count_tokens: Callable[[SyntheticEpisode], int],
) -> tuple[list[SyntheticEpisode], dict[str, int]]:
  """Filters, and says how long what is too long is."""
  kept, counts = filter_episodes(
    episodes, FilterSettings(max_tokens=max_length), count_tokens=count_tokens
  )
  if counts["too_many_tokens"]:
    lengths = [count_tokens(one) for one in episodes if one.success]
    long = [length for length in lengths if length > max_length]
    _LOGGER.warning(
      "%d episodes are left out, as a warm start would leave them out: they"
      " are longer than config.rollout.max_length, %d tokens; they have %d to"
      " %d",
      counts["too_many_tokens"],
      max_length,
      min(long),
      max(long),
    )
  return kept, counts


def _mix(
  episodes: Sequence[SyntheticEpisode],
) -> tuple[list[SyntheticEpisode], dict[str, int]]:
  """Mixes as many as the shares allow, and says what was left out.

  Where a difficulty is missing that would be none, and so all are kept.
  """
  levels = [episode.task.level for episode in episodes]
  mixed = mix_by_difficulty(
    episodes, lambda episode: level_difficulty(episode.task.level, levels)
  )
  counts = {str(name): number for name, number in mixed.counts.items()}
  left_out = len(episodes) - len(mixed.items)
  if not all(counts.values()):
    found = ", ".join(
      f"{n} of level {level}" for level, n in sorted(Counter(levels).items())
    )
    _LOGGER.warning(
      "--mix is left out: it needs easy, middling and hard episodes, and there"
      " are %s; make more with --number",
      found,
    )
    return list(episodes), {"left_out": 0}
  return list(mixed.items), counts | {"left_out": left_out}


def main(argv: Sequence[str] | None = None) -> None:
  """Runs the command."""
  own, rest = split_arguments(list(sys.argv if argv is None else argv))

  def run(arguments: command_line.Arguments) -> None:
    command_line.connect(arguments)
    options = read_options(own)
    try:
      counts = synthesize(arguments.config, options)
    except KeyboardInterrupt:
      print(f"\nnothing was written to {options.out}", file=sys.stderr)
      raise
    print(f"{format_counts(counts)}\n\n  written to {options.out}")

  # The run's folder is optional here.
  described = f"{__doc__}\n{describe_flags()}\n"
  command_line.run(run, [*rest, "--workdir=."], description=described)


if __name__ == "__main__":
  main()
