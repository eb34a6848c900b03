"""Tests of checking arguments against a JSON Schema subset."""

import pytest

from arl_jax.envs.tool_arguments import (
  argument_error,
  check_schema,
  coerce_text,
)

SCHEMA = {
  "type": "object",
  "properties": {
    "city": {"type": "string", "minLength": 2, "maxLength": 9},
    "days": {"type": "integer", "minimum": 1, "maximum": 9},
    "unit": {"type": "string", "enum": ["C", "F"]},
    "tags": {"type": "array", "items": {"type": "string"}},
    "time": {"type": ["string", "null"], "pattern": r"^\d\d:\d\d$"},
    "more": {"type": "object"},
    "counts": {
      "type": "object",
      "additionalProperties": {"type": "integer", "exclusiveMinimum": 0},
    },
    "when": {"anyOf": [{"type": "string", "minLength": 4}, {"type": "null"}]},
    "pair": {"type": "array", "minItems": 2, "maxItems": 2},
    "share": {"type": "number", "exclusiveMaximum": 1},
    "place": {
      "type": "object",
      "properties": {"city": {"type": "string"}},
      "required": ["city"],
    },
  },
  "required": ["city"],
}


@pytest.mark.parametrize(
  ("arguments", "error"),
  [
    ({"city": "Rome"}, ""),
    ({"city": "Rome", "time": None, "more": {"x": 1}}, ""),
    ({"city": "Rome", "tags": ["a"], "days": 9, "unit": "C"}, ""),
    ({}, "missing argument city"),
    ({"city": "Rome", "x": 1}, "unknown argument x"),
    ({"city": 3}, "city must be string"),
    ({"city": "R"}, "city is shorter than 2"),
    ({"city": "R" * 10}, "city is longer than 9"),
    ({"city": "Rome", "days": 0}, "days must be at least 1"),
    ({"city": "Rome", "days": 10}, "days must be at most 9"),
    ({"city": "Rome", "days": True}, "days must be integer"),
    ({"city": "Rome", "days": 1.5}, "days must be integer"),
    ({"city": "Rome", "unit": "K"}, "unit must be C or F"),
    ({"city": "Rome", "tags": ["a", 1]}, "tags[1] must be string"),
    ({"city": "Rome", "time": "9:00"}, r"time must match ^\d\d:\d\d$"),
    ([], "arguments must be object"),
    ({"city": "Rome", "counts": {"a": 1, "b": 2}}, ""),
    (
      {"city": "Rome", "counts": {"a": 1, "b": "2"}},
      "counts.b must be integer",
    ),
    ({"city": "Rome", "counts": {"a": 0}}, "counts.a must be more than 0"),
    ({"city": "Rome", "when": None}, ""),
    ({"city": "Rome", "when": "noon"}, ""),
    ({"city": "Rome", "when": "now"}, "when is shorter than 4"),
    ({"city": "Rome", "when": 12}, "when must be string or null"),
    ({"city": "Rome", "pair": [1, "b"]}, ""),
    ({"city": "Rome", "pair": [1]}, "pair needs at least 2 items"),
    ({"city": "Rome", "pair": [1, 2, 3]}, "pair takes at most 2 items"),
    ({"city": "Rome", "share": 1}, "share must be less than 1"),
    ({"city": "Rome", "place": {}}, "missing argument place.city"),
    (
      {"city": "Rome", "place": {"city": "X", "zip": 1}},
      "unknown argument place.zip",
    ),
  ],
)
def test_argument_error(arguments, error):
  assert argument_error(arguments, SCHEMA) == error


def test_text_becomes_the_declared_types():
  schema = {
    "properties": {
      "n": {"type": "integer"},
      "x": {"type": "number"},
      "b": {"type": "boolean"},
      "s": {"type": "string"},
    }
  }
  read = coerce_text({"n": "-3", "x": "1.5", "b": "true", "s": "4"}, schema)
  assert read == {"n": -3, "x": 1.5, "b": True, "s": "4"}
  more = {
    "properties": {
      "list": {"type": "array"},
      "map": {"type": ["object", "null"]},
      "some": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    }
  }
  given = {"list": '["a", 1]', "map": '{"a": 1}', "some": "null"}
  read = {"list": ["a", 1], "map": {"a": 1}, "some": None}
  assert coerce_text(given, more) == read
  left = {"list": "[1", "map": "[" * 100_000, "some": "3.5"}
  assert coerce_text(left, more) == left
  assert coerce_text({"n": "many", "z": "1"}, schema) == {"n": "many", "z": "1"}


@pytest.mark.parametrize(
  ("schema", "problem"),
  [
    ({"type": "object", "oneOf": []}, "oneOf"),
    ({"type": "text"}, "type 'text'"),
    ({"type": "object", "required": ["a"]}, "undeclared"),
    ({"properties": {"a": {"format": "date"}}}, r"tool\.a uses"),
    ({"type": "array", "items": {"const": 1}}, r"tool\[\] uses"),
    ({"anyOf": [{"type": "null"}, {"const": 1}]}, r"tool\| uses"),
    ({"additionalProperties": {"type": "text"}}, r"tool\.\* has type"),
    ({"additionalProperties": "yes"}, "'yes'; expected true, false or"),
  ],
)
def test_a_rule_that_is_not_enforced_is_refused(schema, problem):
  with pytest.raises(ValueError, match=problem):
    check_schema(schema, where="tool")
