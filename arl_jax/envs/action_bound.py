"""How much of one action is answered, whatever a policy writes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

A = TypeVar("A", bound=Any)


def bound_attempts(
  attempts: Sequence[A], *, most: int, refuse: Callable[[int], A]
) -> list[A]:
  """Keeps what an action may have, and one mistake for all the rest.

  Args:
    attempts: calls, mistakes and answers, each with its `start` in the action
      and an `answer`, which is None if it is none.
    most: calls and mistakes that are kept, the first ones. Of answers one is.
    refuse: makes a mistake from a place in the action.

  Returns:
    What is left, in the order of the action.
  """
  ordered = sorted(attempts, key=lambda each: each.start)
  answers = [each for each in ordered if each.answer is not None]
  tried = [each for each in ordered if each.answer is None]
  kept = [*tried[:most], *answers[:1]]
  if len(tried) > most:
    kept.append(refuse(tried[most].start))
  return sorted(kept, key=lambda each: each.start)
