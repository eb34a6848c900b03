"""Tests of wording questions and reading them back."""

import pytest

from arl_jax.envs.search_questions import (
  FORMS,
  Question,
  read_question,
  write_question,
)
from arl_jax.envs.search_tasks import LEVELS, all_questions
from tests.envs import tiny_world


@pytest.mark.parametrize("level", LEVELS)
def test_every_form_is_read_back(level):
  for solved in all_questions(tiny_world.atlas(), level=level):
    question = solved.question
    texts = {
      write_question(question, form=form)
      for form in range(len(FORMS[question.kind]))
    }
    assert len(texts) == len(FORMS[question.kind]) >= 3
    assert {read_question(text) for text in texts} == {question}


@pytest.mark.parametrize(
  "names",
  [
    ("Trinidad and Tobago", "Antigua and Barbuda"),
    ("The Gambia", "Côte d'Ivoire"),
    ("Guinea-Bissau", "United Arab Emirates"),
  ],
)
def test_names_with_more_words_are_read_back(names):
  for form in range(3):
    compare = Question(kind="compare", names=names, by="area", most=False)
    assert read_question(write_question(compare, form=form)) == compare
    border = Question(
      kind="border", names=names[:1], ask="capital", by="borders"
    )
    assert read_question(write_question(border, form=form)) == border


def test_forms_are_counted_round():
  question = Question(kind="lookup", names=("Mali",), ask="capital")
  assert write_question(question, form=0) == "What is the capital of Mali?"
  assert write_question(question, form=4) == write_question(question, form=0)


def test_a_question_of_no_known_form_is_refused():
  with pytest.raises(ValueError, match="no question of a known form"):
    read_question("Who are you?")
