"""Tests of the airline's tools and of the two forms of what they show."""

import json
from typing import Any

import pytest

from arl_jax.envs.airline_state import AirlineState
from arl_jax.envs.airline_tools import make_tools, write_names
from arl_jax.envs.tool_arguments import argument_error
from arl_jax.envs.tools import ToolError
from tests.envs import airline_package

DATA = airline_package.load()


def tools(observations: Any = "json"):
  state = AirlineState(DATA.database)
  return make_tools(DATA, state, observations=observations)


def test_fourteen_tools_are_declared_with_all_parameters():
  found = tools()
  assert len(found) == 14
  assert write_names(DATA.toolkit) < set(found)
  for name, tool in found.items():
    assert tool.description, name
    properties = tool.parameters["properties"]
    assert tool.parameters["required"] == list(properties)
    assert all(each["description"] for each in properties.values()), name


def test_arguments_are_checked_before_a_tool_runs():
  schema = tools()["update_reservation_flights"].parameters
  good = {
    "reservation_id": "GV1N64",
    "cabin": "economy",
    "flights": [{"flight_number": "HAT003", "date": "2024-05-19"}],
    "payment_id": "gift_card_1642017",
  }
  assert argument_error(good, schema) == ""
  for name, wrong in (
    ("cabin", "first"),
    ("flights", [{"flight_number": "HAT003"}]),
    ("flights", "HAT003"),
    ("payment_id", 7),
  ):
    assert name in argument_error({**good, name: wrong}, schema)


def test_json_shows_the_records_and_brief_the_same_values():
  as_json, brief = tools(), tools("brief")
  look = {"reservation_id": "JMO1MG"}
  shown = json.loads(as_json["get_reservation_details"].function(**look))
  assert shown["flights"][0]["flight_number"] == "HAT255"
  assert "status" not in shown
  assert brief["get_reservation_details"].function(**look).split("\n") == [
    "reservation JMO1MG of anya_garcia_5901",
    "one_way DEN MIA economy insurance yes",
    "flight HAT255 2024-05-16 DEN MIA 149",
    "passenger Anya Garcia 1992-11-12",
    "passenger Raj Jackson 1956-03-09",
    "payment gift_card_2550356 358",
    "bags 1 paid 0",
    "created 2024-05-13T23:20:29",
  ]
  assert brief["cancel_reservation"].function(**look) == "done JMO1MG"
  assert "status cancelled" in brief["get_reservation_details"].function(**look)


def test_brief_lists_flights_connections_and_customers():
  brief = tools("brief")
  route = {"origin": "JFK", "destination": "SEA", "date": "2024-05-20"}
  direct = brief["search_direct_flight"].function(**route).split("\n")
  assert direct[0] == (
    "HAT069 JFK SEA 06:00 12:00 basic_economy 51 x17 economy 121 x12"
    " business 239 x3"
  )
  connections = brief["search_onestop_flight"].function(**route).split("\n")
  assert len(connections) == 4
  assert " then HAT039 ATL SEA 2024-05-20 22:00 03:00+1 " in connections[0]
  nowhere = {**route, "destination": "XXX"}
  assert brief["search_direct_flight"].function(**nowhere) == "none"
  assert brief["search_onestop_flight"].function(**nowhere) == "none"
  user = brief["get_user_details"].function(user_id="anya_garcia_5901")
  assert "payment certificate_7583008 150 left" in user
  assert "SFO San Francisco" in brief["list_all_airports"].function()
  status = {"flight_number": "HAT069", "date": "2024-05-20"}
  assert brief["get_flight_status"].function(**status) == "available"


@pytest.mark.parametrize("text", ["9**9**9", "1(2)", "(1)(2)", "2 +", "1/0"])
def test_calculator_refuses_what_is_no_arithmetic(text):
  with pytest.raises(ToolError):
    tools()["calculate"].function(expression=text)


def test_forms_of_observations_are_checked():
  with pytest.raises(ValueError, match="observations is 'xml'"):
    tools("xml")
