"""How often each engine finds the evidence of a question.

    python experiments/search/search_recall.py --vectors /tmp/vectors.npz

The questions are of level 1, about held-out countries: once as the environment
asks them, and once with the field in other words. There is one wording for each
of four fields, which is a trial, not a benchmark. The question is the query.
The corpus is what the questions need, filled up with other passages of the
factbook. Encoding 2,000 passages takes half a minute or more; the vectors are
kept in a file, where one is named. One table row per line of JSON.
"""

import argparse
from collections.abc import Sequence
import json
import random
import time

import numpy as np

from arl_jax.envs.search_facts import read_atlas
from arl_jax.envs.search_index import Index, Passage
from arl_jax.envs.search_tasks import TaskSource, evidence_of
from arl_jax.episode import Task
from arl_jax.run.search_suite import (
  FACTBOOK,
  SearchSettings,
  load_corpus,
  open_index,
)

_REWORDED = {
  "capital": "seat of government",
  "internet country code": "top-level domain",
  "highest point": "tallest mountain",
  "population": "number of inhabitants",
}


def choose_passages(
  passages: Sequence[Passage], tasks: Sequence[Task], *, number: int
) -> list[Passage]:
  """What the tasks need, and others up to `number` passages."""
  needed = {name for task in tasks for name, _ in evidence_of(task)}
  chosen = [one for one in passages if one.passage_id in needed]
  others = [one for one in passages if one.passage_id not in needed]
  random.Random(0).shuffle(others)
  return chosen + others[: number - len(chosen)]


def reword(question: str) -> str:
  """Asks for the same in other words."""
  for usual, other in _REWORDED.items():
    question = question.replace(usual, other)
  return question


def measure(
  index: Index, queries: Sequence[str], tasks: Sequence[Task], *, top_k: int
) -> dict[str, float]:
  """Recall of the evidence, and how long one search takes."""
  # Whatever is compiled or opened, once, is not timed.
  for query in queries:
    index.search(query, top_k)
  found, seconds = [], []
  for query, task in zip(queries, tasks, strict=True):
    begin = time.perf_counter()
    names = {one.passage_id for one in index.search(query, top_k)}
    seconds.append(time.perf_counter() - begin)
    found.append(np.mean([name in names for name, _ in evidence_of(task)]))
  return {
    "recall": round(float(np.mean(found)), 3),
    "median_ms": round(1000 * float(np.median(seconds)), 2),
    "per_second": round(len(seconds) / sum(seconds), 1),
  }


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--questions", type=int, default=100)
  parser.add_argument("--passages", type=int, default=2000)
  parser.add_argument("--top_k", type=int, default=3)
  parser.add_argument(
    "--engines", nargs="+", default=["fts5", "tantivy", "dense"]
  )
  parser.add_argument("--vectors", default="", help="file of dense's vectors")
  args = parser.parse_args()
  everything = load_corpus(FACTBOOK)
  source = TaskSource(read_atlas(everything), levels=(1,))
  tasks = source.tasks(args.questions, seed=0, split="heldout")
  passages = choose_passages(everything, tasks, number=args.passages)
  asked = [task.prompt for task in tasks]
  for engine in args.engines:
    begin = time.perf_counter()
    index = open_index(
      passages,
      SearchSettings(
        engine=engine, index_file=args.vectors if engine == "dense" else ""
      ),
    )
    row: dict[str, object] = {
      "engine": engine,
      "passages": len(passages),
      "questions": len(tasks),
      "index_seconds": round(time.perf_counter() - begin, 1),
    }
    for name, queries in (
      ("as_asked", asked),
      ("reworded", [reword(one) for one in asked]),
    ):
      row[name] = measure(index, queries, tasks, top_k=args.top_k)
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
  main()
