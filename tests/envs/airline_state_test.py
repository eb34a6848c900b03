"""Tests of an episode's view of the airline database."""

import hashlib

import pytest

from arl_jax.envs import airline_tau
from arl_jax.envs.airline_gold import gold_of
from arl_jax.envs.airline_state import AirlineState, Overlay
from tests.envs import airline_package

DATA = airline_package.load()


def digest():
  return hashlib.sha256(DATA.database.model_dump_json().encode()).hexdigest()


def test_an_overlay_copies_what_is_read_and_keeps_the_base():
  base = {"a": [1], "b": [2]}
  overlay = Overlay(base, list)
  overlay["a"].append(3)
  overlay["c"] = [4]
  assert base == {"a": [1], "b": [2]}
  assert list(overlay.values()) == [[1, 3], [2], [4]]
  assert (list(overlay), len(overlay)) == (["a", "b", "c"], 3)
  assert "b" in overlay
  assert "d" not in overlay
  with pytest.raises(KeyError):
    overlay["d"]


def test_all_gold_calls_leave_the_shared_database_as_it_is():
  before = digest()
  num_changed = 0
  for task in airline_tau.tau_tasks(DATA, split="base"):
    state = AirlineState(DATA.database)
    toolkit = DATA.toolkit(state)
    for call in gold_of(task).calls:
      getattr(toolkit, call.name)(**call.arguments)
    route = {"origin": "JFK", "destination": "SEA", "date": "2024-05-20"}
    assert toolkit.search_onestop_flight(**route)
    num_changed += bool(state.changes())
  assert num_changed == 26  # of 50; the others are refusals
  assert digest() == before


def test_episodes_at_once_do_not_see_each_other():
  one, two = AirlineState(DATA.database), AirlineState(DATA.database)
  booking = {
    "user_id": "mia_li_3668",
    "origin": "JFK",
    "destination": "SEA",
    "flight_type": "one_way",
    "cabin": "economy",
    "flights": [{"flight_number": "HAT069", "date": "2024-05-20"}],
    "passengers": [
      {"first_name": "Mia", "last_name": "Li", "dob": "1990-04-05"}
    ],
    "payment_methods": [{"payment_id": "credit_card_4421486", "amount": 121}],
    "total_baggages": 0,
    "nonfree_baggages": 0,
    "insurance": "no",
  }
  before = two.flights["HAT069"].dates["2024-05-20"].available_seats["economy"]
  DATA.toolkit(one).book_reservation(**booking)
  assert set(one.changes()) == {
    "user mia_li_3668",
    "reservation HATHAT",
    "flight HAT069 2024-05-20",
  }
  day = one.flights["HAT069"].dates["2024-05-20"]
  assert day.available_seats["economy"] == before - 1
  assert two.changes() == {}
  assert "HATHAT" not in two.reservations
  assert "HATHAT" not in two.users["mia_li_3668"].reservations
  DATA.toolkit(two).book_reservation(**booking)
  assert one.changes() == two.changes()


def test_only_what_differs_is_a_change():
  state = AirlineState(DATA.database)
  DATA.toolkit(state).get_user_details(user_id="mia_li_3668")
  assert state.changes() == {}
  DATA.toolkit(state).send_certificate(user_id="mia_li_3668", amount=100)
  (changed,) = state.changes().values()
  assert changed["payment_methods"]["certificate_3221322"]["amount"] == 100
