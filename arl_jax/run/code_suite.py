"""Reasoning with a code interpreter as a run uses it."""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import math
import os
from typing import ClassVar, Literal, NamedTuple

from arl_jax.config import blame
from arl_jax.envs import code_tasks, human_eval, reasoning_gym_tasks
from arl_jax.envs.code_environment import (
  REWARDS,
  CodeEnv,
  ExactAnswerJudge,
  Judge,
)
from arl_jax.envs.code_judge import HiddenTestsJudge
from arl_jax.envs.code_sandboxes import LoopSandbox
from arl_jax.envs.code_trusted import TrustedSandbox
from arl_jax.episode import Task
from arl_jax.rewards.catalogue import select_rewards
from arl_jax.run.config_ranges import Range
from arl_jax.run.suite import Demonstration, Suite
from arl_jax.sandbox.bubblewrap_sandbox import BubblewrapSandbox
from arl_jax.sandbox.monty_sandbox import MontySandbox
from arl_jax.sandbox.pool import SandboxPool
from arl_jax.sandbox.sandbox import MIN_MEMORY_MB, Sandbox
from arl_jax.sandbox.subprocess_sandbox import SubprocessSandbox
from arl_jax.synthesis import code_experts

# What a small vocabulary can hold as one token: the frame of a program and a
# tag. Digits stand alone: in one trial each, a warm start solved 0.50 of the
# tasks so, and 0.39 with pairs of digits, which are too many to learn soon.
SPLIT_PATTERN = "|".join(
  (
    r"```python\n(?:import math\n)?(?:print\()?",
    r"\)*\n```\n?",
    r"</?answer>",
    r"\p{N}",
    r" ?\p{L}+",
    r" ?[^\s\p{L}\p{N}]+",
    r"\s+",
  )
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeSettings:
  """What is asked, and what runs the programs.

  Attributes:
    name: a key of `SUITES`.
    source: `generated` questions, `human_eval`, whose answers are programs, or
      `reasoning_gym`.
    datasets: those of `reasoning_gym_tasks.DATASETS` that are used, evenly.
    levels: difficulties of generated questions, mixed evenly.
    num_train_tasks: tasks of one epoch, at most.
    sandbox: `monty`, `subprocess` or `bubblewrap`; see docs/sandbox.md.
    stateful: whether variables live on in the next program of an episode.
    max_calls_per_turn: programs of one action that are run; others are refused.
    timeout_seconds: of one program.
    memory_mb: of one program, or of a session.
    max_concurrent: programs that run at once; 0 is the number of processors.
    max_sessions: stateful episodes that have an interpreter at once; others
      wait, so give as many as there are episodes.
    max_output_chars: that are shown of what a program prints.
    full_traceback: whether all of a traceback is shown, or its last line.
    show_tools: say in the prompt how to run programs.
    system_prompt: text of a system message; None for none of our own.
    hacker_fraction: of the careless demonstrations, the share that wins
      `rewards.code.COMPOSITE_WEIGHTS` without solving anything.
    reward_weights: weight of each named reward component.
  """

  RANGES: ClassVar[dict[Range, str]] = {
    Range(
      1
    ): "num_train_tasks max_calls_per_turn max_sessions max_output_chars",
    Range(0): "max_concurrent",
    Range(0, above=True): "timeout_seconds",
    Range(MIN_MEMORY_MB): "memory_mb",
    Range(1, 4): "levels",
    Range(0, 1): "hacker_fraction",
  }

  name: Literal["code"] = "code"
  source: Literal["generated", "human_eval", "reasoning_gym"] = "generated"
  datasets: tuple[str, ...] = ()
  levels: tuple[int, ...] = code_tasks.LEVELS
  num_train_tasks: int = 4096
  sandbox: Literal["monty", "subprocess", "bubblewrap"] = "monty"
  stateful: bool = False
  max_calls_per_turn: int = 4
  timeout_seconds: float = 5.0
  memory_mb: int = 256
  max_concurrent: int = 0
  max_sessions: int = 128
  max_output_chars: int = 500
  full_traceback: bool = False
  show_tools: bool = True
  system_prompt: str | None = None
  hacker_fraction: float = 0.0
  reward_weights: dict[str, float] = dataclasses.field(
    default_factory=lambda: {"success": 1.0}
  )

  def problems(self) -> Iterator[str]:
    """What is wrong beyond the ranges, a message for each."""
    if not self.levels:
      yield "config.environment.levels is empty; expected some of 1 to 4."
    unknown = set(self.datasets) - set(reasoning_gym_tasks.DATASETS)
    if unknown:
      yield (
        f"config.environment.datasets names {', '.join(sorted(unknown))}; "
        "expected names of arl_jax.envs.reasoning_gym_tasks.DATASETS."
      )
    if bool(self.datasets) != (self.source == "reasoning_gym"):
      yield (
        f"config.environment.datasets is {tuple(self.datasets)} while source "
        f"is {self.source}; expected some names for reasoning_gym, and none "
        "for others."
      )


class _Source(NamedTuple):
  """Where tasks come from, and how they are judged."""

  judge: Judge
  train: Callable[[int], list[Task]]
  heldout: Callable[[int, int], list[Task]]
  rewards: tuple[str, ...] = ()


def code_suite(settings: CodeSettings) -> Suite:
  """Questions that are answered by running programs.

  Demonstrations are of generated questions, whatever the source: they show
  how an episode goes. Those of a benchmark would show its solutions.

  Raises:
    ValueError: a reward weight names nothing that is rewarded, or the package
      of a source is missing.
    SandboxUnavailableError: the sandbox does not work on this machine.
  """
  with blame("config.environment.source", settings.source):
    source = _SOURCES[settings.source](settings)
  rewards = (*REWARDS, *source.rewards)
  reward_fns = select_rewards(settings.reward_weights, given=rewards)
  sandbox = LoopSandbox(lambda: _make_pool(settings))

  def make_environment(
    sandbox: Sandbox = sandbox, judge: Judge = source.judge
  ) -> CodeEnv:
    return CodeEnv(
      sandbox,
      judge=judge,
      stateful=settings.stateful,
      max_calls_per_turn=settings.max_calls_per_turn,
      timeout_seconds=settings.timeout_seconds,
      memory_mb=settings.memory_mb,
      max_output_chars=settings.max_output_chars,
      full_traceback=settings.full_traceback,
      show_tools=settings.show_tools,
      system_prompt=settings.system_prompt,
    )

  def demonstrate(
    number: int, seed: int, careful: float, drill: bool
  ) -> list[Demonstration]:
    played = code_experts.expert_transcripts(
      code_tasks.generate_tasks(
        number, seed=seed, split="warmup", levels=settings.levels, drill=drill
      ),
      # Programs of our own, so many that a sandbox would take minutes.
      make_environment=lambda: make_environment(
        TrustedSandbox(), ExactAnswerJudge()
      ),
      mix=code_experts.CodeExpertMix(
        careful=careful, hacker=settings.hacker_fraction
      ),
      seed=seed,
      stateful=settings.stateful,
    )
    return [
      Demonstration(
        turns=episode.turns, success=episode.success, task=episode.task
      )
      for episode in played
    ]

  return Suite(
    make_environment=make_environment,
    train_tasks=source.train,
    heldout_tasks=source.heldout,
    demonstrate=demonstrate,
    split_pattern=SPLIT_PATTERN,
    reward_fns=reward_fns,
  )


def _generated(settings: CodeSettings) -> _Source:
  def tasks(number: int, seed: int, split: str) -> list[Task]:
    return code_tasks.generate_tasks(
      number, seed=seed, split=split, levels=settings.levels
    )

  return _Source(
    judge=ExactAnswerJudge(),
    train=lambda seed: tasks(settings.num_train_tasks, seed, "train"),
    heldout=lambda number, seed: tasks(number, seed, "heldout"),
  )


def _human_eval(settings: CodeSettings) -> _Source:
  tasks = {one: human_eval.human_eval_tasks(one) for one in human_eval.SPLITS}
  return _Source(
    judge=HiddenTestsJudge(
      timeout_seconds=settings.timeout_seconds, memory_mb=settings.memory_mb
    ),
    train=lambda seed: tasks["train"][: settings.num_train_tasks],
    heldout=lambda number, seed: tasks["heldout"][:number],
    rewards=("pass_rate", "visible_pass_rate", "hard_coded"),
  )


def _reasoning_gym(settings: CodeSettings) -> _Source:
  def tasks(number: int, seed: int, split: str) -> list[Task]:
    num_each = math.ceil(number / len(settings.datasets))
    columns = [
      reasoning_gym_tasks.reasoning_tasks(
        name, num_each, seed=seed, split=split
      )
      for name in settings.datasets
    ]
    mixed = [task for row in zip(*columns, strict=True) for task in row]
    return mixed[:number]

  return _Source(
    judge=reasoning_gym_tasks.ReasoningJudge(),
    train=lambda seed: tasks(settings.num_train_tasks, seed, "train"),
    heldout=lambda number, seed: tasks(number, seed, "heldout"),
    rewards=("score",),
  )


_SOURCES: Mapping[str, Callable[[CodeSettings], _Source]] = {
  "generated": _generated,
  "human_eval": _human_eval,
  "reasoning_gym": _reasoning_gym,
}


def _make_pool(settings: CodeSettings) -> SandboxPool:
  max_concurrent = settings.max_concurrent or os.cpu_count() or 1
  if settings.sandbox == "monty":
    # A session keeps a process of Monty's, which judging must not wait for.
    sessions = settings.max_sessions if settings.stateful else 0
    sandbox = MontySandbox(max_processes=max_concurrent + sessions)
  elif settings.sandbox == "subprocess":
    sandbox = SubprocessSandbox()
  else:
    sandbox = BubblewrapSandbox()
  return SandboxPool(
    sandbox,
    max_concurrent=max_concurrent,
    max_sessions=settings.max_sessions,
  )
