"""Paths of calls at the flight booking desk, and what they book."""

from collections.abc import Callable
import random

from arl_jax.envs import flight_json, flight_text
from arl_jax.envs.flight_text import Request
from arl_jax.envs.flight_tools import TOOL_PARAMETERS, FlightDesk
from arl_jax.envs.flight_world import Flight, World
from arl_jax.episode import Task, ToolCall
from arl_jax.synthesis.flight_goals import (
  booking_of,
  requests_solved,
  task_of,
)
from arl_jax.synthesis.mistakes import read_call
from arl_jax.synthesis.path_tasks import Run
from arl_jax.synthesis.signature_graph import (
  SignatureGraph,
  ToolSignature,
  signature_of,
)
from arl_jax.text import tool_calls

GOAL = "book"
# Values that a traveller brings along.
_GIVEN = ("airport", "date", "cabin", "passenger", "order", "time")
_KINDS = {"from": "airport", "to": "airport", "by": "order", "before": "time"}
_LISTS = ("search", "sort", "filter")


def flight_graph() -> SignatureGraph:
  """The desk's tools: lists feed sorting, filtering, checks and bookings."""
  tools = FlightDesk(World(flights=(), passengers=())).tools

  def signature(name: str) -> ToolSignature:
    tool = tools[name]
    return signature_of(
      tool,
      returns=("list", "flight") if name in _LISTS else (),
      kinds={p: k for p, k in _KINDS.items() if p in tool.parameter_names},
      after=("list",) if name in ("sort", "filter") else (),
    )

  return SignatureGraph(
    map(signature, tools),
    given=_GIVEN,
    # A check says that there is a seat; a further date adds to the list.
    links=(("check", "book"), ("search", "search")),
  )


class FlightPaths:
  """Runs paths in the worlds of flight booking tasks.

  Args:
    draw_task: makes a task of the split to train on from a number; its world
      is used, its request is not.
    style: how calls are written.
  """

  def __init__(
    self, draw_task: Callable[[int], Task], *, style: tool_calls.Style
  ):
    self.graph = flight_graph()
    self._draw_task = draw_task
    self._style: tool_calls.Style = style

  def draft(self, rng: random.Random) -> Task:
    """Draws a world, in which any traveller may want any flight."""
    return self._draw_task(rng.randrange(2**20))

  def call(self, run: Run) -> str | None:
    """Writes the next call.

    All searches are of the route and the cabin of one flight of the world, on
    different days. Checks and bookings are of the first flight of the list.
    """
    if not run.actions:
      run.values["wish"] = _draw_wish(run)
    wish: Request = run.values["wish"]
    name = run.path[len(run.actions)]
    values = {
      "from": wish.origin,
      "to": wish.destination,
      "cabin": wish.cabin,
      "passenger": wish.passenger,
      "by": wish.order,
      "before": wish.before,
    }
    if name == "search":
      place = run.path[: len(run.actions)].count("search")
      if place == len(wish.dates):
        return None
      values["date"] = wish.dates[place]
    if "flight" in TOOL_PARAMETERS[name]:
      lists = map(flight_text.read_rows, reversed(run.answers))
      rows = next(filter(None, lists), [])
      if not rows:
        return None
      values["flight"] = rows[0]
    return tool_calls.render_tool_call(
      ToolCall(
        name=name, arguments={key: values[key] for key in TOOL_PARAMETERS[name]}
      ),
      style=self._style,
      parameters=TOOL_PARAMETERS,
    )

  def goal(self, run: Run) -> tuple[Task, str] | None:
    """The request to which the only booking is the right answer."""
    world, _ = flight_json.read_hidden(run.task.hidden)
    calls = [read_call(a, self._style, TOOL_PARAMETERS) for a in run.actions]
    made = [c for c in calls if c is not None]
    booking = booking_of(world, list(zip(calls, run.answers, strict=True)))
    if booking is None:
      return None
    requests = list(requests_solved(world, made, booking))
    if not requests:
      return None
    request = run.rng.choice(requests)
    suffix = f"graph-{run.rng.randrange(16**8):08x}"
    task = task_of(run.task, world, request, suffix=suffix)
    return task, flight_text.BOOKED_ANSWER


def _draw_wish(run: Run) -> Request:
  """What all calls of a run are about."""
  rng = run.rng
  world, _ = flight_json.read_hidden(run.task.hidden)
  flight: Flight = rng.choice(world.flights)
  same_route = {
    f.date
    for f in world.flights
    if (f.origin, f.destination) == (flight.origin, flight.destination)
  }
  others = [d for d in flight_text.DATES if d != flight.date]
  others.sort(key=lambda date: date not in same_route)
  before = rng.choice(flight_text.DEADLINES) if "filter" in run.path else None
  kinds = ("before",) if before else ("cheapest", "earliest")
  return Request(
    kind=rng.choice(kinds),
    cabin=rng.choice(sorted(flight.fares)),
    origin=flight.origin,
    destination=flight.destination,
    dates=(flight.date, others[0]),
    passenger=rng.choice(world.passengers),
    before=before,
  )
