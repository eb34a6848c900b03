"""Flight booking as a run uses it."""

from collections.abc import Iterator
import dataclasses
from typing import ClassVar, Literal

from arl_jax.config import blame
from arl_jax.envs import flight_task_file, flight_tasks, flight_text
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.episode import Task
from arl_jax.rewards.catalogue import select_rewards
from arl_jax.run.config_ranges import Range
from arl_jax.run.suite import Demonstration, Suite
from arl_jax.synthesis import demonstrations
from arl_jax.synthesis.flight_experts import ExpertMix


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlightSettings:
  """How hard booking flights is, and how it looks.

  Attributes:
    name: a key of `SUITES`.
    style: how actions look, `hermes` (JSON) or `compact`.
    show_tools: put the tools' schemas into the prompt.
    show_times: show departure times in lists.
    system_prompt: text of a system message; None for none of our own.
    levels: difficulties, mixed evenly.
    num_flights: flights that match a request; 0 is the environment's choice.
    kinds: what requests ask for.
    moves: whether prices and seats move between turns.
    num_train_tasks: tasks of one epoch.
    task_file: JSON lines to train on instead of generated tasks.
    reward_weights: weight of each named reward component.
  """

  RANGES: ClassVar[dict[Range, str]] = {
    Range(1): "num_train_tasks",
    Range(1, 4): "levels",
  }

  name: Literal["flight_booking"] = "flight_booking"
  style: Literal["hermes", "compact"] = "hermes"
  show_tools: bool = False
  show_times: bool = True
  system_prompt: str | None = None
  levels: tuple[int, ...] = flight_tasks.LEVELS
  num_flights: int = 0
  kinds: tuple[str, ...] = flight_text.KINDS
  moves: bool = True
  num_train_tasks: int = 4096
  task_file: str = ""
  reward_weights: dict[str, float] = dataclasses.field(
    default_factory=lambda: {"success": 1.0}
  )

  def problems(self) -> Iterator[str]:
    """What is wrong beyond the ranges, a message for each."""
    unknown = set(self.kinds) - set(flight_text.KINDS)
    if unknown or not self.kinds:
      yield (
        f"config.environment.kinds is {tuple(self.kinds)}; expected some of "
        f"{', '.join(flight_text.KINDS)}."
      )
    if not self.levels:
      yield "config.environment.levels is empty; expected some of 1 to 4."
    if self.num_flights and not 2 <= self.num_flights <= 8:
      yield (
        f"config.environment.num_flights is {self.num_flights}; expected 2 to "
        "8, or 0 to leave it to the level."
      )


_FLIGHT_REWARDS = ("success", "booked", "turns", "tool_errors")


def flight_booking_suite(settings: FlightSettings) -> Suite:
  """The running example: an agent that books flights.

  Raises:
    ValueError: if a reward weight names nothing that is rewarded.
  """
  reward_fns = select_rewards(settings.reward_weights, given=_FLIGHT_REWARDS)

  def make_environment() -> FlightBookingEnv:
    return FlightBookingEnv(
      style=settings.style,
      show_tools=settings.show_tools,
      show_times=settings.show_times,
      system_prompt=settings.system_prompt,
    )

  def tasks(number: int, seed: int, split: str, drill: bool = False):
    return flight_tasks.generate_tasks(
      number,
      seed=seed,
      split=split,
      levels=settings.levels,
      num_flights=settings.num_flights or None,
      kinds=settings.kinds,
      moves=settings.moves,
      drill=drill,
    )

  def train_tasks(seed: int) -> list[Task]:
    if settings.task_file:
      with blame("config.environment.task_file", settings.task_file):
        return flight_task_file.load_tasks(settings.task_file)
    return tasks(settings.num_train_tasks, seed, "train")

  def demonstrate(
    number: int, seed: int, careful: float, drill: bool
  ) -> list[Demonstration]:
    played = demonstrations.expert_transcripts(
      tasks(number, seed, "warmup", drill),
      mix=ExpertMix(careful=careful),
      seed=seed,
      style=settings.style,
      make_environment=make_environment,
    )
    return [
      Demonstration(
        turns=tuple((turn.observations, turn.action) for turn in episode.turns),
        success=episode.success,
        task=episode.task,
      )
      for episode in played
    ]

  return Suite(
    make_environment=make_environment,
    train_tasks=train_tasks,
    heldout_tasks=lambda number, seed: tasks(number, seed, "heldout"),
    demonstrate=demonstrate,
    split_pattern=flight_text.FLIGHT_SPLIT_PATTERN,
    reward_fns=reward_fns,
  )
