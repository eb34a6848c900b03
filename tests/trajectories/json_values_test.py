"""Nested values as JSON."""

import json
import types

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from arl_jax.trajectories.json_values import (
  decode_float,
  decode_value,
  encode_float,
  encode_value,
)

TEXT = st.text(max_size=5) | st.sampled_from(["$tuple", "$float", "$dict"])
VALUES = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
  lambda inner: (
    st.lists(inner, max_size=3)
    | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(TEXT, inner, max_size=3)
  ),
  max_leaves=12,
)


def round_trip(value):
  text = json.dumps(encode_value(value, "it"), allow_nan=False)
  return decode_value(json.loads(text), "it")


def typed(value):
  """Tells 1 from 1.0 and True, and a list from a tuple."""
  if isinstance(value, list | tuple):
    return type(value), [typed(item) for item in value]
  if isinstance(value, dict):
    return dict, [(key, typed(item)) for key, item in value.items()]
  return type(value), value


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(VALUES)
def test_every_value_comes_back(value):
  assert typed(round_trip(value)) == typed(value)


def test_nan_comes_back_and_the_text_nan_stays_text():
  number, text = round_trip([float("nan"), "nan"])
  assert number != number
  assert text == "nan"


def test_subclasses_come_back_as_equal_values():
  value = {"a": np.float64(0.1), "b": types.MappingProxyType({"c": (1,)})}
  assert round_trip(value) == value


@pytest.mark.parametrize(
  ("value", "message"),
  [
    ({"a": [0, {1, 2}]}, r"world\.a\[1\] is a set; expected values of JSON"),
    ({"a": np.int64(3)}, r"world\.a is a int64"),
    ({"a": np.zeros(2)}, r"world\.a is a ndarray"),
    ({"a": b"x"}, r"world\.a is a bytes"),
    ({"a": {3: "x"}}, r"world\.a has the key 3; expected text as keys"),
  ],
)
def test_a_value_that_json_lacks_is_named(value, message):
  with pytest.raises(ValueError, match=message):
    encode_value(value, "world")


def test_a_value_that_holds_itself_is_refused():
  value: list = []
  value.append(value)
  with pytest.raises(ValueError, match="holds itself"):
    encode_value(value, "world")


@pytest.mark.parametrize(
  "value",
  [
    {"$tuple": 3},
    {"$float": "many"},
    {"$dict": []},
    {"$set": []},
    {"$tuple": [], "b": 1},
  ],
)
def test_an_unknown_stand_in_is_refused(value):
  with pytest.raises(ValueError, match=r"world\.a is .*expected one of"):
    decode_value({"a": value}, "world")


@pytest.mark.parametrize("number", [0.1, -0.0, 1e-320, np.inf, -np.inf, np.nan])
def test_floats_are_exact(number):
  text = json.dumps(encode_float(number), allow_nan=False)
  assert repr(decode_float(json.loads(text), "x")) == repr(float(number))


@pytest.mark.parametrize("value", [None, True, "1.0", "NaN", [1.0]])
def test_what_is_no_number_is_refused(value):
  with pytest.raises(ValueError, match=r"reward is .*expected a number"):
    decode_float(value, "reward")
