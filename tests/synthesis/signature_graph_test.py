"""Tests of graphs of tools, and of paths through them."""

import random

import pytest

from arl_jax.envs.tools import Tool
from arl_jax.synthesis.flight_paths import flight_graph
from arl_jax.synthesis.search_paths import search_graph
from arl_jax.synthesis.signature_graph import (
  Edge,
  SignatureGraph,
  ToolSignature,
  signature_of,
)


def tool(name, takes, returns=()):
  return ToolSignature(
    name=name, takes={kind: kind for kind in takes}, returns=returns
  )


# A city leads to hotels, a hotel to its rooms, a room to a booking.
GRAPH = SignatureGraph(
  [
    tool("hotels", ["city"], ("hotel",)),
    tool("rooms", ["hotel"], ("room",)),
    tool("filter", ["hotel"], ("hotel",)),
    tool("book", ["room", "guest"], ("receipt", "city")),
    tool("weather", ["city"]),
  ],
  given=("city", "guest"),
)


def test_edges_are_the_flow_of_values():
  assert set(GRAPH.edges) == {
    Edge("hotels", "rooms", "hotel"),
    Edge("hotels", "filter", "hotel"),
    Edge("filter", "rooms", "hotel"),
    Edge("filter", "filter", "hotel"),
    Edge("rooms", "book", "room"),
    Edge("book", "hotels", "city"),
    Edge("book", "weather", "city"),
  }


@pytest.mark.parametrize(
  ("path", "is_sound"),
  [
    (("hotels", "rooms", "book"), True),
    (("hotels", "filter", "rooms", "book"), True),
    (("weather",), True),
    # Rooms are of a hotel that nobody named.
    (("rooms", "book"), False),
    # The weather serves no later call.
    (("weather", "hotels", "rooms", "book"), False),
    # The second list of hotels uses no earlier call.
    (("hotels", "hotels", "rooms"), False),
    ((), False),
  ],
)
def test_a_sound_path_is_fed_and_used(path, is_sound):
  assert GRAPH.is_sound(path) == is_sound


def test_sampled_paths_are_the_sound_ones_that_reach_the_goal():
  rng = random.Random(0)
  found = {
    GRAPH.sample_path(rng, goal="book", max_length=4) for _ in range(100)
  }
  assert found == {
    ("hotels", "rooms", "book"),
    ("hotels", "filter", "rooms", "book"),
  }
  assert GRAPH.sample_path(rng, goal="book", max_length=2) is None


def test_expanding_inserts_a_call_that_feeds_a_later_one():
  rng = random.Random(0)
  path = ("hotels", "rooms", "book")
  found = {GRAPH.expand(path, rng, max_repeats=1) for _ in range(50)}
  assert found == {("hotels", "filter", "rooms", "book")}
  twice = {GRAPH.expand(path, rng) for _ in range(50)}
  assert twice == found | {("hotels", "rooms", "rooms", "book")}
  assert GRAPH.expand(("weather",), rng) is None


def test_paths_connect_where_the_first_feeds_the_second():
  stay = ("hotels", "rooms", "book")
  assert GRAPH.connect(stay, ("weather",)) == (*stay, "weather")
  assert GRAPH.connect(stay, stay) == (*stay, *stay)
  assert GRAPH.connect(("weather",), stay) is None


def test_signatures_come_from_schemas_with_annotations():
  lookup = Tool(
    name="lookup",
    description="",
    parameters={
      "type": "object",
      "properties": {"id": {"type": "string"}, "limit": {"type": "integer"}},
      "required": ["id"],
    },
    function=str,
  )
  found = signature_of(lookup, returns=["text"], kinds={"id": "passage"})
  assert found == ToolSignature(
    name="lookup", takes={"id": "passage"}, returns=("text",)
  )
  with pytest.raises(ValueError, match=r"kinds of lookup has \['name'\]"):
    signature_of(lookup, returns=[], kinds={"name": "x"})
  with pytest.raises(ValueError, match="a link names 'open'"):
    SignatureGraph([found], given=(), links=[("lookup", "open")])


def test_real_tools_lead_to_their_goals():
  flights, search = flight_graph(), search_graph()
  assert flights.feeds("search", "book")
  assert flights.feeds("check", "book")  # annotated: no value flows
  assert not flights.feeds("book", "search")
  two = ("search", "open")
  assert search.connect(two, two) == (*two, *two)
