"""Flight booking tasks, each proven solvable by the careful expert."""

from collections.abc import Sequence
import dataclasses
import random

from arl_jax.envs import flight_json, flight_text, flight_world
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.flight_expert import play_expert
from arl_jax.envs.flight_text import Request
from arl_jax.envs.flight_world import Fare, Flight, MarketEvent, World
from arl_jax.envs.inline import run_inline
from arl_jax.episode import Task

LEVELS = (1, 2, 3, 4)
SPLITS = ("train", "heldout", "warmup")
_CASES = {
  1: ("plain",),
  2: ("plain", "sold_out"),
  3: ("sold_between", "price_moved"),
  4: ("sold_out", "sold_between", "price_moved", "nothing_fits"),
}
_MAX_ATTEMPTS = 20
_NUM_MARKET_TURNS = 8
_MAX_SOLD_OUT = 2  # flights to try in vain; more would only cost turns


def make_task(
  seed: int,
  *,
  level: int,
  num_flights: int | None = None,
  kinds: Sequence[str] = flight_text.KINDS,
  moves: bool = True,
  drill: bool = False,
) -> Task:
  """Makes the task of a seed.

  Level 1 asks for the cheapest or earliest economy flight. Level 2 adds the
  cabin, the time limit and sold-out flights; level 3 passengers with similar
  names and a market that moves between turns; level 4 two dates and requests
  that nothing fits.

  Args:
    seed: fixes everything.
    level: 1 to 4.
    num_flights: flights that match the route, the date and the cabin, at
      least 2; by default 3 or 4, over all the dates together.
    kinds: which of `cheapest`, `earliest` and `before` to draw from.
    moves: whether prices and seats move between turns.
    drill: sell flights out at random in most tasks, so that going on to the
      next flight is practised.

  Returns:
    The task; `hidden` holds its world, its request and the name of its case.

  Raises:
    ValueError: an argument is out of range.
  """
  _check_options(level=level, num_flights=num_flights, kinds=kinds)
  for attempt in range(_MAX_ATTEMPTS):
    draft = _Draft(
      rng=random.Random(f"flight/{seed}/{attempt}"),
      level=level,
      num_flights=num_flights,
      kinds=tuple(kinds),
      moves=moves,
    )
    world, request, case = _draw_world(draft, drill=drill)
    task = Task(
      task_id=f"flight-{seed}",
      prompt=flight_text.write_request(request),
      seed=seed,
      level=level,
      hidden={"case": case} | flight_json.write_hidden(world, request),
    )
    if run_inline(play_expert(FlightBookingEnv(), task)).success:
      return task
  raise RuntimeError(
    f"no solvable flight task for seed {seed}, level {level} in"
    f" {_MAX_ATTEMPTS} attempts"
  )


def generate_tasks(
  num_tasks: int,
  *,
  seed: int,
  split: str,
  levels: Sequence[int] = LEVELS,
  num_flights: int | None = None,
  kinds: Sequence[str] = flight_text.KINDS,
  moves: bool = True,
  drill: bool = False,
) -> list[Task]:
  """Makes tasks with the levels mixed evenly.

  The seeds of different splits differ whatever `seed` is; see `split_seed`.

  Args:
    num_tasks: how many.
    seed: another one gives other tasks.
    split: `train`, `heldout` or `warmup`.
    levels: cycled through.
    num_flights: see `make_task`, as for all that follow.
    kinds: which kinds of request to draw from.
    moves: whether the market moves.
    drill: whether flights are sold out at random; for warm-up only.
  """
  if not levels:
    raise ValueError("levels is empty; expected some of 1 to 4")
  return [
    make_task(
      split_seed(index, seed=seed, split=split),
      level=levels[index % len(levels)],
      num_flights=num_flights,
      kinds=kinds,
      moves=moves,
      drill=drill,
    )
    for index in range(num_tasks)
  ]


def split_seed(index: int, *, seed: int, split: str) -> int:
  """The seed of a task: its remainder by 3 tells its split.

  So no two splits share a seed, and with `index` below 2**20 no two tasks of
  one split do.
  """
  if split not in SPLITS:
    raise ValueError(f"split is {split!r}; expected one of {SPLITS}")
  if not 0 <= index < 2**20 or seed < 0:
    raise ValueError(
      f"index is {index} and seed is {seed}; expected an index from 0 to"
      " 2**20 - 1 and a seed from 0"
    )
  return (seed * 2**20 + index) * len(SPLITS) + SPLITS.index(split)


def _check_options(
  *, level: int, num_flights: int | None, kinds: Sequence[str]
) -> None:
  if level not in LEVELS:
    raise ValueError(f"level is {level!r}; expected one of {LEVELS}")
  if num_flights is not None and not 2 <= num_flights <= 8:
    raise ValueError(f"num_flights is {num_flights}; expected 2 to 8")
  unknown = set(kinds) - set(flight_text.KINDS)
  if unknown or not kinds:
    raise ValueError(
      f"kinds is {tuple(kinds)}; expected some of {flight_text.KINDS}"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Draft:
  """What a world is drawn from."""

  rng: random.Random
  level: int
  num_flights: int | None
  kinds: tuple[str, ...]
  moves: bool


def _draw_world(draft: _Draft, *, drill: bool) -> tuple[World, Request, str]:
  rng = draft.rng
  request, passengers = _draw_request(draft)
  case = rng.choice(_CASES[draft.level])
  if not draft.moves and case in ("sold_between", "price_moved"):
    case = "sold_out"
  if case == "price_moved" and request.kind == "earliest":
    case = "sold_between"  # no price makes a flight earlier
  flights = _draw_flights(draft, request)
  events: list[MarketEvent] = []
  if case == "nothing_fits":
    flights = _spoil(rng, flights, request)
  elif case == "sold_out":
    best = _ranking(flights, request)[0]
    flights = _sell_out(flights, {best.number}, request.cabin)
  elif case == "sold_between":
    events.append(_sale(rng, flights, request))
  elif case == "price_moved":
    events.append(_price_move(rng, flights, request))
  if drill and rng.random() < 0.6:
    numbers = {f.number for f in flights if rng.random() < 0.4}
    flights = _sell_out(flights, numbers, request.cabin)
    # A scripted move would bring a flight's seats back.
    events = [event for event in events if event.number not in numbers]
  if draft.moves and draft.level >= 3:
    events += _market_noise(rng.randrange(2**32), flights, events)
  world = World(
    flights=tuple(sorted(flights, key=lambda flight: flight.number)),
    passengers=passengers,
    events=tuple(sorted(events, key=lambda event: event.turn)),
  )
  return world, request, case


def _draw_request(draft: _Draft) -> tuple[Request, tuple[str, ...]]:
  rng, level = draft.rng, draft.level
  kinds = [k for k in draft.kinds if level > 1 or k != "before"] or draft.kinds
  kind = rng.choice(kinds)
  origin, destination = rng.sample(flight_text.AIRPORTS, 2)
  day = rng.randrange(len(flight_text.DATES) - 1)
  num_dates = 2 if level == 4 and rng.random() < 0.6 else 1
  first, other = rng.sample(flight_text.FIRST_NAMES, 2)
  pair, other_pair = rng.sample(flight_text.SIMILAR_LAST_NAMES, 2)
  last, similar = rng.sample(pair, 2)
  passengers = [f"{first} {last}", f"{other} {other_pair[0]}"]
  if level >= 3:
    passengers += [f"{first} {similar}", f"{other} {last}"]
  request = Request(
    kind=kind,
    cabin="economy" if level == 1 else rng.choice(flight_text.CABINS),
    origin=origin,
    destination=destination,
    dates=flight_text.DATES[day : day + num_dates],
    passenger=passengers[0],
    before=rng.choice(flight_text.DEADLINES) if kind == "before" else None,
  )
  return request, tuple(sorted(passengers))


def _draw_flights(draft: _Draft, request: Request) -> list[Flight]:
  """Flights that match but for the time limit, with two that do not match."""
  rng = draft.rng
  num_dates = len(request.dates)
  default = rng.choice((3, 4)) if draft.level == 1 else 4
  num_flights = draft.num_flights or default
  numbers = rng.sample(flight_text.FLIGHT_NUMBERS, num_flights + 2)
  times = _draw_times(rng, num_flights, request.before)
  prices = {
    cabin: rng.sample(flight_text.PRICES, num_flights + 2)
    for cabin in flight_text.CABINS
  }

  def make(index: int, **changes: str) -> Flight:
    place = {
      "origin": request.origin,
      "destination": request.destination,
      "date": request.dates[index % num_dates],
      "time": times[index % num_flights],
    }
    fares = {
      cabin: Fare(price=prices[cabin][index], seats=rng.randint(1, 9))
      for cabin in flight_text.CABINS
    }
    return Flight(number=numbers[index], fares=fares, **place | changes)

  other_dates = [d for d in flight_text.DATES if d not in request.dates]
  return [
    *(make(index) for index in range(num_flights)),
    make(num_flights, date=rng.choice(other_dates)),
    make(
      num_flights + 1, origin=request.destination, destination=request.origin
    ),
  ]


def _draw_times(
  rng: random.Random, num_flights: int, before: str | None
) -> list[str]:
  """Different times, of which a time limit lets up to three through."""
  if before is None:
    return rng.sample(flight_text.TIMES, num_flights)
  early = [time for time in flight_text.TIMES if time < before]
  late = [time for time in flight_text.TIMES if time >= before]
  num_early = min(3, max(1, num_flights - 1))
  times = rng.sample(early, num_early) + rng.sample(
    late, num_flights - num_early
  )
  rng.shuffle(times)
  return times


def _ranking(flights: Sequence[Flight], request: Request) -> list[Flight]:
  world = World(flights=tuple(flights), passengers=())
  market = flight_world.market_at(world, 0)
  return flight_world.fitting_flights(world, request, market=market)


def _set_fare(flight: Flight, cabin: str, **changes: int) -> Flight:
  fare = dataclasses.replace(flight.fares[cabin], **changes)
  return dataclasses.replace(flight, fares={**flight.fares, cabin: fare})


def _sell_out(
  flights: Sequence[Flight], numbers: set[str], cabin: str
) -> list[Flight]:
  return [
    _set_fare(flight, cabin, seats=0)
    if flight.number in numbers and cabin in flight.fares
    else flight
    for flight in flights
  ]


def _spoil(
  rng: random.Random, flights: Sequence[Flight], request: Request
) -> list[Flight]:
  """Leaves nothing that fits: none at all, none early enough, or no seat."""
  fitting = {flight.number for flight in _ranking(flights, request)}
  ways = ["no_seat", "no_cabin"]
  if request.before is not None:
    ways += ["too_late", "too_late"]
  way = rng.choice(ways)
  if way == "no_seat":
    surplus = set(sorted(fitting)[_MAX_SOLD_OUT:])
    kept = [flight for flight in flights if flight.number not in surplus]
    return _sell_out(kept, fitting, request.cabin)
  if way == "too_late":
    return [flight for flight in flights if flight.number not in fitting]
  other = next(c for c in flight_text.CABINS if c != request.cabin)
  return [
    dataclasses.replace(flight, fares={other: flight.fares[other]})
    for flight in flights
  ]


def _decisive_turn(request: Request) -> int:
  """The turn at which the careful expert first checks seats."""
  return len(request.dates) + (request.before is not None) + 1


def _sale(
  rng: random.Random, flights: Sequence[Flight], request: Request
) -> MarketEvent:
  """Sells the best flight out after the list has been shown."""
  best = _ranking(flights, request)[0]
  fare = dataclasses.replace(best.fares[request.cabin], seats=0)
  turn = rng.randint(1, _decisive_turn(request) + 1)
  return MarketEvent(
    turn=turn, number=best.number, cabin=request.cabin, fare=fare
  )


def _price_move(
  rng: random.Random, flights: Sequence[Flight], request: Request
) -> MarketEvent:
  """Makes another flight the cheapest after the list has been sorted."""
  best, second = _ranking(flights, request)[:2]
  low = best.fares[request.cabin].price
  high = second.fares[request.cabin].price
  dearer = [price for price in flight_text.PRICES if price > high]
  cheaper = [price for price in flight_text.PRICES if price < low]
  moved, prices = rng.choice([(best, dearer), (second, cheaper)])
  if not prices:
    moved, prices = (best, dearer) if dearer else (second, cheaper)
  fare = dataclasses.replace(
    moved.fares[request.cabin], price=rng.choice(prices)
  )
  turn = _decisive_turn(request) + rng.randint(0, 1)
  return MarketEvent(
    turn=turn, number=moved.number, cabin=request.cabin, fare=fare
  )


def _market_noise(
  seed: int, flights: Sequence[Flight], scripted: Sequence[MarketEvent]
) -> list[MarketEvent]:
  """Small moves of flights that no scripted event touches.

  Which fare moves at a turn, and by how much, depends on (seed, turn) alone.
  """
  touched = {event.number for event in scripted}
  free = [flight for flight in flights if flight.number not in touched]
  fares = {
    (flight.number, cabin): fare
    for flight in free
    for cabin, fare in flight.fares.items()
  }
  events = []
  for turn in range(1, _NUM_MARKET_TURNS + 1):
    rng = random.Random(f"market/{seed}/{turn}")
    if not fares or rng.random() >= 0.1:
      continue
    number, cabin = rng.choice(sorted(fares))
    fare = fares[number, cabin]
    price = fare.price + rng.choice((-20, 0, 20))
    if price not in flight_text.PRICES:
      price = fare.price
    fare = Fare(price=price, seats=max(0, fare.seats - 1))
    fares[number, cabin] = fare
    events.append(MarketEvent(turn=turn, number=number, cabin=cabin, fare=fare))
  return events
