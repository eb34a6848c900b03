"""What each environment has to make episodes to imitate with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import logging
from typing import Any

from arl_jax.envs import flight_tasks, search_facts
from arl_jax.envs.guarded_call import describe_error
from arl_jax.episode import Task
from arl_jax.run.flight_suite import FlightSettings
from arl_jax.run.search_suite import SearchSettings, load_corpus
from arl_jax.run.suite import Demonstration, Suite
from arl_jax.synthesis import (
  flight_goals,
  flight_paths,
  hindsight,
  mistakes,
  path_tasks,
  recovery,
  search_goals,
  search_paths,
)
from arl_jax.synthesis.path_tasks import PathSettings, PathWorld
from arl_jax.synthesis.recovery import Mistake
from arl_jax.synthesis.replay import Played, Script, play, recorded
from arl_jax.synthesis.scoring import played_reward
from arl_jax.synthesis.scripts import flight_script, search_script
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode

Made = tuple[list[SyntheticEpisode], dict[str, int]]
EXPERTS = "experts"
# Demonstrations that show whether any can be played again.
_NUM_PROBED = 8
_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synthesizer:
  """How an environment's episodes are varied, relabelled and made.

  Attributes:
    mistakes: that recovery puts in.
    make_script: the script that goes on after them.
    relabel: names what a failed episode achieved.
    accept: whether a relabelled episode is good enough.
    make_world: makes what paths of tools are run in.
    paths: how these are drawn.
  """

  mistakes: Sequence[Mistake]
  make_script: Callable[[SyntheticEpisode], Script]
  relabel: Callable[[], hindsight.RelabelFn]
  accept: Callable[[Played], bool]
  make_world: Callable[[], PathWorld]
  paths: PathSettings


def flight_synthesizer(settings: FlightSettings) -> Synthesizer:
  """Flight booking."""

  def draw_task(number: int) -> Task:
    levels = settings.levels
    (task,) = flight_tasks.generate_tasks(
      1,
      seed=number,
      split="warmup",
      levels=(levels[number % len(levels)],),
      num_flights=settings.num_flights or None,
      kinds=settings.kinds,
      moves=settings.moves,
    )
    return task

  return Synthesizer(
    mistakes=mistakes.flight_mistakes(settings.style),
    make_script=lambda episode: flight_script(
      episode.task.prompt, style=settings.style
    ),
    relabel=lambda: flight_goals.relabel_flight(settings.style),
    accept=lambda played: played.success,
    make_world=lambda: flight_paths.FlightPaths(
      draw_task, style=settings.style
    ),
    paths=PathSettings(goal=flight_paths.GOAL),
  )


def search_synthesizer(settings: SearchSettings) -> Synthesizer:
  """Question answering by searching a corpus of facts about countries."""

  def atlas() -> search_facts.Atlas:
    return search_facts.read_atlas(load_corpus(settings.corpus))

  return Synthesizer(
    mistakes=mistakes.search_mistakes(settings.style),
    make_script=lambda episode: search_script(
      episode.task.prompt, style=settings.style
    ),
    relabel=lambda: search_goals.AnsweredQuestions(atlas()).relabel,
    accept=lambda played: search_goals.is_supported(played.scores),
    make_world=lambda: search_paths.SearchPaths(atlas(), style=settings.style),
    paths=PathSettings(
      goal=search_paths.GOAL, connect_chance=0.6, expand_chance=0.1
    ),
  )


SYNTHESIZERS: Mapping[str, Callable[[Any], Synthesizer]] = {
  "flight_booking": flight_synthesizer,
  "search": search_synthesizer,
}


def find_synthesizer(settings: Any, *, method: str) -> Synthesizer:
  """Returns the synthesizer of an environment.

  Raises:
    ValueError: it has none.
  """
  make = SYNTHESIZERS.get(settings.name)
  if make is None:
    raise ValueError(
      f"--method={method} knows the environments {', '.join(SYNTHESIZERS)};"
      f" config.environment.name is {settings.name!r}. All have rejection, and"
      " most have experts"
    )
  return make(settings)


async def make_experts(
  suite: Suite,
  number: int,
  *,
  reward_weights: Mapping[str, float],
  seed: int,
  careful: float,
  drill: bool,
) -> Made:
  """Plays a suite's experts, and plays what they did once more.

  Experts that drill in other worlds than the environment's, where none of them
  goes the same way, are played without drill.

  Returns:
    All episodes, failed ones included, and the counts `played`, `succeeded`
    and `not_reproduced`, which are left out.

  Raises:
    ValueError: the suite's demonstrations do not say their tasks, or its
      environment does not know these.
  """

  async def reproduce(demonstrations: Iterable[Demonstration]) -> Made:
    counts = {"played": 0, "succeeded": 0, "not_reproduced": 0}
    episodes: list[SyntheticEpisode] = []
    for one in demonstrations:
      counts["played"] += 1
      episode = await _reproduce(suite, one, reward_weights)
      if episode is None:
        counts["not_reproduced"] += 1
        continue
      counts["succeeded"] += episode.success
      episodes.append(episode)
    return episodes, counts

  if drill:
    few = suite.demonstrate(min(number, _NUM_PROBED), seed, careful, True)
    drill = bool((await reproduce(few))[0])
    if not drill:
      _LOGGER.warning(
        "the experts drill in other worlds than the environment's own, which"
        " cannot be stored; they are played in its own, as with"
        " config.warmup.drill=False"
      )
  episodes, counts = await reproduce(
    suite.demonstrate(number, seed, careful, drill)
  )
  if counts["not_reproduced"]:
    _LOGGER.warning(
      "%d of %d demonstrations go otherwise when they are played again, and"
      " are left out: the environment does not answer the same each time",
      counts["not_reproduced"],
      counts["played"],
    )
  return episodes, counts


async def make_recoveries(
  suite: Suite,
  synthesizer: Synthesizer,
  episodes: Sequence[SyntheticEpisode],
  *,
  reward_weights: Mapping[str, float],
  seed: int,
) -> Made:
  """Puts mistakes into episodes, see `recovery.recovery_variants`."""
  return await recovery.recovery_variants(
    episodes,
    synthesizer.mistakes,
    make_environment=suite.make_environment,
    make_script=synthesizer.make_script,
    reward_weights=reward_weights,
    reward_fns=suite.reward_fns,
    seed=seed,
  )


async def make_relabelled(
  suite: Suite,
  synthesizer: Synthesizer,
  episodes: Sequence[SyntheticEpisode],
  *,
  reward_weights: Mapping[str, float],
) -> Made:
  """Relabels failures, see `hindsight.relabel_failures`."""
  return await hindsight.relabel_failures(
    episodes,
    synthesizer.relabel(),
    make_environment=suite.make_environment,
    accept=synthesizer.accept,
    reward_weights=reward_weights,
    reward_fns=suite.reward_fns,
  )


async def make_paths(
  suite: Suite,
  synthesizer: Synthesizer,
  number: int,
  *,
  reward_weights: Mapping[str, float],
  seed: int,
) -> Made:
  """Runs paths of tools, see `path_tasks.synthesize_paths`."""
  return await path_tasks.synthesize_paths(
    synthesizer.make_world(),
    settings=synthesizer.paths,
    make_environment=suite.make_environment,
    number=number,
    reward_weights=reward_weights,
    reward_fns=suite.reward_fns,
    seed=seed,
  )


async def _reproduce(
  suite: Suite, one: Demonstration, reward_weights: Mapping[str, float]
) -> SyntheticEpisode | None:
  """Plays a demonstration again; None if it goes otherwise."""
  if one.task is None:
    raise ValueError(
      "the demonstrations of this environment have no task, without which"
      " nothing can be stored; set Demonstration.task in its suite"
    )
  actions = [action for _, action in one.turns]
  try:
    played = await play(suite.make_environment, one.task, recorded(actions))
  except (KeyError, ValueError) as error:
    raise ValueError(
      "the experts of this environment play other tasks than its own, which"
      f" cannot be stored ({describe_error(error)}). Use --method=rejection"
    ) from error
  turns = tuple((turn.observations, turn.action) for turn in played.turns)
  if turns != one.turns or played.success != one.success:
    return None
  return SyntheticEpisode(
    task=one.task,
    source=EXPERTS,
    turns=played.turns,
    success=played.success,
    reward=played_reward(played, reward_weights, suite.reward_fns),
  )
