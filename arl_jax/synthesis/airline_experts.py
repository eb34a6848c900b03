"""Scripts that serve the customers of an airline, careful or not.

A policy warm-started on the mix serves often enough for reinforcement to have
something to reward, and badly enough for a better strategy to be found.
"""

from collections.abc import Callable, Generator, Sequence
import dataclasses
import json
import random
import re
from typing import Any

from arl_jax.envs.airline_environment import AirlineEnv
from arl_jax.envs.airline_gold import gold_of
from arl_jax.envs.airline_requests import (
  DECLINED,
  DONE,
  Request,
  read_request,
)
from arl_jax.envs.airline_tasks import (
  bags_call,
  book_call,
  field_of,
  search_call,
)
from arl_jax.envs.airline_user import ScriptedUser
from arl_jax.envs.inline import run_inline
from arl_jax.episode import Message, Task, ToolCall
from arl_jax.text.tool_calls import render_tool_call

ASK = "Tell me your user id, please, and all that I have to know."
TOLD = "That is done."
_GUESSES = {
  "cabin": "economy",
  "insurance": "no",
  "trip": "one_way",
}
_RESERVATION = re.compile(
  r"reservation (?P<reservation_id>\w+) of (?P<user_id>\w+)\n"
  r"(?:status \w+\n)?"
  r"(?P<flight_type>\w+) \w+ \w+ (?P<cabin>\w+) insurance (?P<insurance>\w+)\n"
  r"flight (?P<flight_number>\w+) (?P<date>\S+) [^\n]*\n"
  r"(?:(?!payment)[^\n]*\n)*payment (?P<payment_id>\w+)"
)

# Yields calls, is sent what they were answered, returns the last message.
_Script = Generator[ToolCall, str, str]
# Yields actions, is sent what the last message after each said.
_Actions = Generator[str, str, None]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Habits:
  """What an expert takes care of.

  Attributes:
    reads: looks at a reservation before it speaks about it or cancels it.
    finds_flight: pays the price of the flight and cabin that was asked for,
      not the first price of the list.
    pays_bags: counts bags that cost as such.
  """

  reads: bool = True
  finds_flight: bool = True
  pays_bags: bool = True


CAREFUL = Habits()
CARELESS_SLOTS: tuple[Habits, ...] = (
  Habits(reads=False, finds_flight=False),
  Habits(finds_flight=False, pays_bags=False),
  Habits(reads=False, pays_bags=False),
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AirlineExpertMix:
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
    rng = random.Random(f"airline-expert/{seed}/{index}")
    if rng.random() < self.careful:
      return CAREFUL
    return rng.choice(self.careless_slots)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AirlineEpisode:
  """A scripted episode.

  Attributes:
    task: what was asked.
    turns: for each action, the messages since the action before, and the
      action's text.
    success: what the environment judged.
  """

  task: Task
  turns: tuple[tuple[tuple[Message, ...], str], ...]
  success: bool


def request_script(prompt: str, *, habits: Habits = CAREFUL) -> _Script:
  """Yields calls, is sent what each was answered, returns the last message.

  It knows the prompt and what tools have shown only.

  Args:
    prompt: a sentence of `airline_requests`.
    habits: of the expert.
  """
  request = read_request(prompt)
  name = request.reservation_id
  cancel = ToolCall(
    name="cancel_reservation", arguments={"reservation_id": name}
  )
  match request.kind:
    case "lookup":
      return (yield from _look(request, habits))
    case "cancel_if":
      if habits.reads:
        value = yield from _look(request, habits)
        if value != request.value:
          return DECLINED
      yield cancel
    case "cancel":
      yield cancel
    case "bags":
      paid = request.paid_bags if habits.pays_bags else 0
      yield bags_call(dataclasses.replace(request, paid_bags=paid))
    case "book":
      found = yield search_call(request)
      price = _price(found, request, habits)
      if price is not None:
        yield book_call(request, price)
  return DONE


def gold_actions(task: Task) -> list[str]:
  """The actions that solve a task, from what it hides.

  A scripted customer is asked until they have told everything, before the
  calls. Where the gold calls touch no record of the customer, their profile is
  read first, which any agent has to do to know the facts. The last messages
  tell what has to be told.
  """
  gold = gold_of(task)
  calls = list(gold.calls)
  if not any({"user_id", "reservation_id"} & {*c.arguments} for c in calls):
    look = {"user_id": gold.user_id}
    calls.insert(0, ToolCall(name="get_user_details", arguments=look))
  last = gold.answer or " ".join([TOLD, *gold.communicate])
  before, after = [], [last]
  if gold.script is not None:
    user = ScriptedUser(gold.script)
    while user.num_told < len({*gold.script.facts, *gold.script.wishes}):
      before.append(ASK)
      user.reply(ASK)
    while user.reply(last) is not None:
      after.append(last)
  written = [render_tool_call(call, style="hermes") for call in calls]
  return [*before, *written, *after]


def play_gold(environment: AirlineEnv, task: Task) -> AirlineEpisode:
  """Plays `gold_actions` in the real environment."""
  return run_inline(_play(environment, task, _listed(gold_actions(task))))


def play_expert(
  environment: AirlineEnv, task: Task, *, habits: Habits = CAREFUL
) -> AirlineEpisode:
  """Plays a script on a generated task in the real environment."""
  return run_inline(
    _play(
      environment,
      task,
      _written(request_script(task.prompt, habits=habits)),
    )
  )


def expert_transcripts(
  tasks: Sequence[Task],
  *,
  make_environment: Callable[[], AirlineEnv],
  mix: AirlineExpertMix | None = None,
  seed: int = 0,
) -> list[AirlineEpisode]:
  """Plays one drawn expert per generated task; failed episodes included.

  Args:
    tasks: of `airline_tasks`.
    make_environment: makes the environment.
    mix: how often each expert is drawn; the default mix if None.
    seed: fixes the draws.
  """
  mix = mix or AirlineExpertMix()
  return [
    play_expert(
      make_environment(), task, habits=mix.draw(seed=seed, index=index)
    )
    for index, task in enumerate(tasks)
  ]


async def _play(
  environment: AirlineEnv, task: Task, actions: _Actions
) -> AirlineEpisode:
  messages = await environment.reset(task, seed=0)
  turns: list[tuple[tuple[Message, ...], str]] = []
  action = next(actions, None)
  while action is not None:
    turns.append((messages, action))
    result = await environment.step(action)
    messages = result.observations
    action = None if result.terminated else actions.send(messages[-1].content)
  scores = await environment.score()
  return AirlineEpisode(
    task=task, turns=tuple(turns), success=scores["success"] == 1.0
  )


def _listed(actions: Sequence[str]) -> _Actions:
  left = list(actions)
  while left:
    yield left.pop(0)  # whatever is sent


def _written(script: _Script) -> _Actions:
  """The calls of a script as actions, then its last message."""
  found: str | None = None
  while True:
    try:
      call = next(script) if found is None else script.send(found)
    except StopIteration as end:
      yield end.value
      return
    found = yield render_tool_call(call, style="hermes")


def _look(request: Request, habits: Habits) -> Generator[ToolCall, str, str]:
  """The value of the field that a request names; a guess if not read."""
  if not habits.reads:
    return _GUESSES.get(request.field, "none")
  found = yield ToolCall(
    name="get_reservation_details",
    arguments={"reservation_id": request.reservation_id},
  )
  return field_of(read_reservation(found), request.field)


def read_reservation(text: str) -> dict[str, Any]:
  """Reads what a tool shows of a reservation, in either form.

  Raises:
    ValueError: the text is none.
  """
  if text.startswith("{"):
    return json.loads(text)
  found = _RESERVATION.match(text)
  if found is None:
    raise ValueError(f"{text!r} is no reservation as airline_text writes it")
  flight = {name: found[name] for name in ("flight_number", "date")}
  payment = {"payment_id": found["payment_id"]}
  return {
    **found.groupdict(),
    "flights": [flight],
    "payment_history": [payment],
  }


def _price(found: str, request: Request, habits: Habits) -> int | None:
  """The price to pay, from a list of flights in either form."""
  prices: dict[str, dict[str, int]] = {}
  if found.startswith("["):
    for flight in json.loads(found):
      prices[flight["flight_number"]] = flight["prices"]
  else:
    for line in found.split("\n"):
      pairs = re.findall(r"([a-z_]+) (\d+) x\d+", line)
      prices[line.split()[0]] = {cabin: int(price) for cabin, price in pairs}
  if habits.finds_flight:
    return prices.get(request.flight, {}).get(request.cabin)
  return next(iter(next(iter(prices.values()), {}).values()), None)
