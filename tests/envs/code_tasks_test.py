"""Tests of questions that take a program, and of the tasks made of them."""

import collections
import re

import pytest

from arl_jax.envs import code_tasks
from arl_jax.envs.code_questions import (
  FORMS,
  KINDS,
  LEVELS,
  Question,
  answer_of,
  read_question,
  write_question,
)
from arl_jax.envs.code_tasks import SPLITS, generate_tasks, split_of


def question(kind, *numbers, op="", words=()):
  return Question(kind=kind, numbers=numbers, op=op, words=words)


@pytest.mark.parametrize(
  ("asked", "answer"),
  [
    (question("expression", 12, 11, op="mul"), 132),
    (question("expression", 3, 4, 5, op="add_mul"), 35),
    (question("story", 12, 11, 32, op="mul_sub", words=("A", "b", "c")), 100),
    (question("story", 9, 4, 5, op="sub_mul", words=("A", "b", "c")), 25),
    (question("gcd", 84, 36), 12),
    (question("total", 1, 2, 30, 4), 37),
    (question("spread", 5, 90, 17, 40), 85),
    (question("rank", 50, 90, 17, 40, 3), 120),
    (question("letters", 100, words=("a", "banana")), 300),
    (question("digits", 1029, 10), 120),
    (question("branch", 3, 4, 5, 6), 17),
    (question("branch", 3, 5, 4, 6), 90),
    (question("table", 1, 2, 4, 8, 10, words=("A", "B", "A", "C", "A")), 50),
  ],
)
def test_answers_are_those_worked_out_by_hand(asked, answer):
  assert answer_of(asked) == str(answer)


def test_every_form_of_every_kind_is_read_back():
  words = collections.defaultdict(set)
  for task in generate_tasks(400, seed=0, split="train"):
    first = read_question(task.prompt)
    for form in range(6):
      text = write_question(first, form=form)
      assert read_question(text) == first
      words[first.op if first.kind == "story" else first.kind].add(text)
  kinds = {kind for level in LEVELS for kind in KINDS[level]}
  assert kinds - set(words) == {"story"}
  assert set(words) >= set(FORMS)
  with pytest.raises(ValueError, match="no question"):
    read_question("What is the capital of France?")
  with pytest.raises(ValueError, match="no expression"):
    read_question("What is 1 - 2 - 3?")


def test_operations_follow_from_the_words():
  text = "Ana has 21 boxes of 30 pens and {} 105. How many pens does Ana have"
  for verb, answer in (("buys", 735), ("sells", 525)):
    asked = read_question(text.format(verb) + " now?")
    assert answer_of(asked) == str(answer)


@pytest.mark.parametrize("level", LEVELS)
def test_an_answer_can_neither_be_guessed_nor_copied(level):
  tasks = generate_tasks(600, seed=1, split="train", levels=(level,))
  by_kind = collections.defaultdict(list)
  for task in tasks:
    (answer,) = task.hidden["answers"]
    assert answer not in re.findall(r"\d+", task.prompt)
    by_kind[task.hidden["kind"]].append(answer)
  assert set(by_kind) == set(KINDS[level])
  for answers in [*by_kind.values(), sum(by_kind.values(), [])]:
    most_frequent = collections.Counter(answers).most_common(1)[0][1]
    # Of so many, a few are alike by chance.
    assert most_frequent - 3 < 0.05 * len(answers)


def test_no_question_is_in_two_splits_however_it_is_worded():
  keys = {
    split: {
      read_question(task.prompt).key
      for seed in range(3)
      for task in generate_tasks(400, seed=seed, split=split)
    }
    for split in SPLITS
  }
  assert all(len(found) > 400 for found in keys.values())
  for one in SPLITS:
    for other in SPLITS:
      assert one == other or not keys[one] & keys[other]
  # A story and its expression are one question.
  told = question("story", 41, 42, 143, op="mul_add", words=("A", "b", "buys"))
  bare = question("expression", 41, 42, 143, op="mul_add")
  assert split_of(told) == split_of(bare)


def test_every_split_has_its_share():
  tasks = [
    read_question(task.prompt)
    for split in SPLITS
    for task in generate_tasks(200, seed=5, split=split)
  ]
  assert {split_of(one) for one in tasks} == set(SPLITS)
  asked = [question("gcd", a, b) for a in range(100) for b in range(100)]
  counts = collections.Counter(map(split_of, asked))
  assert abs(counts["heldout"] / 10_000 - code_tasks.HELDOUT_SHARE) < 0.03
  assert abs(counts["warmup"] / 10_000 - code_tasks.WARMUP_SHARE) < 0.03


def test_tasks_follow_from_seed_and_split_alone():
  tasks = generate_tasks(40, seed=3, split="train")
  assert tasks == generate_tasks(40, seed=3, split="train")
  assert tasks != generate_tasks(40, seed=4, split="train")
  assert [task.level for task in tasks[:5]] == [1, 2, 3, 4, 1]
  assert len({task.task_id for task in tasks}) == 40
  drilled = generate_tasks(60, seed=3, split="train", drill=True)
  counts = collections.Counter(task.level for task in drilled)
  assert counts == {1: 10, 2: 10, 3: 20, 4: 20}


def test_misuse_is_explained():
  with pytest.raises(ValueError, match="split is 'test'"):
    generate_tasks(1, seed=0, split="test")
  for levels in ((), (0,), (1, 5)):
    with pytest.raises(ValueError, match="levels is"):
      generate_tasks(1, seed=0, split="train", levels=levels)
