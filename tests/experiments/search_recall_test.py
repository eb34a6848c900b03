"""Tests of the measurement of recall."""

import importlib
import pathlib
from types import ModuleType

import pytest

from arl_jax.envs.search_index import Passage
from arl_jax.episode import Task

FOLDER = pathlib.Path(__file__).parents[2] / "experiments" / "search"
PASSAGES = [
  Passage(passage_id=f"p{n}", title=f"title {n}", text="text")
  for n in range(20)
]
TASKS = [
  Task(
    task_id=f"t{n}",
    prompt=f"What is the capital of {n}?",
    hidden={"answers": ["text"], "evidence": [[f"p{n}", "text"]]},
  )
  for n in (7, 11, 15, 19)
]


@pytest.fixture
def recall(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
  monkeypatch.syspath_prepend(str(FOLDER))
  return importlib.import_module("search_recall")


class _FirstThree:
  """Finds the same whatever is asked."""

  def search(self, query: str, top_k: int) -> list[Passage]:
    return [PASSAGES[11], PASSAGES[1], PASSAGES[2]][:top_k]

  def get(self, passage_id: str) -> Passage | None:
    return None


def test_the_corpus_has_what_is_asked_for(recall: ModuleType):
  chosen = recall.choose_passages(PASSAGES, TASKS, number=6)
  assert len({one.passage_id for one in chosen}) == 6
  assert {"p7", "p11", "p15", "p19"} <= {one.passage_id for one in chosen}
  assert chosen == recall.choose_passages(PASSAGES, TASKS, number=6)


def test_recall_is_the_share_of_evidence_that_was_found(recall: ModuleType):
  queries = [task.prompt for task in TASKS]
  row = recall.measure(_FirstThree(), queries, TASKS, top_k=3)
  assert row["recall"] == 0.25
  assert row["per_second"] > 0


def test_a_reworded_question_has_other_words(recall: ModuleType):
  assert (
    recall.reword(TASKS[0].prompt) == "What is the seat of government of 7?"
  )
