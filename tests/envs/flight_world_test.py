"""Golden judgments on hand-made worlds."""

import dataclasses
from typing import Any

import pytest

from arl_jax.envs import flight_world
from arl_jax.envs.flight_text import Request
from arl_jax.envs.flight_world import (
  Booking,
  Fare,
  Flight,
  MarketEvent,
  World,
  judge,
)


def make_flight(number, time, economy, business, date="May 12", **place):
  return Flight(
    number=number,
    origin=place.get("origin", "BOS"),
    destination=place.get("destination", "LAX"),
    date=date,
    time=time,
    fares={"economy": Fare(**economy), "business": Fare(**business)},
  )


def fare(price, seats=1):
  return {"price": price, "seats": seats}


WORLD = World(
  flights=(
    make_flight("AF104", "06:10", fare(300), fare(500)),
    make_flight("BA104", "08:10", fare(200), fare(640, 0)),
    make_flight("DL104", "10:10", fare(140), fare(420)),
    make_flight("KL104", "12:10", fare(120, 0), fare(600)),
    make_flight("LH104", "07:40", fare(130), fare(400), date="May 13"),
    make_flight("UA104", "06:10", fare(100), fare(100), destination="SEA"),
  ),
  passengers=("Ana Silva", "Ana Silvas"),
  events=(
    MarketEvent(
      turn=2, number="DL104", cabin="economy", fare=Fare(price=320, seats=1)
    ),
    MarketEvent(
      turn=4, number="BA104", cabin="economy", fare=Fare(price=200, seats=0)
    ),
  ),
)
REQUEST = Request(
  kind="cheapest",
  cabin="economy",
  origin="BOS",
  destination="LAX",
  dates=("May 12",),
  passenger="Ana Silva",
)


def book(number, *, turn=0, passenger="Ana Silva", cabin="economy"):
  return Booking(
    passenger=passenger, number=number, cabin=cabin, price=1, turn=turn
  )


def reason(
  bookings,
  *,
  answer: str | None = "Order ok",
  last_turn=9,
  world=WORLD,
  **changes,
):
  request = dataclasses.replace(REQUEST, **changes)
  verdict = judge(world, request, bookings, answer=answer, last_turn=last_turn)
  assert verdict.success == (verdict.reason in ("booked", "rightly_refused"))
  return verdict.reason


@pytest.mark.parametrize(
  ("number", "turn", "expected"),
  [
    ("DL104", 0, "booked"),
    ("DL104", 1, "booked"),
    ("KL104", 0, "does_not_fit"),  # cheaper, but sold out from the start
    ("BA104", 1, "not_the_best"),
    ("BA104", 2, "booked"),  # DL104 costs 320 from turn 2
    ("DL104", 2, "not_the_best"),
    ("BA104", 4, "does_not_fit"),  # its last seat was sold at turn 4
    ("AF104", 4, "booked"),
    ("LH104", 0, "does_not_fit"),  # another date
    ("UA104", 0, "does_not_fit"),  # another route
  ],
)
def test_the_cheapest_of_the_market_that_sold_it(number, turn, expected):
  assert reason([book(number, turn=turn)]) == expected


@pytest.mark.parametrize(
  ("number", "changes", "expected"),
  [
    ("AF104", {"kind": "earliest"}, "booked"),
    ("DL104", {"kind": "earliest"}, "not_the_best"),
    ("BA104", {"kind": "before", "before": "09:00"}, "booked"),
    ("DL104", {"kind": "before", "before": "09:00"}, "does_not_fit"),
    ("AF104", {"kind": "before", "before": "08:10"}, "booked"),
    ("LH104", {"dates": ("May 12", "May 13")}, "booked"),
    ("AF104", {"dates": ("May 12", "May 13"), "kind": "earliest"}, "booked"),
    ("LH104", {"dates": ("May 13",)}, "booked"),
  ],
)
def test_kinds_and_dates(number, changes, expected):
  assert reason([book(number)], **changes) == expected


def test_the_cabin_counts():
  business = book("DL104", cabin="business")
  assert reason([business], cabin="business") == "booked"
  assert reason([business]) == "wrong_cabin"
  assert reason([book("DL104")], cabin="business") == "wrong_cabin"


def test_order_ok_for_the_wrong_passenger_is_nothing():
  assert reason([book("DL104", passenger="Ana Silvas")]) == "wrong_passenger"


def test_a_second_booking_spoils_the_first():
  assert reason([book("DL104"), book("DL104")]) == "booked_several"
  assert reason([book("DL104"), book("AF104")]) == "booked_several"


def test_equal_bests_are_all_right():
  events = (
    MarketEvent(
      turn=0, number="BA104", cabin="economy", fare=Fare(price=140, seats=2)
    ),
  )
  world = dataclasses.replace(WORLD, events=events)
  assert reason([book("BA104")], world=world) == "booked"
  assert reason([book("DL104")], world=world) == "booked"


def test_nothing_fits():
  nothing: dict[str, Any] = {"kind": "before", "before": "06:10"}
  assert reason([], answer="No flight fits.", **nothing) == "rightly_refused"
  assert reason([], answer="Booked.", **nothing) == "did_not_say_so"
  assert reason([], answer=None, **nothing) == "no_answer"
  booked = [book("AF104")]
  assert reason(booked, answer="No flight fits.", **nothing) == "does_not_fit"


def test_refusing_what_could_be_booked_fails():
  assert reason([], answer="No flight fits.") == "not_booked"


def test_refusal_is_judged_in_the_last_market():
  request = {"kind": "before", "before": "09:00", "cabin": "economy"}
  world = dataclasses.replace(WORLD, flights=WORLD.flights[1:])
  told = {"answer": "No flight fits.", "world": world, **request}
  assert reason([], last_turn=3, **told) == "not_booked"
  assert reason([], last_turn=4, **told) == "rightly_refused"


def test_the_market_moves_at_its_turns():
  prices = [
    flight_world.market_at(WORLD, turn)["DL104", "economy"].price
    for turn in (0, 1, 2, 9)
  ]
  assert prices == [140, 140, 320, 320]
