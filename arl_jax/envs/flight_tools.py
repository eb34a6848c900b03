"""The booking desk: the tools of flight booking over one episode's state."""

from collections.abc import Mapping
import dataclasses
import hashlib
from typing import Any

from arl_jax.envs import flight_text, flight_world
from arl_jax.envs.flight_world import Booking, Flight, Market, World
from arl_jax.envs.tools import Tool, ToolError


def _object(**properties: Mapping[str, Any]) -> dict[str, Any]:
  return {
    "type": "object",
    "properties": properties,
    "required": list(properties),
  }


_TEXT = {"type": "string"}
_CABIN = {"type": "string", "enum": list(flight_text.CABINS)}
_TIME = {"type": "string", "pattern": r"^\d\d:\d\d$"}
_ORDER = {"type": "string", "enum": ["price", "time"]}
_PARAMETERS = {
  "search": _object(
    **{"from": _TEXT, "to": _TEXT, "date": _TEXT, "cabin": _CABIN}
  ),
  "sort": _object(by=_ORDER),
  "filter": _object(before=_TIME),
  "check": _object(flight=_TEXT),
  "book": _object(passenger=_TEXT, flight=_TEXT, cabin=_CABIN),
}
_DESCRIPTIONS = {
  "search": (
    "List flights. A further date of the same route and cabin adds to the list."
  ),
  "sort": "Sort the list.",
  "filter": "Keep the flights of the list that leave before a time.",
  "check": "Count the free seats of a flight of the list.",
  "book": "Book a flight.",
}
TOOL_PARAMETERS: Mapping[str, tuple[str, ...]] = {
  name: tuple(schema["properties"]) for name, schema in _PARAMETERS.items()
}
_NO_FLIGHTS = "no flights\n"


@dataclasses.dataclass(kw_only=True, slots=True)
class _View:
  """The list that the policy works on, and the prices it has been shown."""

  origin: str
  destination: str
  cabin: str
  dates: tuple[str, ...]
  before: str | None = None
  order: str = "number"
  sold_out: set[str] = dataclasses.field(default_factory=set)
  shown: dict[str, int] = dataclasses.field(default_factory=dict)


class FlightDesk:
  """One episode's desk; it reads the world and writes only bookings.

  The list shows prices, not seats, and prices move. Where a price in the list
  is no longer true, `check` and `book` answer with the list as it is now and
  do nothing else, so nobody books on a stale list. Where a flight is sold out
  they answer so with the flights that remain, since the next action needs
  them. The list keeps its order and its filter.
  """

  def __init__(self, world: World, *, show_times: bool = True):
    self._world = world
    self._show_times = show_times
    self._flights = {flight.number: flight for flight in world.flights}
    self._airports = set(flight_text.AIRPORTS).union(
      *((flight.origin, flight.destination) for flight in world.flights)
    )
    self._turn = 0
    self._market: Market = flight_world.market_at(world, 0)
    self._view: _View | None = None
    self.bookings: list[Booking] = []
    functions = {
      "search": self._search,
      "sort": self._sort,
      "filter": self._filter,
      "check": self._check,
      "book": self._book,
    }
    self.tools = {
      name: Tool(
        name=name,
        description=_DESCRIPTIONS[name],
        parameters=_PARAMETERS[name],
        function=function,
        inline=True,
      )
      for name, function in functions.items()
    }

  @property
  def turn(self) -> int:
    """The turn whose market the desk shows."""
    return self._turn

  def advance(self, turn: int) -> None:
    """Lets the market move to what it is at `turn`."""
    self._turn = turn
    self._market = flight_world.market_at(self._world, turn)

  def state_key(self) -> str:
    """Names the fares, the bookings and the list as they are now.

    Two visits to one state have one key whatever the turn.
    """
    fares = sorted(
      (key, fare.price, fare.seats) for key, fare in self._market.items()
    )
    bookings = [
      (booking.passenger, booking.number, booking.cabin)
      for booking in self.bookings
    ]
    view = self._view
    shown = view and (
      view.cabin,
      view.before,
      view.order,
      [flight.number for flight in self._rows(view)],
      sorted(view.shown.items()),
    )
    state = repr((fares, bookings, shown)).encode()
    return hashlib.blake2b(state, digest_size=8).hexdigest()

  def _search(self, **arguments: str) -> str:
    origin, destination = arguments["from"], arguments["to"]
    date, cabin = arguments["date"], arguments["cabin"]
    for airport in (origin, destination):
      if airport not in self._airports:
        raise ToolError(f"no airport {airport}")
    if not flight_text.is_date(date):
      raise ToolError(f"{date} is not a date like May 12")
    view = self._view
    if (
      view is not None
      and (view.origin, view.destination) == (origin, destination)
      and view.cabin == cabin
      and date not in view.dates
    ):
      view.dates += (date,)
    else:
      view = _View(
        origin=origin, destination=destination, cabin=cabin, dates=(date,)
      )
      self._view = view
    return self._show(view)

  def _sort(self, *, by: str) -> str:
    view = self._need_view()
    view.order = by
    return self._show(view)

  def _filter(self, *, before: str) -> str:
    view = self._need_view()
    view.before = before
    return self._show(view)

  def _check(self, *, flight: str) -> str:
    view = self._need_view()
    if flight not in view.shown:
      raise ToolError(f"{flight} is not in the list")
    seats = self._seats(flight, view.cabin)
    if seats == 0:
      return self._sold_out(view, flight)
    if self._is_stale(view):
      return f"price moved\n{self._show(view)}"
    return f"{seats} seats"

  def _book(self, *, passenger: str, flight: str, cabin: str) -> str:
    self._need_passenger(passenger)
    if flight not in self._flights:
      raise ToolError(f"no flight {flight}")
    if cabin not in self._flights[flight].fares:
      raise ToolError(f"{flight} has no {cabin}")
    view = self._view
    listed = view is not None and view.cabin == cabin and flight in view.shown
    if self._seats(flight, cabin) == 0:
      return self._sold_out(view, flight) if view and listed else "0 seats\n"
    if view and listed and self._is_stale(view):
      return f"price moved\n{self._show(view)}"
    self.bookings.append(
      Booking(
        passenger=passenger,
        number=flight,
        cabin=cabin,
        price=self._market[flight, cabin].price,
        turn=self._turn,
      )
    )
    return f"booked {flight}"

  def _need_view(self) -> _View:
    if self._view is None:
      raise ToolError("search first")
    return self._view

  def _need_passenger(self, name: str) -> None:
    passengers = self._world.passengers
    if name in passengers:
      return
    near = [full for full in passengers if name and full.startswith(name)]
    if near:
      raise ToolError(f"{name} may be {' or '.join(near)}")
    raise ToolError(f"no passenger {name}")

  def _seats(self, number: str, cabin: str) -> int:
    booked = sum(
      (booking.number, booking.cabin) == (number, cabin)
      for booking in self.bookings
    )
    return max(0, self._market[number, cabin].seats - booked)

  def _rows(self, view: _View) -> list[Flight]:
    rows = [
      flight
      for flight in self._world.flights
      if (flight.origin, flight.destination) == (view.origin, view.destination)
      and flight.date in view.dates
      and view.cabin in flight.fares
      and (view.before is None or flight.time < view.before)
      and flight.number not in view.sold_out
    ]

    def rank(flight: Flight) -> tuple:
      price = self._market[flight.number, view.cabin].price
      return flight_world.sort_key(flight, price, view.order)

    return sorted(rows, key=rank)

  def _is_stale(self, view: _View) -> bool:
    return any(
      self._market[number, view.cabin].price != price
      for number, price in view.shown.items()
    )

  def _sold_out(self, view: _View, number: str) -> str:
    view.sold_out.add(number)
    return f"0 seats\n{self._show(view)}"

  def _show(self, view: _View) -> str:
    rows = self._rows(view)
    view.shown = {
      flight.number: self._market[flight.number, view.cabin].price
      for flight in rows
    }
    with_date = len(view.dates) > 1
    lines = [
      flight_text.write_row(
        flight.number,
        view.shown[flight.number],
        date=flight.date if with_date else None,
        time=flight.time if self._show_times else None,
      )
      for flight in rows
    ]
    return "".join(lines) or _NO_FLIGHTS
