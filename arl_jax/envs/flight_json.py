"""Flight worlds as JSON, checked field by field on the way in."""

from collections.abc import Mapping
import re
from typing import Any

from arl_jax.envs import flight_text
from arl_jax.envs.flight_text import Request
from arl_jax.envs.flight_world import Fare, Flight, MarketEvent, World

_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


def write_hidden(world: World, request: Request) -> dict[str, Any]:
  """The world and the request as a task's `hidden` holds them."""
  return {
    "request": {
      "kind": request.kind,
      "cabin": request.cabin,
      "from": request.origin,
      "to": request.destination,
      "dates": list(request.dates),
      "before": request.before,
      "passenger": request.passenger,
    },
    "world": {
      "flights": [_write_flight(flight) for flight in world.flights],
      "passengers": list(world.passengers),
      "events": [
        [event.turn, event.number, event.cabin, *_write_fare(event.fare)]
        for event in world.events
      ],
    },
  }


def read_hidden(hidden: Mapping[str, Any]) -> tuple[World, Request]:
  """Reads back what `write_hidden` wrote.

  Raises:
    ValueError: a field is missing or wrong; says which, what was found and
      what is expected.
  """
  world = _read_world(_get(hidden, "world", Mapping, "hidden"))
  request = _read_request(_get(hidden, "request", Mapping, "hidden"))
  if request.passenger not in world.passengers:
    raise ValueError(
      f"hidden.request.passenger is {request.passenger!r}, who is not in"
      " hidden.world.passengers"
    )
  return world, request


def _write_flight(flight: Flight) -> dict[str, Any]:
  return {
    "number": flight.number,
    "from": flight.origin,
    "to": flight.destination,
    "date": flight.date,
    "time": flight.time,
    "fares": {cabin: _write_fare(fare) for cabin, fare in flight.fares.items()},
  }


def _write_fare(fare: Fare) -> list[int]:
  return [fare.price, fare.seats]


def _read_world(data: Mapping[str, Any]) -> World:
  where = "hidden.world"
  flights = tuple(
    _read_flight(item, f"{where}.flights[{index}]")
    for index, item in enumerate(_get(data, "flights", list, where))
  )
  fares = {
    (flight.number, cabin) for flight in flights for cabin in flight.fares
  }
  numbers = [flight.number for flight in flights]
  if len(set(numbers)) < len(numbers):
    raise ValueError(f"{where}.flights: two flights share a number")
  passengers = _get(data, "passengers", list, where)
  for passenger in passengers:
    _require(
      isinstance(passenger, str), f"{where}.passengers", passenger, "names"
    )
  events = tuple(
    _read_event(item, fares, f"{where}.events[{index}]")
    for index, item in enumerate(data.get("events", ()))
  )
  return World(flights=flights, passengers=tuple(passengers), events=events)


def _read_flight(data: Any, where: str) -> Flight:
  _require(isinstance(data, Mapping), where, data, "an object")
  fares = {
    _one_of(cabin, flight_text.CABINS, f"{where}.fares"): _read_fare(
      fare, f"{where}.fares.{cabin}"
    )
    for cabin, fare in _get(data, "fares", Mapping, where).items()
  }
  return Flight(
    number=_get(data, "number", str, where),
    origin=_get(data, "from", str, where),
    destination=_get(data, "to", str, where),
    date=_date(_get(data, "date", str, where), f"{where}.date"),
    time=_time(_get(data, "time", str, where), f"{where}.time"),
    fares=fares,
  )


def _read_fare(data: Any, where: str) -> Fare:
  fine = (
    isinstance(data, list)
    and len(data) == 2
    and all(type(number) is int for number in data)
    and data[0] > 0
    and data[1] >= 0
  )
  _require(fine, where, data, "[price above 0, seats from 0]")
  return Fare(price=data[0], seats=data[1])


def _read_event(
  data: Any, fares: set[tuple[str, str]], where: str
) -> MarketEvent:
  fine = (
    isinstance(data, list)
    and len(data) == 5
    and type(data[0]) is int
    and data[0] >= 0
    and isinstance(data[1], str)
    and isinstance(data[2], str)
  )
  _require(fine, where, data, "[turn, flight, cabin, price, seats]")
  turn, number, cabin, *fare = data
  _require(
    (number, cabin) in fares, where, f"{number} {cabin}", "a fare of this world"
  )
  return MarketEvent(
    turn=turn, number=number, cabin=cabin, fare=_read_fare(fare, where)
  )


def _read_request(data: Mapping[str, Any]) -> Request:
  where = "hidden.request"
  kind = _one_of(
    _get(data, "kind", str, where), flight_text.KINDS, f"{where}.kind"
  )
  before = data.get("before")
  if kind == "before":
    before = _time(_get(data, "before", str, where), f"{where}.before")
  else:
    _require(
      before is None, f"{where}.before", before, f"null as kind is {kind}"
    )
  dates = _get(data, "dates", list, where)
  _require(len(dates) > 0, f"{where}.dates", dates, "one date or more")
  return Request(
    kind=kind,
    cabin=_one_of(
      _get(data, "cabin", str, where), flight_text.CABINS, f"{where}.cabin"
    ),
    origin=_get(data, "from", str, where),
    destination=_get(data, "to", str, where),
    dates=tuple(_date(date, f"{where}.dates") for date in dates),
    passenger=_get(data, "passenger", str, where),
    before=before,
  )


_NAMES = {str: "text", list: "a list", Mapping: "an object"}


def _get(data: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
  if name not in data:
    raise ValueError(f"{where}.{name} is missing; expected {_NAMES[kind]}")
  value = data[name]
  _require(isinstance(value, kind), f"{where}.{name}", value, _NAMES[kind])
  return value


def _require(fine: bool, where: str, found: Any, expected: str) -> None:
  if not fine:
    raise ValueError(f"{where} is {found!r}; expected {expected}")


def _one_of(value: Any, allowed: tuple[str, ...], where: str) -> str:
  _require(value in allowed, where, value, f"one of {', '.join(allowed)}")
  return value


def _date(value: Any, where: str) -> str:
  fine = isinstance(value, str) and flight_text.is_date(value)
  _require(fine, where, value, "a date like May 12")
  return value


def _time(value: str, where: str) -> str:
  _require(_TIME.fullmatch(value) is not None, where, value, "hh:mm")
  return value
