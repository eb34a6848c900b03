"""The hidden world of flight booking: flights, passengers, a moving market."""

from collections.abc import Mapping, Sequence
import dataclasses

from arl_jax.envs import flight_text
from arl_jax.envs.flight_text import Request


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Fare:
  """Price and free seats of one cabin of one flight."""

  price: int
  seats: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Flight:
  """A flight; its number is unique in its world."""

  number: str
  origin: str
  destination: str
  date: str
  time: str
  fares: Mapping[str, Fare]  # by cabin


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MarketEvent:
  """What a cabin of a flight costs and holds from a turn on.

  Attributes:
    turn: the first turn (from 0) whose action meets the new fare.
    number: flight number.
    cabin: economy or business.
    fare: the new fare, before the bookings of the episode itself.
  """

  turn: int
  number: str
  cabin: str
  fare: Fare


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class World:
  """All that is hidden at the start of an episode; never changed.

  An episode keeps its bookings apart and shares the rest.
  """

  flights: tuple[Flight, ...]
  passengers: tuple[str, ...]
  events: tuple[MarketEvent, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Booking:
  """A row of the bookings table.

  Attributes:
    passenger: full name.
    number: flight number.
    cabin: economy or business.
    price: what was paid.
    turn: the turn that made it.
  """

  passenger: str
  number: str
  cabin: str
  price: int
  turn: int


Market = Mapping[tuple[str, str], Fare]  # by flight number and cabin


def market_at(world: World, turn: int) -> Market:
  """The fares that an action at `turn` meets, without own bookings."""
  market = {
    (flight.number, cabin): fare
    for flight in world.flights
    for cabin, fare in flight.fares.items()
  }
  for event in sorted(world.events, key=lambda event: event.turn):
    if event.turn <= turn:
      market[event.number, event.cabin] = event.fare
  return market


def sort_key(flight: Flight, price: int, order: str) -> tuple:
  """The order of a list: by `number`, `price` or `time`."""
  if order == "price":
    return (price, flight.number)
  if order == "time":
    return (flight_text.date_key(flight.date), flight.time, flight.number)
  return (flight.number,)


def fitting_flights(
  world: World, request: Request, *, market: Market
) -> list[Flight]:
  """Flights with a seat that meet every constraint, the best first."""
  fitting = [
    flight
    for flight in world.flights
    if (flight.origin, flight.destination)
    == (request.origin, request.destination)
    and flight.date in request.dates
    and request.cabin in flight.fares
    and (request.before is None or flight.time < request.before)
    and market[flight.number, request.cabin].seats > 0
  ]

  def rank(flight: Flight) -> tuple:
    price = market[flight.number, request.cabin].price
    return sort_key(flight, price, request.order)

  return sorted(fitting, key=rank)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
  """The judgment of an episode, with its reason in one word."""

  success: bool
  reason: str


def judge(
  world: World,
  request: Request,
  bookings: Sequence[Booking],
  *,
  answer: str | None,
  last_turn: int,
) -> Verdict:
  """Judges the bookings table, not what the policy says about it.

  Exactly one booking must be there, for the passenger and in the cabin asked
  for. Its flight must be the best of those that, in the market of the turn
  that booked it, met every constraint and had a seat: later moves do not count
  against it. Equal bests are all right. Without a booking, success means that
  nothing fits in the market of the last turn, where the final answer says so.

  Args:
    world: the hidden world.
    request: what was asked.
    bookings: the bookings that the episode added.
    answer: the final answer, None if a limit came first.
    last_turn: the turn of the last action.

  Returns:
    The verdict.
  """
  if not bookings:
    return _judge_refusal(world, request, answer=answer, last_turn=last_turn)
  if len(bookings) > 1:
    return Verdict(success=False, reason="booked_several")
  (booking,) = bookings
  if booking.passenger != request.passenger:
    return Verdict(success=False, reason="wrong_passenger")
  if booking.cabin != request.cabin:
    return Verdict(success=False, reason="wrong_cabin")
  market = market_at(world, booking.turn)
  fitting = fitting_flights(world, request, market=market)
  ranks = {flight.number: _rank(flight, market, request) for flight in fitting}
  if booking.number not in ranks:
    return Verdict(success=False, reason="does_not_fit")
  if ranks[booking.number] != min(ranks.values()):
    return Verdict(success=False, reason="not_the_best")
  return Verdict(success=True, reason="booked")


def _rank(flight: Flight, market: Market, request: Request) -> tuple:
  """What makes a flight better, without the number that breaks ties."""
  price = market[flight.number, request.cabin].price
  return sort_key(flight, price, request.order)[:-1]


def _judge_refusal(
  world: World, request: Request, *, answer: str | None, last_turn: int
) -> Verdict:
  if answer is None:
    return Verdict(success=False, reason="no_answer")
  market = market_at(world, last_turn)
  if fitting_flights(world, request, market=market):
    return Verdict(success=False, reason="not_booked")
  if not flight_text.says_no_flight(answer):
    return Verdict(success=False, reason="did_not_say_so")
  return Verdict(success=True, reason="rightly_refused")
