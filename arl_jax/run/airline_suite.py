"""The desk of an airline as a run uses it."""

from collections.abc import Iterator
import dataclasses
import random
from typing import ClassVar, Literal

from arl_jax.envs import airline_tasks, airline_tau
from arl_jax.envs.airline_data import load_airline
from arl_jax.envs.airline_environment import REWARDS, AirlineEnv
from arl_jax.episode import Task
from arl_jax.rewards.catalogue import select_rewards
from arl_jax.run.config_ranges import Range
from arl_jax.run.suite import Demonstration, Suite
from arl_jax.synthesis import airline_experts

# What is copied is a piece of its own, so that it is always the same tokens.
# All that stands between can grow into one token.
SPLIT_PATTERN = "|".join(
  (
    r"\b[a-z]+_[a-z]+_(?=\d)|\b(?:certificate|credit_card|gift_card)_(?=\d)",
    r"\d{4}-\d{2}-\d{2}",
    r"\bHAT\d{3}\b",
    r"\b[A-Z0-9]{6}\b",
    r"\b[A-Z]{3}\b",
    r"\b[A-Z][a-z]+\b",
    r"\b(?:basic_economy|business|economy|one_way|round_trip|yes|no)\b",
    r"\d+",
  )
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AirlineSettings:
  """Which customers call, and what the agent is shown.

  Attributes:
    name: a key of `SUITES`.
    kind: `tau` for the tasks of tau2-bench, `generated` for simple ones.
    user: of tau tasks: `prompt` puts all that the customer knows and wants
      into the prompt, `scripted` has them tell it bit by bit.
    levels: difficulties of generated tasks, mixed evenly.
    num_train_tasks: generated tasks of one epoch.
    observations: how records look: `json`, or `brief` for short rows.
    show_tools: put the tools' schemas into the prompt.
    show_policy: put the airline's policy into it.
    system_prompt: text of a system message; None for none of our own.
    reward_weights: weight of each named reward component.
  """

  RANGES: ClassVar[dict[Range, str]] = {
    Range(1): "num_train_tasks",
    Range(1, 3): "levels",
  }

  name: Literal["airline"] = "airline"
  kind: Literal["tau", "generated"] = "generated"
  user: Literal["prompt", "scripted"] = "prompt"
  levels: tuple[int, ...] = airline_tasks.LEVELS
  num_train_tasks: int = 4096
  observations: Literal["json", "brief"] = "brief"
  show_tools: bool = False
  show_policy: bool = False
  system_prompt: str | None = None
  reward_weights: dict[str, float] = dataclasses.field(
    default_factory=lambda: {"success": 1.0}
  )

  def problems(self) -> Iterator[str]:
    """What is wrong beyond the ranges, a message for each."""
    if not self.levels:
      yield "config.environment.levels is empty; expected some of 1 to 3."
    if self.kind == "generated" and self.user == "scripted":
      yield (
        "config.environment.user is 'scripted' while kind is 'generated'; such"
        " requests say all at once. Expected user 'prompt', or kind 'tau'."
      )
    if self.kind == "tau" and self.observations == "brief":
      yield (
        "config.environment.observations is 'brief' while kind is 'tau'; brief"
        " records lack what those tasks ask about. Expected 'json'."
      )


def airline_suite(settings: AirlineSettings) -> Suite:
  """The desk of an airline, over a database that is shared by all episodes.

  Of the tau tasks, the 20 of the split `test` are held out, and the gold calls
  of the 30 others are the demonstrations: there are no tasks of neither, and
  no careless ones. Generated tasks are split by customer.

  Raises:
    ValueError: a reward weight names nothing that is rewarded.
    ModuleNotFoundError: the package with the data is missing.
  """
  reward_fns = select_rewards(settings.reward_weights, given=REWARDS)
  data = load_airline()
  source = airline_tasks.TaskSource(data, levels=settings.levels)

  def make_environment() -> AirlineEnv:
    return AirlineEnv(
      data,
      show_tools=settings.show_tools,
      show_policy=settings.show_policy,
      system_prompt=settings.system_prompt,
      observations=settings.observations,
    )

  def tau_tasks(split: str) -> list[Task]:
    return airline_tau.tau_tasks(data, split=split, user=settings.user)

  def train_tasks(seed: int) -> list[Task]:
    if settings.kind == "tau":
      return tau_tasks("train")
    return source.tasks(settings.num_train_tasks, seed=seed, split="train")

  def heldout_tasks(number: int, seed: int) -> list[Task]:
    if settings.kind == "tau":
      return tau_tasks("test")[:number]
    return source.tasks(number, seed=seed, split="heldout")

  def demonstrate(
    number: int, seed: int, careful: float, drill: bool
  ) -> list[Demonstration]:
    if settings.kind == "tau":
      tasks = random.Random(seed).choices(tau_tasks("train"), k=number)
      played = [
        airline_experts.play_gold(make_environment(), task) for task in tasks
      ]
    else:
      played = airline_experts.expert_transcripts(
        source.tasks(number, seed=seed, split="warmup", drill=drill),
        make_environment=make_environment,
        mix=airline_experts.AirlineExpertMix(careful=careful),
        seed=seed,
      )
    return [
      Demonstration(
        turns=episode.turns, success=episode.success, task=episode.task
      )
      for episode in played
    ]

  return Suite(
    make_environment=make_environment,
    train_tasks=train_tasks,
    heldout_tasks=heldout_tasks,
    demonstrate=demonstrate,
    split_pattern=SPLIT_PATTERN,
    reward_fns=reward_fns,
  )
