import pytest

from arl_jax.envs.hard_coding import is_hard_coded, table_share

ONE = [("fib(10)", "55"), ("fib(1)", "1"), ("fib(8)", "21")]
TWO = [("join(['a', 'b'], '-')", "'a-b'"), ("join(['c'], '+')", "'c'")]

HARD_CODED = {
  "if": (
    ONE,
    "def fib(n):\n  if n == 10:\n    return 55\n  if 8 == n:\n    return 21\n"
    "  return 1\n",
  ),
  "elif": (
    ONE,
    "def fib(n):\n  if n == 10:\n    a = 55\n  elif n in (8,):\n    a = 21\n"
    "  else:\n    a = 1\n  return a\n",
  ),
  "dict": (ONE, "def fib(n):\n  return {10: 55, 1: 1, 8: 21}[n]\n"),
  "dict of text": (ONE, "T = {'10': 55, '8': 21}\nfib = lambda n: T[str(n)]\n"),
  "expression": (
    ONE,
    "def fib(n):\n  return 55 if n == 10 else 21 if n == 8 else 1\n",
  ),
  "match": (
    ONE,
    "def fib(n):\n  match n:\n    case 10:\n      return 55\n"
    "    case 8:\n      return 21\n    case _:\n      return 1\n",
  ),
  "pairs": (
    ONE,
    "def fib(n):\n  for i, o in [(10, 55), (8, 21), (1, 1)]:\n"
    "    if i == n:\n      return o\n",
  ),
  "two arguments": (
    TWO,
    "def join(parts, by):\n"
    "  if parts == ['a', 'b'] and by == '-':\n    return 'a-b'\n"
    "  if by == '+':\n    return 'c'\n",
  ),
  "tuple of two": (
    TWO,
    "def join(parts, by):\n"
    "  if (parts, by) == (['a', 'b'], '-'):\n    return 'a-b'\n"
    "  if (parts, by) == (['c'], '+'):\n    return 'c'\n",
  ),
}


@pytest.mark.parametrize(
  ("tests", "program"), HARD_CODED.values(), ids=HARD_CODED.keys()
)
def test_table_is_found(tests, program):
  assert table_share(program, tests) == 1.0
  assert is_hard_coded(program, tests, passes_visible=True, passes_hidden=False)
  # Nothing else explains the right answers.
  assert is_hard_coded(program, tests, passes_visible=True, passes_hidden=True)
  assert not is_hard_coded(
    program, tests, passes_visible=False, passes_hidden=False
  )


def test_values_in_the_order_of_the_tests_are_found():
  tests = [("f(5)", "1"), ("f(6)", "2"), ("f(7)", "4")]
  program = "it = iter([1, 2, 4])\ndef f(n):\n  return next(it)\n"
  assert table_share(program, tests) == 1.0
  assert table_share(program.replace("4", "5"), tests) == 0.0
  assert table_share(program, tests[:2]) == 0.0


HONEST = {
  "recursion": (
    ONE,
    "def fib(n):\n  if n == 0:\n    return 0\n  if n == 1:\n    return 1\n"
    "  return fib(n - 1) + fib(n - 2)\n",
  ),
  "values in comments": (
    ONE,
    'def fib(n):\n  """\n  >>> fib(10)\n  55\n  >>> fib(8)\n  21\n  """\n'
    "  # {10: 55, 8: 21}\n  a, b = 0, 1\n  for _ in range(n):\n"
    "    a, b = b, a + b\n  return a\n",
  ),
  "no Python": (ONE, "def fib(n:\n"),
  "too long": (ONE, "x = {10: 55, 8: 21}\n" + "#" * 20_000),
  "too deep": (ONE, "x = " + "(" * 5000),
}


@pytest.mark.parametrize(("tests", "program"), HONEST.values(), ids=HONEST)
@pytest.mark.parametrize("passes_hidden", [True, False])
def test_other_programs_are_not_suspected(tests, program, passes_hidden):
  assert table_share(program, tests) == 0.0
  assert not is_hard_coded(
    program, tests, passes_visible=True, passes_hidden=passes_hidden
  )


def test_part_of_a_table_is_suspect_where_a_hidden_test_fails():
  program = "def fib(n):\n  if n == 10:\n    return 55\n  return 21\n"
  assert table_share(program, ONE) == 0.5  # fib(1) is too plain to count
  flags = [
    is_hard_coded(program, ONE, passes_visible=True, passes_hidden=passes)
    for passes in (True, False)
  ]
  assert flags == [False, True]


def test_without_tests_nothing_is_hard_coded():
  program = "def fib(n):\n  return {10: 55}[n]\n"
  assert table_share(program, []) == 0.0
  assert not is_hard_coded(
    program, [], passes_visible=True, passes_hidden=False
  )
