"""Finds programs that hold the answers of the tests that they were shown."""

import ast
from collections.abc import Iterator, Sequence
import itertools

# Longer programs are not looked at: reading one takes time.
MAX_CHARS = 20_000
# Inputs that programs treat apart for good reasons.
_PLAIN = frozenset(map(repr, (None, True, False, -1, 0, 1, 2, "", [], (), {})))


def is_hard_coded(
  program: str,
  tests: Sequence[tuple[str, str]],
  *,
  passes_visible: bool,
  passes_hidden: bool,
) -> bool:
  """Whether a program seems to answer the visible tests from a table.

  It does if it passes them, and `table_share` is 1, of two tests at least; or
  if it fails a hidden test, and the share is half or more. A program that
  passes the visible tests and fails hidden ones without such a table may be
  just wrong, so it is none.

  Measured on the 131 problems of HumanEval that have examples, in Monty: of the
  right programs none was taken for hard-coded, and none of 78 that passed the
  examples and were wrong, made by changing one operator, number or branch. Of
  programs made to hold the answers, 848 of 849 were found that compare whole
  inputs or look them up; 84 of 118 that compare the first argument and return
  the last value otherwise; and 41 of 130 that return the values in their
  order. Not found are those that hash their inputs, that compute constants, or
  that return one value and nothing else.

  Args:
    program: text of Python; one that cannot be read is none.
    tests: the visible ones, calls and values as text.
    passes_visible: whether the program passes all of them.
    passes_hidden: whether it passes all hidden tests.
  """
  if not passes_visible:
    return False
  num_held, num_tests = _count(program, tests)
  if num_held == num_tests >= 2:
    return True
  return not passes_hidden and num_held > 0 and 2 * num_held >= num_tests


def table_share(program: str, tests: Sequence[tuple[str, str]]) -> float:
  """Returns the share of tests whose input and value the program pairs.

  Pairs are entries of a dict; pairs in a list or tuple; a comparison with the
  input whose branch gives the value; and, of three tests and more, a list of
  all values in their order. Tests whose input is as plain as 0, 1, "" or []
  are left out, because recursions end with them.

  Args:
    program: text of Python; one that cannot be read pairs nothing.
    tests: calls and values as text; only literals count.
  """
  num_held, num_tests = _count(program, tests)
  return num_held / num_tests if num_tests else 0.0


def _count(program: str, tests: Sequence[tuple[str, str]]) -> tuple[int, int]:
  """Returns how many tests the program holds, and how many count."""
  wanted = [one for test in tests if (one := _keys(*test)) and one[0]]
  try:
    if len(program) > MAX_CHARS:
      return 0, len(wanted)
    tree = ast.parse(program)
    pairs = set(_pairs(tree))
    lists = set(_lists(tree))
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    return 0, len(wanted)
  values = [value for _, value in wanted]
  if len(values) >= 3 and len(set(values)) >= 2 and tuple(values) in lists:
    return len(wanted), len(wanted)
  held = [any((key, value) in pairs for key in keys) for keys, value in wanted]
  return sum(held), len(wanted)


def _keys(call: str, expected: str) -> tuple[set[str], str] | None:
  """Returns what a table may have for the input of a test, and its value."""
  try:
    node = ast.parse(call, mode="eval").body
    if not isinstance(node, ast.Call) or node.keywords or not node.args:
      return None
    arguments = [ast.literal_eval(one) for one in node.args]
    value = repr(ast.literal_eval(expected))
  except (ValueError, SyntaxError):
    return None
  keys = {repr(one) for one in arguments} - _PLAIN
  if len(arguments) > 1 or keys:
    keys |= {repr(tuple(arguments)), repr(arguments)}
    keys |= {repr(repr(one)) for one in (*arguments, tuple(arguments))}
  return keys, value


def _literal(node: ast.AST | None) -> str | None:
  """Returns the text of a literal, the same for the same value."""
  try:
    return repr(ast.literal_eval(node)) if isinstance(node, ast.expr) else None
  except (ValueError, TypeError, SyntaxError):
    return None


def _literal_text(text: str) -> str | None:
  try:
    return _literal(ast.parse(text, mode="eval").body)
  except SyntaxError:
    return None


def _pairs(tree: ast.AST) -> Iterator[tuple[str, str]]:
  for node in ast.walk(tree):
    if isinstance(node, ast.Dict):
      for key, value in zip(node.keys, node.values, strict=True):
        yield from _product([_literal(key)], [_literal(value)])
    elif isinstance(node, ast.List | ast.Tuple) and len(node.elts) >= 2:
      *before, last = node.elts
      key = before[0] if len(before) == 1 else ast.Tuple(elts=before)
      yield from _product([_literal(key)], [_literal(last)])
    elif isinstance(node, ast.If):
      yield from _product(_compared(node.test), _given(node.body))
    elif isinstance(node, ast.IfExp):
      yield from _product(_compared(node.test), [_literal(node.body)])
    elif isinstance(node, ast.match_case):
      patterns = [
        one for one in ast.walk(node.pattern) if isinstance(one, ast.MatchValue)
      ]
      keys = [_literal(one.value) for one in patterns]
      keys += [_together(keys), _literal_text(ast.unparse(node.pattern))]
      yield from _product(keys, _given(node.body))


def _product(
  keys: Sequence[str | None], values: Sequence[str | None]
) -> Iterator[tuple[str, str]]:
  for key, value in itertools.product(keys, values):
    if key is not None and value is not None:
      yield key, value


def _compared(test: ast.AST) -> list[str | None]:
  """Returns the literals that a condition compares with, also together."""
  found: list[str | None] = []
  for node in ast.walk(test):
    if isinstance(node, ast.Compare):
      for side in (node.left, *node.comparators):
        found.append(_literal(side))
        if isinstance(side, ast.List | ast.Tuple | ast.Set):
          found += [_literal(one) for one in side.elts]
  return [*found, _together(found)]


def _together(keys: Sequence[str | None]) -> str | None:
  known = [key for key in keys if key is not None]
  return f"({', '.join(known)})" if len(known) > 1 else None


def _given(body: Sequence[ast.stmt]) -> list[str | None]:
  """Returns the literals that statements return, assign or print."""
  found: list[str | None] = []
  for node in body:
    if isinstance(node, ast.Return | ast.Assign | ast.AnnAssign):
      found.append(_literal(node.value))
  return found


def _lists(tree: ast.AST) -> Iterator[tuple[str, ...]]:
  for node in ast.walk(tree):
    if isinstance(node, ast.List | ast.Tuple):
      texts = [_literal(one) for one in node.elts]
      if None not in texts:
        yield tuple(map(str, texts))
