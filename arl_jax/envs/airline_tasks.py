"""Generated tasks over the real airline database, split by customer."""

from collections.abc import Sequence
import hashlib
import random
from typing import Any, Literal

from arl_jax.envs.airline_data import AirlineData
from arl_jax.envs.airline_gold import Gold
from arl_jax.envs.airline_requests import (
  CONDITIONS,
  DECLINED,
  DONE,
  FIELDS,
  Kind,
  Request,
)
from arl_jax.episode import Task, ToolCall

Split = Literal["train", "warmup", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "warmup", "heldout")
LEVELS = (1, 2, 3)
KINDS: dict[int, tuple[Kind, ...]] = {
  1: ("lookup", "cancel"),
  2: ("cancel_if", "bags"),
  3: ("book",),
}
# Of a hundred customers, those of the splits; the rest is to train on.
_SHARES: dict[Split, int] = {"heldout": 30, "warmup": 25}
# A list of flights is to fit a short row.
_MAX_FLIGHTS = 3
_MAX_BAGS = 5
# Bookings happen after the day that the data calls today.
_TODAY = "2024-05-15"


def split_of(user_id: str) -> Split:
  """The split that a customer belongs to; depends on their id alone."""
  digest = hashlib.sha256(f"airline/{user_id}".encode()).digest()
  place = int.from_bytes(digest[:4]) % 100
  for split, share in _SHARES.items():
    if place < share:
      return split
    place -= share
  return "train"


class TaskSource:
  """Makes requests of the customers of one split.

  Args:
    data: whose customers, reservations and flights they are about.
    levels: difficulties, mixed evenly; see `KINDS`.
  """

  def __init__(self, data: AirlineData, *, levels: Sequence[int] = LEVELS):
    unknown = sorted(set(levels) - set(LEVELS))
    if unknown or not levels:
      raise ValueError(f"levels is {tuple(levels)}; expected some of {LEVELS}")
    self._data, self._levels = data, tuple(levels)
    database = data.database
    self._reservations = {split: [] for split in SPLITS}
    for reservation in database.reservations.values():
      self._reservations[split_of(reservation.user_id)].append(reservation)
    self._payers = {split: [] for split in SPLITS}
    for user in database.users.values():
      if _credit_card(user):
        self._payers[split_of(user.user_id)].append(user)
    self._flights = _bookable(database)

  def tasks(
    self, number: int, *, seed: int, split: Split, drill: bool = False
  ) -> list[Task]:
    """Makes tasks; equal arguments make equal tasks.

    Args:
      number: how many.
      seed: fixes the draws.
      split: whose customers they are of.
      drill: have more conditions that do not hold, and only flights that are
        listed among others.
    """
    return [
      self._task(f"{split}-{seed}-{index}", index, split, drill)
      for index in range(number)
    ]

  def _task(self, name: str, index: int, split: Split, drill: bool) -> Task:
    rng = random.Random(f"airline/{name}")
    level = self._levels[index % len(self._levels)]
    kind = rng.choice(KINDS[level])
    if kind == "book":
      request, gold = self._book(rng, split, drill)
    else:
      reservation = rng.choice(self._reservations[split])
      request, gold = self._change(rng, kind, reservation, drill)
    return Task(
      task_id=name,
      prompt=request.write(),
      level=level,
      hidden=gold.as_hidden(),
    )

  def _change(
    self, rng: random.Random, kind: Kind, reservation: Any, drill: bool
  ) -> tuple[Request, Gold]:
    """A request about a reservation that there is."""
    user_id, name = reservation.user_id, reservation.reservation_id
    card = _credit_card(self._data.database.users[user_id])
    if kind == "bags" and card is None:
      kind = "cancel_if"
    cancel = ToolCall(
      name="cancel_reservation", arguments={"reservation_id": name}
    )
    look = ToolCall(
      name="get_reservation_details", arguments={"reservation_id": name}
    )
    request = Request(kind=kind, user_id=user_id, reservation_id=name)
    if kind == "cancel":
      return request, Gold(user_id=user_id, calls=(cancel,), answer=DONE)
    if kind == "bags":
      bags = rng.randint(reservation.total_baggages + 1, 2 * _MAX_BAGS)
      paid = rng.randint(1, bags)
      request = Request(
        kind=kind,
        user_id=user_id,
        reservation_id=name,
        bags=bags,
        paid_bags=paid,
        payment_id=card or "",
      )
      return request, Gold(
        user_id=user_id, calls=(bags_call(request),), answer=DONE
      )
    field = rng.choice(FIELDS if kind == "lookup" else CONDITIONS)
    actual = field_of(reservation.model_dump(mode="json"), field)
    if kind == "lookup":
      request = Request(
        kind=kind, user_id=user_id, reservation_id=name, field=field
      )
      return request, Gold(user_id=user_id, calls=(look,), answer=actual)
    values = {"cabin": ("business", "economy"), "insurance": ("yes", "no")}
    others = [value for value in values[field] if value != actual]
    holds = rng.random() < (0.25 if drill else 0.5)
    request = Request(
      kind=kind,
      user_id=user_id,
      reservation_id=name,
      field=field,
      value=actual if holds else rng.choice(others),
    )
    return request, Gold(
      user_id=user_id,
      calls=(look, cancel) if holds else (look,),
      answer=DONE if holds else DECLINED,
    )

  def _book(
    self, rng: random.Random, split: Split, drill: bool
  ) -> tuple[Request, Gold]:
    user = rng.choice(self._payers[split])
    routes = self._flights
    if drill:
      routes = [flights for flights in routes if len(flights) > 1]
    flight, date = rng.choice(rng.choice(routes))
    day = flight.dates[date]
    cabin = rng.choice([c for c, seats in day.available_seats.items() if seats])
    request = Request(
      kind="book",
      user_id=user.user_id,
      payment_id=_credit_card(user) or "",
      flight=flight.flight_number,
      origin=flight.origin,
      destination=flight.destination,
      date=date,
      cabin=cabin,
      first_name=user.name.first_name,
      last_name=user.name.last_name,
      dob=user.dob,
    )
    calls = (search_call(request), book_call(request, day.prices[cabin]))
    return request, Gold(user_id=user.user_id, calls=calls, answer=DONE)


def field_of(reservation: dict[str, Any], field: str) -> str:
  """A field of a reservation, given as JSON values, by its name in `FIELDS`."""
  match field:
    case "trip":
      return reservation["flight_type"]
    case "first flight":
      return reservation["flights"][0]["flight_number"]
    case "first date":
      return reservation["flights"][0]["date"]
    case "payment":
      return reservation["payment_history"][0]["payment_id"]
    case _:
      return reservation[field]


def bags_call(request: Request) -> ToolCall:
  """The call that a request of kind `bags` needs."""
  return ToolCall(
    name="update_reservation_baggages",
    arguments={
      "reservation_id": request.reservation_id,
      "total_baggages": request.bags,
      "nonfree_baggages": request.paid_bags,
      "payment_id": request.payment_id,
    },
  )


def search_call(request: Request) -> ToolCall:
  """The call that shows the price for a request of kind `book`."""
  return ToolCall(
    name="search_direct_flight",
    arguments={
      "origin": request.origin,
      "destination": request.destination,
      "date": request.date,
    },
  )


def book_call(request: Request, price: int) -> ToolCall:
  """The call that a request of kind `book` needs."""
  return ToolCall(
    name="book_reservation",
    arguments={
      "user_id": request.user_id,
      "origin": request.origin,
      "destination": request.destination,
      "flight_type": "one_way",
      "cabin": request.cabin,
      "flights": [{"flight_number": request.flight, "date": request.date}],
      "passengers": [
        {
          "first_name": request.first_name,
          "last_name": request.last_name,
          "dob": request.dob,
        }
      ],
      "payment_methods": [{"payment_id": request.payment_id, "amount": price}],
      "total_baggages": 0,
      "nonfree_baggages": 0,
      "insurance": "no",
    },
  )


def _credit_card(user: Any) -> str | None:
  """The user's first credit card; it pays any amount."""
  methods = user.payment_methods.values()
  return next((m.id for m in methods if m.source == "credit_card"), None)


def _bookable(database: Any) -> list[list[tuple[Any, str]]]:
  """Flights with their date, those that a search lists together in a list."""
  routes: dict[tuple[str, str, str], list[tuple[Any, str]]] = {}
  for flight in database.flights.values():
    for date, day in flight.dates.items():
      if date > _TODAY and day.status == "available":
        key = (flight.origin, flight.destination, date)
        routes.setdefault(key, []).append((flight, date))
  return [
    flights
    for flights in routes.values()
    if len(flights) <= _MAX_FLIGHTS
    and all(any(f.dates[d].available_seats.values()) for f, d in flights)
  ]
