"""Calls functions of a program in a sandbox, and reads the answers as data.

The program shares its interpreter with the code that calls it, so it can do
anything there: end it, print what it likes, replace what `print`, `json` and
`assert` mean. It cannot grade itself, because nothing in that interpreter
knows what is right: all that leaves it is a line of JSON per call, and whoever
asked compares. To forge such a line, a program needs to know the right answer,
and then it could have returned it.
"""

from collections.abc import Sequence
import json
import math
from typing import Any

# Of floats; it allows for sums in another order.
_RELATIVE_TOLERANCE = 1e-9
# `@` stands for the token, so that no name of a program is taken.
_DRIVER = """

def _encode_@(value):
  if value is None or isinstance(value, (bool, int, float, str)):
    return value
  if isinstance(value, list):
    return [_encode_@(one) for one in value]
  if isinstance(value, tuple):
    return {"tuple": [_encode_@(one) for one in value]}
  if isinstance(value, (set, frozenset)):
    return {"set": [_encode_@(one) for one in value]}
  if isinstance(value, dict):
    pairs = value.items()
    return {"dict": [[_encode_@(k), _encode_@(v)] for k, v in pairs]}
  raise TypeError("the answer is no plain value")

_errors_@ = []

def _answer_@(number, call):
  import json
  try:
    line = json.dumps(_encode_@(call()))
  except BaseException as error:
    _errors_@.append(error)
  else:
    print("\\n@ " + str(number) + " " + line, flush=True)

"""
# So the status of the sandbox says whether it lacks what a program needs.
_RAISE = "if _errors_@:\n  raise _errors_@[0]\n"


def calling_program(program: str, calls: Sequence[str], *, token: str) -> str:
  """Returns a program that prints what each call answers.

  A call that fails, exits or answers no plain value prints nothing; the others
  go on, and the first failure is raised at the end.

  Args:
    program: defines what is called.
    calls: expressions.
    token: letters and digits that mark the lines; another one for each run.
  """
  lines = [
    f"_answer_{token}({number}, lambda: {call})\n"
    for number, call in enumerate(calls)
  ]
  return "".join(
    (
      program,
      _DRIVER.replace("@", token),
      *lines,
      _RAISE.replace("@", token),
    )
  )


def read_answers(stdout: str, *, token: str) -> dict[int, Any]:
  """Returns the answers by the number of their call; some may be missing.

  They are plain values, made here: no code of the program is in them.

  Args:
    stdout: what the program of `calling_program` printed.
    token: the same.
  """
  answers: dict[int, Any] = {}
  for line in stdout.splitlines():
    mark, _, rest = line.partition(" ")
    number, _, text = rest.partition(" ")
    if mark == token and number.isdecimal() and len(number) < 9:
      try:
        answers.setdefault(int(number), _decode(json.loads(text)))
      except (ValueError, TypeError, LookupError, RecursionError):
        continue  # a program printed this, not the driver
  return answers


def _decode(value: Any) -> Any:
  if isinstance(value, list):
    return [_decode(one) for one in value]
  if not isinstance(value, dict):
    return value
  ((kind, parts),) = value.items()
  if kind == "dict":
    return {_decode(key): _decode(one) for key, one in parts}
  make = {"tuple": tuple, "set": set}[kind]
  return make(_decode(one) for one in parts)


def is_same(found: Any, expected: Any) -> bool:
  """Whether plain values are equal, floats within a relative 1e-9.

  As in Python, 1 equals 1.0 and True, and a list no tuple.
  """
  if isinstance(found, float) or isinstance(expected, float):
    try:
      return found == expected or math.isclose(
        found, expected, rel_tol=_RELATIVE_TOLERANCE
      )
    except (TypeError, OverflowError):
      return False
  if isinstance(found, list | tuple) and type(found) is type(expected):
    return len(found) == len(expected) and all(map(is_same, found, expected))
  if isinstance(found, dict) and isinstance(expected, dict):
    return found.keys() == expected.keys() and all(
      is_same(found[key], expected[key]) for key in expected
    )
  return found == expected
