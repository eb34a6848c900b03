"""Tasks of the package reasoning-gym, with scores that garbage does not get.

Its datasets make problems from a seed and score any answer in [0, 1]. Many
give a little to whatever is said, which a policy would learn to collect; here
that floor is taken off.
"""

from collections.abc import Mapping
import functools
import hashlib
import json
import re
from typing import Any

from arl_jax.envs.environment import StepResult
from arl_jax.episode import Message, Task
from arl_jax.sandbox.sandbox import Sandbox

# Datasets whose gold answers score 1, whose garbage scores little, whose
# problems are made in milliseconds, and whose scorers run no answer as code.
# Left out by that: `propositional_logic`, `graph_color`, `boxnet`,
# `rubiks_cube` and `rush_hour`, which have no gold answers; `n_queens`,
# `spiral_matrix`, `binary_matrix`, `string_insertion`, `puzzle24`, both
# integrations and `polynomial_multiplication`, which evaluate what the policy
# wrote; `spell_backward`, `game_of_life_halting`, `time_intervals` and
# `rectangle_count`, which give garbage up to 0.17, 1, 0.67 and 0.64.
DATASETS = (
  "aiw",
  "arc_1d",
  "base_conversion",
  "basic_arithmetic",
  "bf",
  "binary_alternation",
  "bitwise_arithmetic",
  "caesar_cipher",
  "calendar_arithmetic",
  "chain_sum",
  "complex_arithmetic",
  "count_bits",
  "count_primes",
  "countdown",
  "course_schedule",
  "cryptarithm",
  "decimal_arithmetic",
  "decimal_chain_sum",
  "dice",
  "family_relationships",
  "fraction_simplification",
  "gcd",
  "gsm_symbolic",
  "isomorphic_strings",
  "knights_knaves",
  "largest_island",
  "lcm",
  "leg_counting",
  "letter_counting",
  "letter_jumble",
  "list_functions",
  "manipulate_matrix",
  "maze",
  "mini_sudoku",
  "number_filtering",
  "number_format",
  "number_sequence",
  "number_sorting",
  "palindrome_generation",
  "path_star",
  "pool_matrix",
  "power_function",
  "products",
  "ransom_note",
  "rotate_matrix",
  "self_reference",
  "sentence_reordering",
  "shortest_path",
  "simple_equations",
  "simple_geometry",
  "string_manipulation",
  "syllogism",
  "word_ladder",
  "word_sequence_reversal",
  "word_sorting",
)
SPLITS = ("train", "heldout")
MAX_ANSWER_CHARS = 4000
# What an answer is worth that says nothing of the problem.
GARBAGE = ("", "0", "1", "x", "yes", "[]", "apple river stone")
_SEEDS_PER_SPLIT = 2**30
# These scorers evaluate an answer, so it has to be what they ask for.
_SAFE = {"countdown": re.compile(r"(?!.*(?:\*\*|//))[-+*/() 0-9]{1,200}")}
_USAGE = "Give the final answer alone between <answer> and </answer>."


def reasoning_tasks(
  name: str,
  num_tasks: int,
  *,
  seed: int,
  split: str = "train",
  options: Mapping[str, Any] | None = None,
) -> list[Task]:
  """Makes tasks of a dataset; the same arguments make the same ones.

  Every task has a seed of its own, and the splits share none. Where a dataset
  has few problems, such as sums of two digits, two seeds can make the same.

  Args:
    name: one of `DATASETS`.
    num_tasks: how many.
    seed: another one draws other tasks.
    split: `train` or `heldout`.
    options: of the dataset, such as `{"max_terms": 3}` of `chain_sum`.

  Raises:
    ValueError: there is no such dataset, split or option.
    ModuleNotFoundError: the package is not installed.
  """
  if name not in DATASETS:
    raise ValueError(f"name is {name!r}; expected one of {', '.join(DATASETS)}")
  if split not in SPLITS:
    raise ValueError(f"split is {split!r}; expected one of {SPLITS}")
  text = json.dumps(dict(options or {}), sort_keys=True)
  tasks: list[Task] = []
  for number in range(num_tasks):
    digest = hashlib.sha256(f"{name}/{seed}/{number}".encode()).digest()
    item_seed = int.from_bytes(digest, "big") % _SEEDS_PER_SPLIT
    item_seed += SPLITS.index(split) * _SEEDS_PER_SPLIT
    entry = _dataset(name, text, item_seed)[0]
    hidden = {"dataset": name, "options": text, "entry": entry}
    tasks.append(
      Task(
        task_id=f"{name}-{item_seed}",
        prompt=entry["question"],
        seed=item_seed,
        hidden={**hidden, "floor": _floor(hidden)},
      )
    )
  return tasks


def gold_answer(task: Task) -> str:
  """Returns the right answer of a task of this file, or one of them."""
  return task.hidden["entry"]["answer"]


def score_answer(task: Task, answer: str) -> float:
  r"""Scores an answer, in [0, 1]; garbage gets exactly 0.

  $\max(0, r - f) / (1 - f)$, where r is what the dataset gives the answer, and
  f the most that it gives `GARBAGE` for this problem, unless that is right.

  Args:
    task: one of this file.
    answer: longer ones than `MAX_ANSWER_CHARS` get 0.
  """
  floor = task.hidden["floor"]
  return max(0.0, _raw_score(task.hidden, answer) - floor) / (1.0 - floor)


class ReasoningJudge:
  """A `Judge` of answers to tasks of this file; it needs no sandbox.

  Its components are `success`, 1 for the full score, and `score`.
  """

  async def judge(
    self, task: Task, submission: str, sandbox: Sandbox | None = None
  ) -> Mapping[str, float]:
    """Scores a submission, which is the answer alone."""
    del sandbox
    score = score_answer(task, submission)
    return {"success": float(score >= 1.0), "score": score}


class ReasoningEnv:
  """One question, one answer.

  The answer is what the last `<answer>` tag holds, or the whole action if it
  has none.

  Args:
    show_usage: whether a system message says how to answer.
  """

  def __init__(self, *, show_usage: bool = True):
    self._show_usage = show_usage
    self._task: Task | None = None
    self._answer: str | None = None

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Returns the question."""
    del seed  # nothing here is random
    self._task, self._answer = task, None
    user = Message(role="user", content=task.prompt)
    if not self._show_usage:
      return (user,)
    return (Message(role="system", content=_USAGE), user)

  async def step(self, action: str) -> StepResult:
    """Takes the answer, which ends the episode."""
    if self._task is None or self._answer is not None:
      raise RuntimeError("step() takes one action, after reset()")
    inside, closing, _ = action.rpartition("</answer>")
    _, opening, body = inside.rpartition("<answer>")
    self._answer = (body if opening and closing else action).strip()
    return StepResult(terminated=True)

  async def score(self) -> Mapping[str, float]:
    """Returns `success`, `score`, and `answered`."""
    if self._task is None:
      raise RuntimeError("the environment needs reset() first")
    found = await ReasoningJudge().judge(self._task, self._answer or "")
    return {**found, "answered": float(bool(self._answer))}


def _floor(hidden: Mapping[str, Any]) -> float:
  scores = [_raw_score(hidden, garbage) for garbage in GARBAGE]
  return max((score for score in scores if score < 1.0), default=0.0)


def _raw_score(hidden: Mapping[str, Any], answer: str) -> float:
  """Returns what the dataset gives; 0 if its scorer fails on the answer."""
  name = hidden["dataset"]
  safe = _SAFE.get(name)
  if len(answer) > MAX_ANSWER_CHARS or (safe and not safe.fullmatch(answer)):
    return 0.0
  scorer = _scorer(name, hidden["options"])
  try:
    score = float(scorer.score_answer(answer, hidden["entry"]))
  except Exception:
    # Scorers read numbers and lists where the policy may have written neither.
    return 0.0
  return min(max(score, 0.0), 1.0)


@functools.cache
def _scorer(name: str, options: str) -> Any:
  return _dataset(name, options, 0)


def _dataset(name: str, options: str, seed: int) -> Any:
  try:
    import reasoning_gym
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      "these tasks need the package reasoning-gym:"
      " pip install 'arl-jax[reasoning]'"
    ) from error
  try:
    return reasoning_gym.create_dataset(
      name, size=1, seed=seed, **json.loads(options)
    )
  except (TypeError, AssertionError) as error:
    raise ValueError(
      f"options is {options}; expected what {name} takes: {error}"
    ) from error
