"""Scripts that answer questions about countries by searching, careful or not.

A policy warm-started on the mix answers often enough for reinforcement to have
something to reward, and badly enough for a better strategy to be found.
"""

from collections.abc import Callable, Generator, Sequence
import dataclasses
import random

from arl_jax.envs import search_facts, search_tags
from arl_jax.envs.inline import run_inline
from arl_jax.envs.search_environment import (
  SearchEnv,
  SearchStyle,
  read_information,
)
from arl_jax.envs.search_facts import FIELDS, Fact
from arl_jax.envs.search_questions import Question, read_question
from arl_jax.envs.search_tools import Hit, read_hits
from arl_jax.episode import Message, Task, ToolCall
from arl_jax.text import tool_calls

# Said on giving up.
UNKNOWN_ANSWER = "unknown"
_MAX_TURNS = 40
_COUNTRY_NAME = "Country name"
_WRITTEN_OUT = {
  "US": "United States",
  "UK": "United Kingdom",
  "UAE": "United Arab Emirates",
}

# Yields calls, is sent what they found, and returns what it was after.
_Steps = Generator[ToolCall, str, Fact | None]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Habits:
  """What an expert takes care of.

  Attributes:
    names_field: looks for a fact of a country, not for the country alone.
    checks_titles: takes the result that is about the right country, not the
      first one.
    opens: opens a passage whose text was cut.
    compares: reads about every country that is to be compared, instead of
      taking the first.
  """

  names_field: bool = True
  checks_titles: bool = True
  opens: bool = True
  compares: bool = True


CAREFUL = Habits()
CARELESS_SLOTS: tuple[Habits, ...] = (
  Habits(names_field=False),
  Habits(opens=False),
  Habits(compares=False),
  Habits(names_field=False, checks_titles=False, compares=False),
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SearchExpertMix:
  """How often each expert is drawn.

  Attributes:
    careful: share of episodes of the careful expert, in [0, 1].
    careless_slots: habits that share the rest evenly.
  """

  careful: float = 0.25
  careless_slots: Sequence[Habits] = CARELESS_SLOTS

  def __post_init__(self) -> None:
    if not 0.0 <= self.careful <= 1.0:
      raise ValueError(f"careful is {self.careful}; expected 0 to 1")
    if self.careful < 1.0 and not self.careless_slots:
      raise ValueError(
        f"careless_slots is empty while careful is {self.careful}; give slots"
        " or set careful to 1"
      )

  def draw(self, *, seed: int, index: int) -> Habits:
    """The expert of episode `index` of a run with this seed."""
    rng = random.Random(f"search-expert/{seed}/{index}")
    if rng.random() < self.careful:
      return CAREFUL
    return rng.choice(self.careless_slots)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SearchEpisode:
  """A scripted episode.

  Attributes:
    task: what was asked.
    habits: of the expert.
    turns: for each action, the messages since the action before, and the
      action's text.
    success: what the environment judged.
  """

  task: Task
  habits: Habits
  turns: tuple[tuple[tuple[Message, ...], str], ...]
  success: bool


def expert_script(
  prompt: str, *, habits: Habits = CAREFUL
) -> Generator[ToolCall, str, str]:
  """Yields calls, is sent what each found, and returns the answer.

  It knows the prompt and what was found only.

  Args:
    prompt: the question, in one of the forms of `search_questions`.
    habits: of the expert.
  """
  question = read_question(prompt)
  if question.kind == "compare":
    best = yield from _best_of(question.names, question, habits)
    return best or UNKNOWN_ANSWER
  name: str | None = question.names[0]
  if question.kind != "lookup":
    name = yield from _neighbour(question, habits)
  if name is None:
    return UNKNOWN_ANSWER
  fact = yield from _look_up(name, question.ask, habits)
  return fact.accepted[0] if fact and fact.accepted else UNKNOWN_ANSWER


async def play_expert(
  environment: SearchEnv,
  task: Task,
  *,
  habits: Habits = CAREFUL,
  style: SearchStyle = "tags",
) -> SearchEpisode:
  """Plays one scripted episode in the real environment."""
  messages = await environment.reset(task, seed=0)
  script = expert_script(task.prompt, habits=habits)
  turns: list[tuple[tuple[Message, ...], str]] = []
  found: str | None = None
  for _ in range(_MAX_TURNS):
    try:
      call = next(script) if found is None else script.send(found)
      action = write_call(call, style=style)
    except StopIteration as end:
      action = search_tags.write_tag(search_tags.ANSWER, end.value)
    turns.append((messages, action))
    result = await environment.step(action)
    if result.terminated:
      break
    messages = result.observations
    found = read_information(messages[-1].content)
  scores = await environment.score()
  return SearchEpisode(
    task=task,
    habits=habits,
    turns=tuple(turns),
    success=scores["success"] == 1.0,
  )


def expert_transcripts(
  tasks: Sequence[Task],
  *,
  make_environment: Callable[[], SearchEnv],
  mix: SearchExpertMix | None = None,
  seed: int = 0,
  style: SearchStyle = "tags",
) -> list[SearchEpisode]:
  """Plays one drawn expert per task through the real environment.

  Args:
    tasks: what to play, with the prompts of `search_tasks`.
    make_environment: makes the environment, inline and of the same style.
    mix: how often each expert is drawn; the default mix if None.
    seed: fixes the draws.
    style: how calls are written.

  Returns:
    One episode per task, failed ones included.
  """
  mix = mix or SearchExpertMix()
  return [
    run_inline(
      play_expert(
        make_environment(),
        task,
        habits=mix.draw(seed=seed, index=index),
        style=style,
      )
    )
    for index, task in enumerate(tasks)
  ]


def write_call(call: ToolCall, *, style: SearchStyle) -> str:
  """Writes a call of `search` or `open`."""
  if style == "hermes":
    return tool_calls.render_tool_call(call, style="hermes")
  (argument,) = call.arguments.values()
  return search_tags.write_tag(call.name, argument)


def _neighbour(
  question: Question, habits: Habits
) -> Generator[ToolCall, str, str | None]:
  """The name of the neighbour that a question means."""
  fact = yield from _look_up(question.names[0], "borders", habits)
  if fact is None:
    return None
  names = tuple(name for name, _ in fact.borders)
  if question.by != "borders":
    return (yield from _best_of(names, question, habits))
  if not habits.compares:
    return names[0]
  lengths = {name: length for name, length in fact.borders}
  return (max if question.most else min)(names, key=lengths.__getitem__)


def _best_of(
  names: Sequence[str], question: Question, habits: Habits
) -> Generator[ToolCall, str, str | None]:
  """The name of the country with the most or the least; None if in doubt."""
  if not habits.compares:
    return names[0]
  numbers: dict[str, float] = {}
  for name in names:
    fact = yield from _look_up(name, question.by, habits)
    if fact is None or fact.number is None:
      return None
    numbers[name] = fact.number
  return (max if question.most else min)(names, key=numbers.__getitem__)


def _look_up(name: str, field: str, habits: Habits) -> _Steps:
  """Reads a fact about a country that may go by another name in titles."""
  name = _WRITTEN_OUT.get(name, name)
  title = FIELDS[field].title
  query = f"{name} {title}" if habits.names_field else name
  hits = yield from _search(query)
  hit = _choose(hits, f"{name}: {title}", habits)
  if hit is None and not habits.names_field:
    return None
  if hit is None:
    known = yield from _search(f"{name} {_COUNTRY_NAME}")
    other = _other_name(known, name)
    if other is None:
      return None
    hits = yield from _search(f"{other} {title}")
    hit = _choose(hits, f"{other}: {title}", habits)
    if hit is None:
      return None
  text = hit.snippet
  if hit.is_cut and habits.opens:
    text = yield ToolCall(
      name=search_tags.OPEN, arguments={"id": hit.passage_id}
    )
    text = text.partition("\n")[2]
  return search_facts.read_fact(field, text)


def _search(query: str) -> Generator[ToolCall, str, list[Hit]]:
  found = yield ToolCall(name=search_tags.SEARCH, arguments={"query": query})
  return read_hits(found)


def _choose(hits: Sequence[Hit], title: str, habits: Habits) -> Hit | None:
  if not habits.checks_titles:
    return hits[0] if hits else None
  return next((hit for hit in hits if hit.title == title), None)


def _other_name(hits: Sequence[Hit], name: str) -> str | None:
  """How titles call the country whose long or short name this is."""
  for hit in hits:
    title, _, field = hit.title.rpartition(": ")
    lines = hit.snippet.split("\n")
    if field == _COUNTRY_NAME and any(li.endswith(f": {name}") for li in lines):
      return title
  return None
