"""What a booking achieved: the requests to which it is the right answer."""

from collections.abc import Iterator, Sequence
import dataclasses

from arl_jax.envs import flight_json, flight_text, flight_world
from arl_jax.envs.flight_text import Request
from arl_jax.envs.flight_tools import TOOL_PARAMETERS
from arl_jax.envs.flight_world import Booking, World
from arl_jax.episode import Task, ToolCall
from arl_jax.synthesis.mistakes import read_call
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode
from arl_jax.text import tool_calls

_BOOKED = "booked "


def relabel_flight(style: tool_calls.Style):
  """Makes the relabeler of flight booking, for `hindsight_relabel`.

  Args:
    style: how the episodes' calls are written.
  """

  def relabel(episode: SyntheticEpisode) -> Iterator[Task]:
    world, request = flight_json.read_hidden(episode.task.hidden)
    calls = [
      read_call(action, style, TOOL_PARAMETERS) for action in episode.actions
    ]
    booking = booking_of(
      world, list(zip(calls, _answers(episode), strict=True))
    )
    if booking is None:
      return
    made = [call for call in calls if call is not None]
    found = requests_solved(world, made, booking, like=request)
    for number, achieved in enumerate(found):
      yield task_of(episode.task, world, achieved, suffix=f"hindsight-{number}")

  return relabel


def requests_solved(
  world: World,
  calls: Sequence[ToolCall],
  booking: Booking,
  *,
  like: Request | None = None,
) -> Iterator[Request]:
  """Yields the requests that calls look made for and a booking answers.

  The route, the cabin and the passenger are those of the booking. The dates
  are those that were searched, the time limit is that which was filtered by,
  and where the list was sorted, it was sorted by what the request asks for.

  Args:
    world: where it was booked.
    calls: in order.
    booking: the only one.
    like: a request whose kind is tried first.
  """
  flight = next(f for f in world.flights if f.number == booking.number)
  place = {
    "from": flight.origin,
    "to": flight.destination,
    "cabin": booking.cabin,
  }
  dates = [
    call.arguments["date"]
    for call in calls
    if call.name == "search"
    and {**call.arguments, **place} == dict(call.arguments)
  ]
  limits = [c.arguments["before"] for c in calls if c.name == "filter"]
  orders = [c.arguments["by"] for c in calls if c.name == "sort"]
  if flight.date not in dates:
    return
  before = limits[-1] if limits else None
  kinds = ["before"] if before else ["cheapest", "earliest"]
  if like is not None:
    kinds.sort(key=lambda kind: kind != like.kind)
  for kind in kinds:
    request = Request(
      kind=kind,
      cabin=booking.cabin,
      origin=flight.origin,
      destination=flight.destination,
      dates=tuple(dict.fromkeys(dates)),
      passenger=booking.passenger,
      before=before,
    )
    if orders and orders[-1] != request.order:
      continue
    verdict = flight_world.judge(
      world,
      request,
      [booking],
      answer=flight_text.BOOKED_ANSWER,
      last_turn=booking.turn,
    )
    if verdict.success:
      yield request


def task_of(task: Task, world: World, request: Request, *, suffix: str) -> Task:
  """A task in the world of another, with a request of its own."""
  return dataclasses.replace(
    task,
    task_id=f"{task.task_id}-{suffix}",
    prompt=flight_text.write_request(request),
    hidden={**task.hidden, **flight_json.write_hidden(world, request)},
  )


def booking_of(
  world: World, answered: Sequence[tuple[ToolCall | None, str]]
) -> Booking | None:
  """The only booking that calls made, None if they made none or several.

  Args:
    world: where they were made.
    answered: for each turn its call, None if it is none, and what answered it.
  """
  made = [
    (turn, call.arguments)
    for turn, (call, answer) in enumerate(answered)
    if call is not None and answer.startswith(_BOOKED)
  ]
  if len(made) != 1:
    return None
  ((turn, values),) = made
  number, cabin = values["flight"], values["cabin"]
  return Booking(
    passenger=values["passenger"],
    number=number,
    cabin=cabin,
    price=flight_world.market_at(world, turn)[number, cabin].price,
    turn=turn,
  )


def _answers(episode: SyntheticEpisode) -> list[str]:
  """What answered each turn; nothing did the last."""
  later = [turn.observations for turn in episode.turns[1:]]
  return ["\n".join(m.content for m in messages) for messages in later] + [""]
