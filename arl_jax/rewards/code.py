"""What an episode with a code interpreter is worth, from plain values.

`BINARY_WEIGHTS` and `COMPOSITE_WEIGHTS` are two ways to weigh the components.
The composite pays for programs that run, whatever they are for, so it can be
won without solving anything: see `docs/code.md`.
"""

import collections
from collections.abc import Iterable, Mapping
import fractions
import re
import types

from arl_jax.rewards.answers import exact_match

BINARY_WEIGHTS: Mapping[str, float] = types.MappingProxyType({"success": 1.0})
COMPOSITE_WEIGHTS: Mapping[str, float] = types.MappingProxyType(
  {
    "success": 1.0,
    "valid_code": 0.2,
    "clean_runs": 0.3,
    "format": 0.5,
    "turn_cost": 0.1,
  }
)

_NUMBER = re.compile(r"[+-]?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.[0-9]+)?")
# Longer numbers take long to read, and no question asks for one.
_MAX_DIGITS = 1000


def exact_answer(answer: str | None, accepted: Iterable[str]) -> float:
  """1 if the answer is an accepted one, else 0.

  Numbers are equal if their values are, so 1,200 and 1200.0 are 1200. Other
  texts are equal after the normalisation of `answers.normalize_answer`.

  Args:
    answer: what was answered, None for nothing.
    accepted: the right answer in all its forms.

  Example:
    >>> exact_answer("1,200.0", ["1200"]), exact_answer("-5", ["5"])
    (1.0, 0.0)
  """
  if answer is None:
    return 0.0
  value = _read_number(answer)
  texts: list[str] = []
  for one in accepted:
    wanted = _read_number(one)
    if wanted is None:
      texts.append(one)
    elif wanted == value:
      return 1.0
  # A number is no text: without its sign and point it would be another one.
  return exact_match(answer, texts)


def clean_runs(num_clean: int, num_programs: int) -> float:
  """Share of the programs that ran without an error; 0 if there are none."""
  return num_clean / num_programs if num_programs else 0.0


def format_penalty(answer: str | None, *, is_well_formed: bool) -> float:
  """-1 if there is no answer or an attempt was malformed, else 0."""
  return 0.0 if answer is not None and is_well_formed else -1.0


def turn_cost(num_turns: int, *, max_turns: int = 10) -> float:
  """Minus the number of turns, as a share of `max_turns`."""
  return 0.0 - num_turns / max_turns


def repeated_share(text: str, *, size: int = 4) -> float:
  """Share of the runs of `size` words that were there before, in [0, 1].

  Words are runs of letters and digits, or single other characters. What goes
  round in circles comes close to 1.

  Args:
    text: of one or more actions.
    size: words of a run.

  Example:
    >>> repeated_share("a b c a b c", size=2)
    0.4
  """
  words = re.findall(r"\w+|[^\w\s]", text)
  runs = collections.Counter(
    tuple(words[i : i + size]) for i in range(len(words) - size + 1)
  )
  num_runs = runs.total()
  return (num_runs - len(runs)) / num_runs if num_runs else 0.0


def repetition_penalty(text: str, *, size: int = 4) -> float:
  """Minus `repeated_share`."""
  return 0.0 - repeated_share(text, size=size)  # -0.0 would look odd


def _read_number(text: str) -> fractions.Fraction | None:
  text = text.strip()
  if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
    return None
  return fractions.Fraction(text.replace(",", ""))
