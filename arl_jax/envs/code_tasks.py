"""Tasks for a policy with a code interpreter, drawn by seed and split."""

from collections.abc import Iterator, Sequence
import hashlib
import math
import random

from arl_jax.envs.code_questions import (
  FORMS,
  KINDS,
  LEVELS,
  VERBS,
  Question,
  answer_of,
  write_question,
)
from arl_jax.episode import Task

SPLITS = ("train", "heldout", "warmup")
HELDOUT_SHARE = 0.2
WARMUP_SHARE = 0.3
NAMES = ("Ana", "Ben", "Eva", "Ida", "Leo", "Mia", "Noa", "Tom")
THINGS = ("pens", "cups", "eggs", "nuts", "keys", "books", "coins", "cards")
# Each with a letter that it has more than once.
WORDS = (
  "banana",
  "balloon",
  "cabbage",
  "coffee",
  "giraffe",
  "kitten",
  "lemonade",
  "letter",
  "parrot",
  "pepper",
  "rabbit",
  "tomato",
)
# More forms than any kind has; a form is counted round.
_NUM_FORMS = math.lcm(*map(len, FORMS.values()))


def split_of(question: Question) -> str:
  """Which split a question belongs to, for ever and in all its forms."""
  share = _digest("split", question.key) / 2**256
  if share < HELDOUT_SHARE:
    return "heldout"
  return "warmup" if share < HELDOUT_SHARE + WARMUP_SHARE else "train"


def generate_tasks(
  num_tasks: int,
  *,
  seed: int,
  split: str,
  levels: Sequence[int] = LEVELS,
  drill: bool = False,
) -> list[Task]:
  """Draws tasks; the same arguments give the same tasks everywhere.

  No question of one split is in another, worded in whatever way. No question
  comes twice in a list, and no answer stands in its prompt.

  Args:
    num_tasks: how many.
    seed: another one gives other tasks.
    split: `train`, `heldout` or `warmup`.
    levels: cycled through; one that comes twice comes twice as often.
    drill: whether levels 3 and 4, of those chosen, come twice as often.

  Raises:
    ValueError: a level or the split is unknown, or there are no levels.
  """
  if split not in SPLITS:
    raise ValueError(f"split is {split!r}; expected one of {SPLITS}")
  if not levels or set(levels) - set(LEVELS):
    raise ValueError(f"levels is {tuple(levels)}; expected some of {LEVELS}")
  levels = tuple(levels)
  if drill:
    levels += tuple(level for level in levels if level >= 3)
  rng = random.Random(f"code/{split}/{seed}/{levels}")
  known: set[str] = set()
  found: list[Task] = []
  for index in range(num_tasks):
    level = levels[index % len(levels)]
    question = next(
      one
      for one in _drawn(level, rng)
      if split_of(one) == split and one.key not in known
    )
    known.add(question.key)
    found.append(_task(question, level=level, seed=seed, split=split, rng=rng))
  return found


def _task(
  question: Question, *, level: int, seed: int, split: str, rng: random.Random
) -> Task:
  prompt = write_question(question, form=rng.randrange(_NUM_FORMS))
  name = _digest("task", prompt) % 16**12
  return Task(
    task_id=f"code-{split}-{name:012x}",
    prompt=prompt,
    seed=seed,
    level=level,
    hidden={"kind": question.kind, "answers": [answer_of(question)]},
  )


def _drawn(level: int, rng: random.Random) -> Iterator[Question]:
  """Draws questions without end."""
  while True:
    kind = rng.choice(KINDS[level])
    question = _DRAW[kind](rng)
    told = {str(number) for number in question.numbers}
    if answer_of(question) not in told:
      yield question


def _expression(rng: random.Random) -> Question:
  op = rng.choice(("mul", "mul_add", "mul_sub", "add_mul"))
  if op == "mul":
    numbers = rng.randint(101, 999), rng.randint(12, 99)
  else:
    numbers = _numbers(op, rng)
  return Question(kind="expression", op=op, numbers=numbers)


def _story(rng: random.Random) -> Question:
  op = rng.choice(("mul_add", "mul_sub", "add_mul", "sub_mul"))
  verb = rng.choice(VERBS["sub" if "sub" in op else "add"])
  words = (rng.choice(NAMES), rng.choice(THINGS), verb)
  return Question(kind="story", op=op, numbers=_numbers(op, rng), words=words)


def _numbers(op: str, rng: random.Random) -> tuple[int, int, int]:
  """Three numbers whose results are positive and of four digits mostly."""
  if op.startswith("mul"):
    return rng.randint(21, 99), rng.randint(21, 99), rng.randint(101, 399)
  return rng.randint(51, 99), rng.randint(12, 39), rng.randint(31, 99)


def _gcd(rng: random.Random) -> Question:
  divisor = rng.randint(12, 97)
  while True:
    one, other = rng.sample(range(2, 40), 2)
    if math.gcd(one, other) == 1:
      numbers = divisor * one, divisor * other
      return Question(kind="gcd", numbers=numbers)


def _of_list(kind: str, rng: random.Random, *, factor: bool) -> Question:
  numbers = rng.sample(range(12, 100), 2) + rng.sample(range(101, 1000), 2)
  rng.shuffle(numbers)
  factors = [rng.randint(12, 99)] if factor else []
  return Question(kind=kind, numbers=(*numbers, *factors))


def _letters(rng: random.Random) -> Question:
  word = rng.choice(WORDS)
  letter = rng.choice(sorted({ch for ch in word if word.count(ch) > 1}))
  numbers = (rng.randint(101, 999),)
  return Question(kind="letters", numbers=numbers, words=(letter, word))


def _digits(rng: random.Random) -> Question:
  numbers = rng.randint(1001, 9999), rng.randint(101, 999)
  return Question(kind="digits", numbers=numbers)


def _branch(rng: random.Random) -> Question:
  # One factor is odd, so that every other product is even.
  a, b = rng.randrange(21, 100, 2), rng.randint(21, 99)
  return Question(
    kind="branch", numbers=(a, b, rng.randint(101, 999), rng.randint(12, 99))
  )


def _table(rng: random.Random) -> Question:
  asked, *others = rng.sample(NAMES, 3)
  names = [asked, asked, *others]
  rng.shuffle(names)
  numbers = *(rng.randint(12, 99) for _ in names), rng.randint(12, 99)
  return Question(kind="table", numbers=numbers, words=(*names, asked))


_DRAW = {
  "expression": _expression,
  "story": _story,
  "gcd": _gcd,
  "total": lambda rng: _of_list("total", rng, factor=False),
  "spread": lambda rng: _of_list("spread", rng, factor=False),
  "rank": lambda rng: _of_list("rank", rng, factor=True),
  "letters": _letters,
  "digits": _digits,
  "branch": _branch,
  "table": _table,
}


def _digest(purpose: str, text: str) -> int:
  """A number that is the same on every machine and Python."""
  data = f"code/{purpose}/{text}".encode()
  return int.from_bytes(hashlib.sha256(data).digest(), "big")
