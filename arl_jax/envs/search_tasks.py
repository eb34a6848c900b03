"""Question-answering tasks whose answers and evidence are in the corpus."""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import hashlib
import itertools
from typing import Any

from arl_jax.envs.search_facts import Atlas, Country
from arl_jax.envs.search_index import Index
from arl_jax.envs.search_questions import (
  ASKED,
  COMPARED,
  FORMS,
  Question,
  write_question,
)
from arl_jax.episode import Task

LEVELS = (1, 2, 3, 4)
SPLITS = ("train", "heldout", "warmup")
HELDOUT_SHARE = 0.3
# Of the questions about countries that are not held out.
WARMUP_SHARE = 0.3
# Quantities closer than this would ask for rounding, not for reading.
_MIN_RATIO = 1.1
_PAIRS_PER_QUESTION = 5
_MAX_NEIGHBOURS = 4
_ASKED_OF_NEIGHBOURS = ("capital", "internet_code", "highest_point")
_NEIGHBOURS_COMPARED = ("population", "area")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Solved:
  """A question with its answer.

  Attributes:
    question: what is asked.
    codes: of the countries that are named or asked about.
    read_codes: of further countries that have to be read.
    accepted: forms of the right answer.
    evidence: id of each passage that the answer follows from, and the words
      of it that matter.
  """

  question: Question
  codes: tuple[str, ...]
  read_codes: tuple[str, ...] = ()
  accepted: tuple[str, ...]
  evidence: tuple[tuple[str, str], ...]


def is_held_out(code: str) -> bool:
  """Whether a country is kept from training; the same in every corpus."""
  return _share("country", code) < HELDOUT_SHARE


def all_questions(atlas: Atlas, *, level: int) -> Iterator[Solved]:
  """Yields every question of a level.

  Level 1 looks a fact up, level 2 compares two countries, level 3 goes over
  the longest or shortest border of a country, and level 4 compares its two to
  four neighbours. Of all pairs to compare, a fifth is asked about.

  Raises:
    ValueError: there is no such level.
  """
  if level not in LEVELS:
    raise ValueError(f"level is {level!r}; expected one of {LEVELS}")
  make = (_lookups, _comparisons, _over_borders, _among_neighbours)[level - 1]
  return make(atlas)


def split_questions(
  atlas: Atlas, *, split: str, level: int
) -> tuple[Solved, ...]:
  """All questions of a level and a split, in a fixed order.

  A held-out country is not in any question to train or to warm up on, neither
  named nor asked about nor to be read. All countries that a held-out question
  names or asks about are held out; it may lead over others. No question is
  both to train and to warm up on.
  """
  if split not in SPLITS:
    raise ValueError(f"split is {split!r}; expected one of {SPLITS}")
  return tuple(
    solved
    for solved in all_questions(atlas, level=level)
    if _split_of(solved) == split
  )


class TaskSource:
  """Tasks of one corpus, by seed and split.

  Args:
    atlas: the countries of the corpus.
    levels: cycled through; one that comes twice comes twice as often.

  Raises:
    ValueError: a level is unknown, or there are none.
  """

  def __init__(self, atlas: Atlas, *, levels: Sequence[int] = LEVELS):
    unknown = set(levels) - set(LEVELS)
    if unknown or not levels:
      raise ValueError(f"levels is {tuple(levels)}; expected some of {LEVELS}")
    self._levels = tuple(levels)
    self._questions = functools.cache(
      lambda split, level: split_questions(atlas, split=split, level=level)
    )

  def tasks(
    self, num_tasks: int, *, seed: int, split: str, drill: bool = False
  ) -> list[Task]:
    """Draws tasks; the same arguments give the same tasks everywhere.

    Each level's questions come in the order of the seed, and again, worded
    differently, once all of them have come.

    Args:
      num_tasks: how many.
      seed: another one gives another order and other words.
      split: `train`, `heldout` or `warmup`.
      drill: whether levels 3 and 4, of those chosen, come twice as often.

    Raises:
      ValueError: the corpus has no question of a level and split.
    """
    levels = self._levels
    if drill:
      levels += tuple(level for level in levels if level >= 3)
    ordered = {
      level: self._ordered(level, seed=seed, split=split)
      for level in levels[:num_tasks]
    }
    counts = dict.fromkeys(levels, 0)
    found: list[Task] = []
    for index in range(num_tasks):
      level = levels[index % len(levels)]
      round_number, place = divmod(counts[level], len(ordered[level]))
      counts[level] += 1
      found.append(
        _task(
          ordered[level][place],
          round_number=round_number,
          level=level,
          seed=seed,
          split=split,
        )
      )
    return found

  def _ordered(self, level: int, *, seed: int, split: str) -> list[Solved]:
    questions = self._questions(split, level)
    if not questions:
      raise ValueError(
        f"the corpus has no question of level {level} in the split {split};"
        " take the level out, or use a corpus with more countries"
      )
    return sorted(
      questions, key=lambda one: _digest("order", seed, one.question.key)
    )


def check_evidence(task: Task, index: Index, *, top_k: int) -> None:
  """Checks that what a task needs is in the corpus, and can be found.

  Args:
    task: with evidence.
    index: of the corpus.
    top_k: passages that a search may return.

  Raises:
    ValueError: a passage is missing, lacks the words that matter, or is not
      among the results of a search for its title.
  """
  for name, quote in evidence_of(task):
    passage = index.get(name)
    if passage is None or quote not in passage.text:
      raise ValueError(
        f"task {task.task_id}: passage {name} does not say {quote!r}"
      )
    found = [one.passage_id for one in index.search(passage.title, top_k)]
    if name not in found:
      raise ValueError(
        f"task {task.task_id}: {passage.title!r} finds {found}, not {name}"
      )


def evidence_of(task: Task) -> tuple[tuple[str, str], ...]:
  """The evidence of a task: ids of passages, and words that matter.

  Raises:
    ValueError: the task has something else in its place.
  """
  found: Any = task.hidden.get("evidence", ())
  try:
    pairs = tuple((name, quote) for name, quote in found)
  except (TypeError, ValueError):
    pairs = ((None, None),)
  if not all(isinstance(one, str) for pair in pairs for one in pair):
    raise ValueError(
      f"hidden.evidence of task {task.task_id} is {found!r}; expected pairs of"
      " a passage's id and words of it"
    )
  return pairs


def accepted_of(task: Task) -> tuple[str, ...]:
  """The right answers of a task.

  Raises:
    ValueError: there are none.
  """
  found: Any = task.hidden.get("answers")
  if (
    not isinstance(found, list | tuple)
    or not found
    or not all(isinstance(one, str) and one.strip() for one in found)
  ):
    raise ValueError(
      f"hidden.answers of task {task.task_id} is {found!r}; expected texts,"
      " at least one"
    )
  return tuple(found)


def _task(
  solved: Solved, *, round_number: int, level: int, seed: int, split: str
) -> Task:
  question = solved.question
  first = _digest("form", seed, question.key)
  form = (first + round_number) % len(FORMS[question.kind])
  name = _digest("task", seed, f"{split}|{round_number}|{question.key}")
  return Task(
    task_id=f"search-{split}-{name % 16**12:012x}",
    prompt=write_question(question, form=form),
    seed=seed,
    level=level,
    hidden={
      "kind": question.kind,
      "answers": list(solved.accepted),
      "evidence": [list(pair) for pair in solved.evidence],
    },
  )


def _split_of(solved: Solved) -> str | None:
  named = [is_held_out(code) for code in solved.codes]
  if all(named):
    return "heldout"
  if any(named) or any(map(is_held_out, solved.read_codes)):
    return None
  key = solved.question.key
  return "warmup" if _share("question", key) < WARMUP_SHARE else "train"


def _lookups(atlas: Atlas) -> Iterator[Solved]:
  for country in atlas.countries.values():
    for ask in ASKED:
      if _answer(country, ask):
        yield Solved(
          question=Question(kind="lookup", names=(country.name,), ask=ask),
          codes=(country.code,),
          accepted=_answer(country, ask),
          evidence=(country.evidence(ask),),
        )


def _comparisons(atlas: Atlas) -> Iterator[Solved]:
  for one, other in itertools.combinations(atlas.countries.values(), 2):
    digest = _digest("pair", 0, f"{one.code}|{other.code}")
    # All pairs of 200 countries would be too many to be of use.
    flips, turn = divmod(digest, _PAIRS_PER_QUESTION)
    if turn:
      continue
    # Neither the first name nor the second is the answer more often.
    pair = (other, one) if flips % 2 else (one, other)
    for place, by in enumerate(COMPARED):
      most = bool(flips >> (place + 1) & 1)
      best = _extreme(pair, by, most=most)
      if best is not None:
        yield Solved(
          question=Question(
            kind="compare", names=tuple(c.name for c in pair), by=by, most=most
          ),
          codes=tuple(c.code for c in pair),
          accepted=best.accepted,
          evidence=tuple(c.evidence(by) for c in pair),
        )


def _over_borders(atlas: Atlas) -> Iterator[Solved]:
  for country in atlas.countries.values():
    borders = atlas.neighbours(country.code)
    for most in (True, False):
      ranked = sorted(borders, key=lambda pair: pair[1], reverse=most)
      if len(ranked) < 2 or not _differ(ranked[0][1], ranked[1][1]):
        continue
      target = atlas.countries.get(ranked[0][0] or "")
      if target is None:
        continue
      for ask in _ASKED_OF_NEIGHBOURS:
        if _answer(target, ask):
          yield Solved(
            question=Question(
              kind="border",
              names=(country.name,),
              ask=ask,
              by="borders",
              most=most,
            ),
            codes=(country.code, target.code),
            accepted=_answer(target, ask),
            evidence=(country.evidence("borders"), target.evidence(ask)),
          )


def _among_neighbours(atlas: Atlas) -> Iterator[Solved]:
  for country in atlas.countries.values():
    codes = [code for code, _ in atlas.neighbours(country.code)]
    around = [atlas.countries[code] for code in codes if code is not None]
    # One that is unknown might be the answer, one that is named twice is two
    # borders.
    if not 2 <= len(set(codes)) == len(codes) == len(around) <= _MAX_NEIGHBOURS:
      continue
    for by, most in itertools.product(_NEIGHBOURS_COMPARED, (True, False)):
      target = _extreme(around, by, most=most)
      if target is None:
        continue
      for ask in _ASKED_OF_NEIGHBOURS:
        if _answer(target, ask):
          yield Solved(
            question=Question(
              kind="neighbour",
              names=(country.name,),
              ask=ask,
              by=by,
              most=most,
            ),
            codes=(country.code, target.code),
            read_codes=tuple(c.code for c in around if c is not target),
            accepted=_answer(target, ask),
            evidence=(
              country.evidence("borders"),
              *(one.evidence(by) for one in around),
              target.evidence(ask),
            ),
          )


def _answer(country: Country, ask: str) -> tuple[str, ...]:
  fact = country.facts.get(ask)
  return () if fact is None else fact.accepted


def _extreme(
  countries: Sequence[Country], by: str, *, most: bool
) -> Country | None:
  """The country with the most of it or the least, None if it is in doubt."""
  numbers = [country.facts.get(by) for country in countries]
  values = [fact.number for fact in numbers if fact is not None]
  if len(values) < len(countries) or None in values:
    return None
  ranked = sorted(
    zip(values, countries, strict=True),
    key=lambda pair: pair[0] or 0.0,
    reverse=most,
  )
  if not _differ(ranked[0][0] or 0.0, ranked[1][0] or 0.0):
    return None
  return ranked[0][1]


def _differ(one: float, other: float) -> bool:
  small, large = sorted((one, other))
  return large > 0 and large >= small * _MIN_RATIO


def _digest(purpose: str, seed: int, text: str) -> int:
  """A number that is the same on every machine and Python."""
  data = f"search/{purpose}/{seed}/{text}".encode()
  return int.from_bytes(hashlib.sha256(data).digest(), "big")


def _share(purpose: str, text: str) -> float:
  return _digest(purpose, 0, text) / 2**256
