"""Mixes easy, middling and hard items in given shares."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import random
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
Difficulty = Literal["easy", "mid", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "mid", "hard")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mix(Generic[T]):
  """Items in the wanted shares, as far as there were enough.

  Attributes:
    items: in random order.
    counts: how many of each difficulty.
    missing: how many of each there were too few of; empty if none.
  """

  items: tuple[T, ...]
  counts: Mapping[Difficulty, int]
  missing: Mapping[Difficulty, int]


def mix_by_difficulty(
  items: Sequence[T],
  difficulty: Callable[[T], Difficulty],
  *,
  shares: tuple[float, float, float] = (0.3, 0.5, 0.2),
  number: int | None = None,
  seed: int = 0,
) -> Mix[T]:
  """Draws items so that easy, middling and hard ones have given shares.

  What is missing of one difficulty is not made up for by another.

  Args:
    items: to draw from, each at most once.
    difficulty: of an item; see `rate_difficulty` and `level_difficulty`.
    shares: of easy, mid and hard; they sum to 1.
    number: of items wanted; None takes as many as the shares allow.
    seed: fixes the draw.

  Raises:
    ValueError: the shares or the number are out of range.
  """
  if min(shares) < 0 or abs(sum(shares) - 1.0) > 1e-6:
    raise ValueError(f"shares is {shares}; expected three that sum to 1")
  if number is not None and number < 0:
    raise ValueError(f"number is {number}; expected 0 or more")
  pools: dict[Difficulty, list[T]] = {name: [] for name in DIFFICULTIES}
  for item in items:
    pools[difficulty(item)].append(item)
  if number is None:
    number = len(items)
    while number and any(
      wanted > len(pools[name])
      for name, wanted in _split(number, shares).items()
    ):
      number -= 1
  rng = random.Random(f"mix/{seed}")
  chosen: list[T] = []
  counts: dict[Difficulty, int] = {}
  missing: dict[Difficulty, int] = {}
  for name, wanted in _split(number, shares).items():
    counts[name] = min(wanted, len(pools[name]))
    if wanted > counts[name]:
      missing[name] = wanted - counts[name]
    chosen += rng.sample(pools[name], counts[name])
  rng.shuffle(chosen)
  return Mix(items=tuple(chosen), counts=counts, missing=missing)


def rate_difficulty(
  success_rate: float, *, easy_from: float = 2 / 3, hard_below: float = 1 / 3
) -> Difficulty:
  """The difficulty of what a reference policy solves at this rate.

  Args:
    success_rate: from 0 to 1.
    easy_from: the lowest rate of an easy item.
    hard_below: rates below it are of hard items.
  """
  if not 0.0 <= success_rate <= 1.0:
    raise ValueError(f"success_rate is {success_rate}; expected 0 to 1")
  if success_rate >= easy_from:
    return "easy"
  return "hard" if success_rate < hard_below else "mid"


def level_difficulty(level: int, levels: Sequence[int]) -> Difficulty:
  """The difficulty of a level: the lowest is easy, the highest is hard.

  Args:
    level: one of `levels`.
    levels: all that there are; of a single one, it is mid.
  """
  ordered = sorted(set(levels))
  if level not in ordered:
    raise ValueError(f"level is {level}; expected one of {ordered}")
  if len(ordered) == 1 or level not in (ordered[0], ordered[-1]):
    return "mid"
  return "easy" if level == ordered[0] else "hard"


def _split(
  number: int, shares: tuple[float, float, float]
) -> dict[Difficulty, int]:
  """Whole numbers in the given shares that sum to `number`."""
  exact = [number * share for share in shares]
  whole = [int(value) for value in exact]
  order = sorted(range(3), key=lambda index: whole[index] - exact[index])
  for index in order[: number - sum(whole)]:
    whole[index] += 1
  return dict(zip(DIFFICULTIES, whole, strict=True))
