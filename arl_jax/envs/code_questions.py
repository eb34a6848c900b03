"""Questions that take a program to answer: their kinds, their words, and back.

The numbers are large enough that nobody guesses an answer, and short enough to
be copied into a program.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import math
import re
import types

# The kinds of each level, from one expression to two programs.
KINDS: Mapping[int, tuple[str, ...]] = types.MappingProxyType(
  {
    1: ("expression",),
    2: ("story",),
    3: ("gcd", "total", "spread", "rank", "letters", "digits"),
    4: ("branch", "table"),
  }
)
LEVELS = tuple(KINDS)
EXPRESSIONS: Mapping[str, str] = types.MappingProxyType(
  {
    "mul": "{0} * {1}",
    "mul_add": "{0} * {1} + {2}",
    "mul_sub": "{0} * {1} - {2}",
    "add_mul": "({0} + {1}) * {2}",
    "sub_mul": "({0} - {1}) * {2}",
  }
)
# What a story says instead of plus and minus.
VERBS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
  {"add": ("buys", "finds", "gets"), "sub": ("loses", "sells", "burns")}
)
_BOXES_OF = (
  "{name} has {a} boxes of {b} {thing} and {verb} {c}.",
  "There are {b} {thing} in each of {name}'s {a} boxes. {name} {verb} {c}.",
)
_EACH_BOX = (
  "{name} has {a} boxes and {verb} {b}. Each box holds {c} {thing}.",
  "{name} has {a} boxes, each with {c} {thing}, and {verb} {b} boxes.",
)
_HOW_MANY = " How many {thing} does {name} have now?"
FORMS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
  {
    "expression": ("What is {e}?", "Compute {e}.", "Give the value of {e}."),
    "mul_add": tuple(form + _HOW_MANY for form in _BOXES_OF),
    "add_mul": tuple(form + _HOW_MANY for form in _EACH_BOX),
    "gcd": (
      "What is the greatest common divisor of {a} and {b}?",
      "Which is the greatest number that divides {a} and {b}?",
    ),
    "total": ("What is the sum of {list}?", "Add up {list}."),
    "spread": (
      "How far apart are the largest and the smallest of {list}?",
      "Take the smallest of {list} from the largest.",
    ),
    "rank": (
      "What is the second smallest of {list}, times {k}?",
      "Multiply the second smallest of {list} by {k}.",
    ),
    "letters": (
      "Each {letter} in {word} costs {k}. What do they cost together?",
      "How many times is {letter} in {word}? Multiply that by {k}.",
    ),
    "digits": (
      "What is the sum of the digits of {a}, times {k}?",
      "Multiply the sum of the digits of {a} by {k}.",
    ),
    "branch": (
      "Take {a} * {b}. If it is even, add {c}, if it is odd, times {d}.",
      "Find {a} * {b}. An even one plus {c}, an odd one times {d}.",
    ),
    "table": (
      "{rows}\nWhat is the sum for {name}, times {k}?",
      "{rows}\nAdd up what {name} has. Multiply that by {k}.",
    ),
  }
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Question:
  """What is asked, without the words that ask it.

  Attributes:
    kind: `expression` is a key of `EXPRESSIONS` written out; `story` is one
      told in words; `gcd`, `total`, `spread`, `rank`, `letters` and `digits`
      need a function; `branch` and `table` need what came out before.
    numbers: in the order in which they are told; a factor comes last.
    op: of an expression or a story, a key of `EXPRESSIONS`.
    words: of a story its name, thing and verb; of `letters` the letter and the
      word; of a table the name of each row, and the one that is asked about.
  """

  kind: str
  numbers: tuple[int, ...]
  op: str = ""
  words: tuple[str, ...] = ()

  @property
  def key(self) -> str:
    """Names what is to be computed, however it is told.

    A story has the key of its expression.
    """
    numbers = map(str, self.numbers)
    if self.op:
      return "|".join((self.op, *numbers))
    return "|".join((self.kind, *self.words, *numbers))


def answer_of(question: Question) -> str:
  """Solves a question."""
  numbers = question.numbers
  match question.kind:
    case "expression" | "story":
      value = _EVALUATE[question.op](*numbers)
    case "letters":
      letter, word = question.words
      value = word.count(letter) * numbers[-1]
    case "table":
      *names, asked = question.words
      rows = zip(names, numbers[:-1], strict=True)
      value = numbers[-1] * sum(n for name, n in rows if name == asked)
    case kind:
      value = _SOLVE[kind](numbers)
  return str(value)


def write_question(question: Question, *, form: int) -> str:
  """Words a question.

  Args:
    question: what is asked.
    form: which of the forms of its kind; counted round.
  """
  forms = _forms(question)
  return forms[form % len(forms)].format(**_values(question))


def read_question(text: str) -> Question:
  """Reads a question back that `write_question` worded.

  Raises:
    ValueError: no form fits.
  """
  for kind, pattern in _patterns():
    match = pattern.fullmatch(text)
    if match is not None:
      return _from_values(kind, match.groupdict())
  raise ValueError(f"{text!r} is no question of a known form")


def _forms(question: Question) -> tuple[str, ...]:
  if question.kind != "story":
    return FORMS[question.kind]
  return FORMS[question.op.replace("sub", "add")]


def _values(question: Question) -> dict[str, object]:
  """What stands in the place of each name in a form."""
  numbers, words = question.numbers, question.words
  values: dict[str, object] = dict(zip("abcd", numbers, strict=False))
  values["k"] = numbers[-1]
  values["list"] = list(numbers[:-1] if question.kind == "rank" else numbers)
  match question.kind:
    case "expression":
      values["e"] = EXPRESSIONS[question.op].format(*numbers)
    case "story":
      values |= zip(("name", "thing", "verb"), words, strict=True)
    case "letters":
      values |= zip(("letter", "word"), words, strict=True)
    case "table":
      rows = zip(words[:-1], numbers[:-1], strict=True)
      values["rows"] = "\n".join(f"{name} {number}" for name, number in rows)
      values["name"] = words[-1]
    case _:
      pass
  return values


def _from_values(kind: str, found: Mapping[str, str]) -> Question:
  if kind == "expression":
    return _read_expression(found["e"])
  numbers = _integers(found.get("rows", found.get("list", "")))
  numbers += tuple(int(found[n]) for n in "abcdk" if n in found)
  if kind in ("mul_add", "add_mul"):
    op = kind if found["verb"] in VERBS["add"] else kind.replace("add", "sub")
    words = (found["name"], found["thing"], found["verb"])
    return Question(kind="story", numbers=numbers, op=op, words=words)
  words = tuple(found[n] for n in ("letter", "word", "name") if n in found)
  if kind == "table":
    words = (*re.findall(r"[A-Z]\w+", found["rows"]), *words)
  return Question(kind=kind, numbers=numbers, words=words)


def _read_expression(text: str) -> Question:
  numbers = _integers(text)
  for op, form in EXPRESSIONS.items():
    if form.count("{") == len(numbers) and form.format(*numbers) == text:
      return Question(kind="expression", numbers=numbers, op=op)
  raise ValueError(f"{text!r} is no expression of a known form")


def _integers(text: str) -> tuple[int, ...]:
  return tuple(map(int, re.findall(r"\d+", text)))


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
  return tuple(_make_patterns())


def _make_patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
  parts = {
    "e": r"[\d ()*+-]+",
    "list": r"\[[\d, ]+\]",
    "rows": r"(?:[A-Z]\w+ \d+\n?)+",
    "verb": "|".join(word for verbs in VERBS.values() for word in verbs),
    **dict.fromkeys("abcdk", r"\d+"),
    **dict.fromkeys(("name", "thing", "letter", "word"), r"\w+"),
  }
  for kind, forms in FORMS.items():
    for form in forms:
      pieces, known = re.split(r"\{(\w+)\}", form), set[str]()
      pattern = ""
      for index, piece in enumerate(pieces):
        if index % 2 == 0:
          pattern += re.escape(piece)
        elif piece in known:
          pattern += f"(?P={piece})"
        else:
          pattern += f"(?P<{piece}>{parts[piece]})"
          known.add(piece)
      yield kind, re.compile(pattern)


_EVALUATE = {
  "mul": lambda a, b: a * b,
  "mul_add": lambda a, b, c: a * b + c,
  "mul_sub": lambda a, b, c: a * b - c,
  "add_mul": lambda a, b, c: (a + b) * c,
  "sub_mul": lambda a, b, c: (a - b) * c,
}


def _branch(numbers: Sequence[int]) -> int:
  a, b, c, d = numbers
  return a * b + c if a * b % 2 == 0 else a * b * d


_SOLVE = {
  "gcd": lambda numbers: math.gcd(*numbers),
  "total": sum,
  "spread": lambda numbers: max(numbers) - min(numbers),
  "rank": lambda numbers: sorted(numbers[:-1])[1] * numbers[-1],
  "digits": lambda numbers: sum(map(int, str(numbers[0]))) * numbers[1],
  "branch": _branch,
}
