"""Paths of searches and openings, and the questions that they answer."""

import random

from arl_jax.envs import search_facts, search_tags
from arl_jax.envs.search_environment import SearchStyle, read_information
from arl_jax.envs.search_facts import FIELDS, Atlas, Fact
from arl_jax.envs.search_questions import ASKED, COMPARED, Question
from arl_jax.envs.search_tasks import Solved, split_questions
from arl_jax.envs.search_tools import SearchDesk, read_hits
from arl_jax.episode import Task, ToolCall
from arl_jax.synthesis.path_tasks import Run
from arl_jax.synthesis.search_experts import write_call
from arl_jax.synthesis.search_goals import question_task
from arl_jax.synthesis.signature_graph import SignatureGraph, signature_of

GOAL = search_tags.OPEN
_DRAFT = Task(
  task_id="draft", prompt="?", hidden={"answers": ["?"], "evidence": []}
)
_BORDERS = "borders"


def search_graph() -> SignatureGraph:
  """The tools: what is found can be opened, and names countries to look for."""
  tools = SearchDesk(_NoIndex(), inline=True).tools
  return SignatureGraph(
    (
      signature_of(
        tools[search_tags.SEARCH],
        returns=("passage",),
        kinds={"query": "country"},
      ),
      signature_of(
        tools[search_tags.OPEN], returns=("country",), kinds={"id": "passage"}
      ),
    ),
    given=("country",),
  )


class SearchPaths:
  """Runs paths over a corpus of facts about countries.

  One search with its opening looks a fact up. A second one is about a country
  that the first passage names as a neighbour, or about another of the same
  quantity.

  Args:
    atlas: the countries of the corpus.
    style: how calls are written.
  """

  def __init__(self, atlas: Atlas, *, style: SearchStyle):
    self.graph = search_graph()
    self._style: SearchStyle = style
    self._solved: dict[str, tuple[int, Solved]] = {
      solved.question.key: (level, solved)
      for level in (1, 2, 3)
      for solved in split_questions(atlas, split="warmup", level=level)
    }
    codes = sorted(
      {code for _, solved in self._solved.values() for code in solved.codes}
    )
    self._names = [atlas.countries[code].name for code in codes]

  def draft(self, rng: random.Random) -> Task:
    """There is one world, the corpus."""
    del rng
    return _DRAFT

  def call(self, run: Run) -> str | None:
    """Writes the next call: a search for a fact, or what it found."""
    name = run.path[len(run.actions)]
    if name == search_tags.OPEN:
      value = _listed(run)
    else:
      value = self._query(run)
    if value is None:
      return None
    argument = "id" if name == search_tags.OPEN else "query"
    call = ToolCall(name=name, arguments={argument: value})
    return write_call(call, style=self._style)

  def goal(self, run: Run) -> tuple[Task, str] | None:
    """The question that was looked into, if it is one to train on."""
    looked = run.values["looked"]
    facts = [
      search_facts.read_fact(field, text)
      for (_, field), text in zip(looked, _opened(run), strict=False)
    ]
    if len(facts) != len(looked) or not 1 <= len(facts) <= 2:
      return None
    (name, field), last = looked[0], facts[-1]
    if len(looked) == 1:
      question = Question(kind="lookup", names=(name,), ask=field)
      answer = last.accepted[0] if last and last.accepted else None
    elif field == _BORDERS:
      question = Question(
        kind="border",
        names=(name,),
        ask=looked[1][1],
        by=_BORDERS,
        most=run.values["most"],
      )
      answer = last.accepted[0] if last and last.accepted else None
    else:
      question = Question(
        kind="compare",
        names=(name, looked[1][0]),
        by=field,
        most=run.values["most"],
      )
      answer = _extreme(question, facts)
    known = self._solved.get(question.key)
    if answer is None or known is None:
      return None
    task = question_task(known[1], level=known[0], purpose="graph")
    return task, search_tags.write_tag(search_tags.ANSWER, answer)

  def _query(self, run: Run) -> str | None:
    """Chooses a country and a field, and remembers them."""
    looked = run.values.setdefault("looked", [])
    is_last = search_tags.SEARCH not in run.path[len(run.actions) + 1 :]
    if looked:
      chosen = self._second(run, *looked[-1])
    else:
      chosen = self._first(run, is_last=is_last)
    if chosen is None:
      return None
    looked.append(chosen)
    return f"{chosen[0]} {FIELDS[chosen[1]].title}"

  def _first(self, run: Run, *, is_last: bool) -> tuple[str, str]:
    """A country of the split, with what the rest of the path needs of it."""
    rng = run.rng
    run.values["most"] = rng.random() < 0.5
    if is_last:
      return rng.choice(self._names), rng.choice(tuple(ASKED))
    if rng.random() < 0.5:
      return rng.choice(self._names), _BORDERS
    questions = [
      solved.question for level, solved in self._solved.values() if level == 2
    ]
    question = rng.choice(questions)
    run.values["most"], run.values["other"] = question.most, question.names[1]
    return question.names[0], question.by

  def _second(self, run: Run, name: str, field: str) -> tuple[str, str] | None:
    if field in COMPARED:
      other = run.values.get("other")
      return None if other is None else (other, field)
    opened = _opened(run)
    if field != _BORDERS or not opened:
      return None
    fact = search_facts.read_fact(field, opened[-1])
    if fact is None:
      return None
    choose = max if run.values["most"] else min
    neighbour = choose(fact.borders, key=lambda pair: pair[1])[0]
    asked = [key for key in ASKED if key != "population"]
    return neighbour, run.rng.choice(asked)


class _NoIndex:
  """An index for tools of which only the schemas are read."""

  def search(self, query: str, top_k: int) -> list:
    return []

  def get(self, passage_id: str) -> None:
    return None


def _listed(run: Run) -> str | None:
  """The id of the passage that the last search was for."""
  if not run.answers:
    return None
  name, field = run.values["looked"][-1]
  hits = read_hits(read_information(run.answers[-1]))
  title = f"{name}: {FIELDS[field].title}"
  return next((hit.passage_id for hit in hits if hit.title == title), None)


def _opened(run: Run) -> list[str]:
  """The texts of the passages that were opened, without their titles."""
  pairs = zip(run.path, run.answers, strict=False)
  return [
    read_information(answer).partition("\n")[2]
    for name, answer in pairs
    if name == search_tags.OPEN
  ]


def _extreme(question: Question, facts: list[Fact | None]) -> str | None:
  """The name of the country with the most or the least of what was read."""
  numbers = [fact.number for fact in facts if fact is not None]
  values = [number for number in numbers if number is not None]
  if len(values) < 2:
    return None
  best = (max if question.most else min)(values)
  return question.names[values.index(best)]
