"""Tests of tools made of Python functions."""

import asyncio
import dataclasses
import enum
import functools
import json
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest

from arl_jax.envs.tool_schema import tool, tool_from_function
from arl_jax.envs.tools import RunStatus, Tool, run_tool


class Cabin(enum.Enum):
  ECONOMY = "economy"
  BUSINESS = "business"


@dataclasses.dataclass
class Passenger:
  """Who flies.

  Attributes:
    name: as in the passport.
  """

  name: str
  age: int = 30

  def __post_init__(self):
    if self.age < 0:
      raise ValueError("nobody is younger than 0")


class Place(TypedDict):
  city: str
  airport: NotRequired[str]


def book(
  origin: str,
  passengers: list[Passenger],
  cabin: Cabin = Cabin.ECONOMY,
  bags: Optional[int] = None,  # noqa: UP045
  price: float = 99.5,
  window: bool = False,
  notes: dict[str, str] | None = None,
  speed: Literal["fast", "slow"] | None = "slow",
  place: Place | None = None,
) -> str:
  """Books a flight
  for passengers.

  It is final.

  Args:
    origin: city of departure,
      as a three-letter code.
    passengers (list): who flies: all of them.
    cabin: the class.

  Returns:
    bags: what looks like an argument, but is not.
  """
  assert all(isinstance(each, Passenger) for each in passengers)
  assert isinstance(cabin, Cabin)
  assert notes is None or isinstance(notes, dict)
  del bags, price, window, speed, place
  names = [each.name for each in passengers]
  return f"{origin} {names} {cabin.name}"


def call(tool, **arguments):
  return asyncio.run(run_tool(tool, arguments))


def test_hints_and_docstring_become_the_schema():
  made = tool_from_function(book)
  assert made.name == "book"
  assert made.description == "Books a flight for passengers.\nIt is final."
  assert made.schema["type"] == "function"
  assert made.parameters["required"] == ["origin", "passengers"]
  assert made.parameters["properties"] == {
    "origin": {
      "type": "string",
      "description": "city of departure, as a three-letter code.",
    },
    "passengers": {
      "type": "array",
      "items": {
        "type": "object",
        "description": "Who flies.",
        "properties": {
          "name": {"type": "string", "description": "as in the passport."},
          "age": {"type": "integer"},
        },
        "required": ["name"],
      },
      "description": "who flies: all of them.",
    },
    "cabin": {
      "type": "string",
      "enum": ["economy", "business"],
      "description": "the class.",
      "default": "economy",
    },
    "bags": {"type": ["integer", "null"], "default": None},
    "price": {"type": "number", "default": 99.5},
    "window": {"type": "boolean", "default": False},
    "notes": {
      "type": ["object", "null"],
      "additionalProperties": {"type": "string"},
      "default": None,
    },
    "speed": {
      "type": ["string", "null"],
      "enum": ["fast", "slow", None],
      "default": "slow",
    },
    "place": {
      "type": ["object", "null"],
      "properties": {
        "city": {"type": "string"},
        "airport": {"type": "string"},
      },
      "required": ["city"],
      "default": None,
    },
  }
  json.dumps(made.schema, allow_nan=False)


def test_the_function_gets_enums_and_dataclasses():
  answer = call(
    tool_from_function(book),
    origin="AMS",
    passengers=[{"name": "Ann"}, {"name": "Bo", "age": 3}],
    cabin="business",
    notes={"meal": "none"},
  )
  assert answer.status == RunStatus.OK
  assert answer.text == "AMS ['Ann', 'Bo'] BUSINESS"


@pytest.mark.parametrize(
  ("change", "text"),
  [
    ({"origin": 3}, "origin must be string"),
    ({"passengers": [{"age": 3}]}, "missing argument passengers[0].name"),
    (
      {"passengers": [{"name": "A", "x": 1}]},
      "unknown argument passengers[0].x",
    ),
    ({"passengers": ["Ann"]}, "passengers[0] must be object"),
    ({"cabin": "first"}, "cabin must be economy or business"),
    ({"bags": 1.5}, "bags must be integer or null"),
    ({"notes": {"meal": 1}}, "notes.meal must be string"),
    ({"speed": "medium"}, "speed must be fast or slow or null"),
    ({"place": {"airport": "AMS"}}, "missing argument place.city"),
    ({"window": "yes"}, "window must be boolean"),
    ({"seat": 1}, "unknown argument seat"),
    (
      {"passengers": [{"name": "A", "age": -1}]},
      "passengers: nobody is younger than 0",
    ),
  ],
)
def test_wrong_arguments_are_an_observation_that_says_why(change, text):
  arguments = {"origin": "AMS", "passengers": [{"name": "Ann"}]} | change
  answer = call(tool_from_function(book), **arguments)
  assert answer.status in (RunStatus.BAD_ARGUMENTS, RunStatus.REFUSED)
  assert answer.text == f"error: {text}"


def test_no_parameters_take_no_arguments():
  def now() -> str:
    """Tells the time."""
    return "noon"

  assert call(tool_from_function(now)).text == "noon"
  assert call(tool_from_function(now), zone="UTC").text == (
    "error: unknown argument zone"
  )


def test_decorators_take_options():
  @tool
  async def first(text: Annotated[str, "what to say"]) -> str:
    """Says it."""
    return text

  @tool(name="second", timeout_seconds=5.0, idempotent=True, cache=True, cost=2)
  def other(numbers: int | float) -> str:
    """Prints a number."""
    return str(numbers)

  assert isinstance(first, Tool)
  described = first.parameters["properties"]["text"]
  assert described == {"type": "string", "description": "what to say"}
  assert call(first, text="hi").text == "hi"
  assert (other.name, other.timeout_seconds, other.cache) == ("second", 5, True)
  assert other.parameters["properties"]["numbers"] == {
    "type": ["integer", "number"]
  }
  assert call(other, numbers=1.5).text == "1.5"


class Desk:
  """Makes a desk."""

  def __init__(self, seats: int):
    self.seats = seats

  async def take(self, number: int) -> str:
    """Takes seats."""
    self.seats -= number
    return str(self.seats)

  async def __call__(self, cabin: Cabin) -> str:
    """Counts seats."""
    return f"{self.seats} {cabin.name}"


def test_methods_partials_and_callable_objects_are_functions_too():
  desk = Desk(9)
  assert call(tool_from_function(desk.take), number=2).text == "7"
  counted = tool_from_function(desk, name="count")
  assert counted.description == "Counts seats."
  assert call(counted, cabin="economy").text == "7 ECONOMY"

  def add(a: int, b: int) -> int:
    """Adds."""
    return a + b

  more = tool_from_function(functools.partial(add, b=5))
  assert more.parameters["required"] == ["a"]
  assert call(more, a=1).text == "6"


class Node(TypedDict):
  children: list["Node"]


class Odd(enum.Enum):
  PAIR = (1, 2)


def star(*values: int):
  """D."""


def stars(**values: int):
  """D."""


def position(a: int, /):
  """D."""


def bare(a):
  """D."""


def anything(a: Any):
  """D."""


def plain_list(a: list):
  """D."""


def numbered(a: dict[int, str]):
  """D."""


def mixed(a: int | list[int]):
  """D."""


def tree(a: Node):
  """D."""


def odd(a: Odd):
  """D."""


def literal(a: Literal[b"x"]):
  """D."""


def unknown(a: "Missing"):  # noqa: F821 # pyright: ignore
  """D."""


def stranger(a: int):
  """D.

  Args:
    b: not there.
  """


def silent(a: int):
  del a


@pytest.mark.parametrize(
  ("function", "problem"),
  [
    (star, "parameter values of tool star takes any number"),
    (stars, "parameter values of tool stars takes any number"),
    (position, "parameter a of tool position is positional only"),
    (bare, "parameter a of tool bare has no type hint"),
    (anything, "parameter a of tool anything: the hint Any is not supported"),
    (plain_list, "tool plain_list: the hint list is not supported"),
    (numbered, r"numbered: the hint dict\[int, str\] is not supported"),
    (mixed, r"mixed: the hint int \| list\[int\] is not supported"),
    (tree, "tree: Node.children: Node is a part of itself"),
    (odd, r"odd: Odd has the value \(1, 2\)"),
    (literal, "literal: .* has the value b'x'"),
    (unknown, "hints of tool unknown cannot be read.*Missing"),
    (stranger, r"docstring of tool stranger describes \['b'\]"),
    (silent, "tool silent has no docstring"),
    (lambda a: a, "cannot be called '<lambda>'; pass name"),
    (Desk, "tool Desk is a class"),
  ],
)
def test_what_is_not_supported_is_named(function, problem):
  with pytest.raises(ValueError, match=problem):
    tool_from_function(function)


def test_unknown_options_are_refused():
  with pytest.raises(
    ValueError, match=r"tool book got the options \['costs'\]"
  ):
    tool_from_function(book, costs=1)
