"""Scripts that answer questions with a code interpreter, careful or not.

A policy warm-started on the mix answers often enough for reinforcement to have
something to reward, and badly enough for a better strategy to be found.
"""

from collections.abc import Callable, Generator, Sequence
import dataclasses
import random

from arl_jax.envs import code_actions, code_questions
from arl_jax.envs.code_environment import CodeEnv
from arl_jax.envs.code_questions import Question, read_question
from arl_jax.envs.inline import run_inline
from arl_jax.episode import Message, Task
from arl_jax.text.action_formats import render_code_block

# What a void turn says.
THINKING = "Let me think."
TRIVIAL_PROGRAM = "print(1)"
_MAX_TURNS = 40

# Yields actions, is sent what answered each, and returns the answer.
_Script = Generator[str, str, str]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Habits:
  """What an expert takes care of.

  Attributes:
    runs: runs a program, instead of guessing.
    thinks: says something that is no action before it begins.
    prints: prints what it computes.
    waits: answers once it has read the output, instead of guessing beside its
      program.
    retries: does better when it is told what was wrong, instead of guessing.
    reads: takes the operation from the words, instead of the most frequent
      one, and does both steps of two.
    copies: copies numbers as they are, instead of swapping two digits.
    num_trivial_programs: programs that do nothing, run before a guess; what
      wins a reward for running programs without solving anything.
  """

  runs: bool = True
  thinks: bool = False
  prints: bool = True
  waits: bool = True
  retries: bool = True
  reads: bool = True
  copies: bool = True
  num_trivial_programs: int = 0


CAREFUL = Habits()
# Three of eight solve a task nevertheless, at the cost of a turn.
CARELESS_SLOTS: tuple[Habits, ...] = (
  Habits(thinks=True),
  Habits(prints=False),
  Habits(waits=False),
  Habits(runs=False),
  Habits(prints=False, retries=False),
  Habits(waits=False, retries=False),
  Habits(reads=False),
  Habits(copies=False),
)
HACKER = Habits(runs=False, num_trivial_programs=8)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CodeExpertMix:
  """How often each expert is drawn.

  Attributes:
    careful: share of episodes of the careful expert, in [0, 1].
    hacker: share of the others that are of the `HACKER`, in [0, 1].
    careless_slots: habits that share the rest evenly.
  """

  careful: float = 0.25
  hacker: float = 0.0
  careless_slots: Sequence[Habits] = CARELESS_SLOTS

  def __post_init__(self) -> None:
    for name in ("careful", "hacker"):
      if not 0.0 <= getattr(self, name) <= 1.0:
        raise ValueError(f"{name} is {getattr(self, name)}; expected 0 to 1")
    if self.careful < 1 and self.hacker < 1 and not self.careless_slots:
      raise ValueError(
        f"careless_slots is empty while careful is {self.careful}; give slots"
        " or set careful to 1"
      )

  def draw(self, *, seed: int, index: int) -> Habits:
    """The expert of episode `index` of a run with this seed."""
    rng = random.Random(f"code-expert/{seed}/{index}")
    if rng.random() < self.careful:
      return CAREFUL
    if rng.random() < self.hacker:
      return HACKER
    return rng.choice(self.careless_slots)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CodeEpisode:
  """A scripted episode.

  Attributes:
    task: what was asked.
    habits: of the expert.
    turns: for each action, the messages since the action before, and the
      action's text.
    components: of the whole episode, those of its turns summed.
  """

  task: Task
  habits: Habits
  turns: tuple[tuple[tuple[Message, ...], str], ...]
  components: dict[str, float]

  @property
  def success(self) -> bool:
    """What the environment judged."""
    return self.components["success"] == 1.0


def expert_script(
  prompt: str,
  *,
  habits: Habits = CAREFUL,
  stateful: bool = False,
  seed: int = 0,
) -> _Script:
  """Yields actions, is sent what answered each, and returns the answer.

  It knows the prompt and what was answered only.

  Args:
    prompt: the question, in one of the forms of `code_questions`.
    habits: of the expert.
    stateful: whether a program may use the variables of those before.
    seed: of guesses and slips.
  """
  rng = random.Random(f"code-slips/{seed}/{prompt}")
  question = read_question(prompt)
  if not habits.copies:
    question = _miscopied(question, rng)
  if habits.thinks:
    yield THINKING
  for _ in range(habits.num_trivial_programs):
    yield render_code_block(TRIVIAL_PROGRAM)
  if not habits.runs:
    return _guess(rng)
  result = ""
  for number, program in enumerate(_programs(question, habits, stateful)):
    code = program(result)
    action = render_code_block(code)
    is_slip = number == 0 and not (habits.prints and habits.waits)
    if is_slip and not habits.prints:
      action = render_code_block(_unprinted(code))
    elif is_slip:
      action += f"\n{code_actions.write_answer(_guess(rng))}"
    result = yield action
    if is_slip and not habits.retries:
      return _guess(rng)
    if is_slip and not habits.prints:
      result = yield render_code_block(code)
  return result


async def play_expert(
  environment: CodeEnv,
  task: Task,
  *,
  habits: Habits = CAREFUL,
  stateful: bool = False,
  seed: int = 0,
) -> CodeEpisode:
  """Plays one scripted episode in the real environment."""
  messages = await environment.reset(task, seed=0)
  script = expert_script(
    task.prompt, habits=habits, stateful=stateful, seed=seed
  )
  turns: list[tuple[tuple[Message, ...], str]] = []
  components: dict[str, float] = {}
  answered: str | None = None
  for _ in range(_MAX_TURNS):
    try:
      action = next(script) if answered is None else script.send(answered)
    except StopIteration as end:
      action = code_actions.write_answer(end.value)
    turns.append((messages, action))
    step = await environment.step(action)
    for name, value in step.rewards.items():
      components[name] = components.get(name, 0.0) + value
    if step.terminated:
      break
    messages = step.observations
    answered = messages[0].content
  components |= await environment.score()
  await environment.close()
  return CodeEpisode(
    task=task, habits=habits, turns=tuple(turns), components=components
  )


def expert_transcripts(
  tasks: Sequence[Task],
  *,
  make_environment: Callable[[], CodeEnv],
  mix: CodeExpertMix | None = None,
  seed: int = 0,
  stateful: bool = False,
) -> list[CodeEpisode]:
  """Plays one drawn expert per task through the real environment.

  Args:
    tasks: what to play, with the prompts of `code_questions`.
    make_environment: makes the environment, on a sandbox that never waits.
    mix: how often each expert is drawn; the default mix if None.
    seed: fixes the draws.
    stateful: whether the environment keeps variables.

  Returns:
    One episode per task, failed ones included.
  """
  mix = mix or CodeExpertMix()
  return [
    run_inline(
      play_expert(
        make_environment(),
        task,
        habits=mix.draw(seed=seed, index=index),
        stateful=stateful,
        seed=seed,
      )
    )
    for index, task in enumerate(tasks)
  ]


def _programs(
  question: Question, habits: Habits, stateful: bool
) -> list[Callable[[str], str]]:
  """The programs of an expert; each gets the output of the one before."""
  numbers = question.numbers
  match question.kind:
    case "branch":
      a, b, c, d = numbers
      first = f"{a} * {b}"

      def second(product: str) -> str:
        is_even = not habits.reads or int(product) % 2 == 0
        return f"+ {c}" if is_even else f"* {d}"
    case "table":
      *names, asked = question.words
      rows = zip(names, numbers[:-1], strict=True)
      first = " + ".join(str(n) for name, n in rows if name == asked)

      def second(product: str) -> str:
        del product  # only what is done to it matters
        return f"* {numbers[-1]}"

      if not habits.reads:
        return [lambda _: f"print({first})"]
    case _:
      return [lambda _: _program(question, habits)]
  if stateful:
    return [
      lambda _: f"x = {first}\nprint(x)",
      lambda result: f"print(x {second(result)})",
    ]
  return [
    lambda _: f"print({first})",
    lambda result: f"print({result} {second(result)})",
  ]


def _program(question: Question, habits: Habits) -> str:
  """One program that prints the answer."""
  numbers, op = question.numbers, question.op
  match question.kind:
    case "expression":
      if not habits.reads:
        op = {"add_mul": "mul_add", "mul_sub": "mul_add"}.get(op, op)
    case "story":
      if not habits.reads:
        op = op.replace("sub", "add")
    case kind:
      return _call(kind if habits.reads else _MISTAKEN[kind], question)
  return f"print({code_questions.EXPRESSIONS[op].format(*numbers)})"


def _call(kind: str, question: Question) -> str:
  numbers = question.numbers
  last = numbers[-1]
  match kind:
    case "gcd":
      return f"import math\nprint(math.gcd({numbers[0]}, {last}))"
    case "lcm":
      return f"import math\nprint(math.lcm({numbers[0]}, {last}))"
    case "total":
      return f"print(sum({list(numbers)}))"
    case "largest":
      return f"print(max({list(numbers)}))"
    case "spread":
      return f"x = {list(numbers)}\nprint(max(x) - min(x))"
    case "rank":
      return f"print(sorted({list(numbers[:-1])})[1] * {last})"
    case "smallest":
      return f"print(min({list(numbers[:-1])}) * {last})"
    case "letters":
      letter, word = question.words
      return f'print("{word}".count("{letter}") * {last})'
    case "length":
      return f'print(len("{question.words[1]}") * {last})'
    case "digits":
      return f"print(sum(map(int, str({numbers[0]}))) * {last})"
    case "product":
      return f"print({numbers[0]} * {last})"
    case _:
      raise ValueError(f"there is no program for a question of kind {kind!r}")


# What a script that does not read does instead.
_MISTAKEN = {
  "gcd": "lcm",
  "total": "largest",
  "spread": "largest",
  "rank": "smallest",
  "letters": "length",
  "digits": "product",
}


def _unprinted(code: str) -> str:
  """The same program without its `print`."""
  before, _, printed = code.rpartition("print(")
  return before + printed.removesuffix(")")


def _guess(rng: random.Random) -> str:
  return str(rng.randint(1000, 9999))


def _miscopied(question: Question, rng: random.Random) -> Question:
  """The question with two digits of one number swapped, where it can be."""
  numbers = list(question.numbers)
  places = [i for i, n in enumerate(numbers) if _swapped(n) != n]
  if not places:
    return question
  place = rng.choice(places)
  numbers[place] = _swapped(numbers[place])
  return dataclasses.replace(question, numbers=tuple(numbers))


def _swapped(number: int) -> int:
  text = str(number)
  return int(text[:-2] + text[-2:][::-1])
