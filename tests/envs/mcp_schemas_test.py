"""Tests of reading what MCP servers declare and answer."""

import types

import pytest

from arl_jax.envs.mcp_schemas import content_text, supported_schema
from arl_jax.envs.tool_arguments import argument_error
from arl_jax.envs.tools import Tool


def convert(schema):
  """Returns the schema in the form that a tool takes."""
  found = supported_schema(schema)
  Tool(name="t", description="d", parameters=found, function=print)
  return found


def test_references_are_written_out():
  schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {
      "Place": {
        "title": "Place",
        "type": "object",
        "properties": {"city": {"title": "City", "type": "string"}},
        "required": ["city"],
      }
    },
    "properties": {
      "where": {"$ref": "#/$defs/Place", "description": "There."},
      "all": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
      "odd": {"$ref": "#/$defs/Missing"},
      "far": {"$ref": "https://example.com/schema"},
    },
    "required": ["where", "undeclared"],
  }
  place = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
  }
  assert convert(schema) == {
    "type": "object",
    "properties": {
      "where": place | {"description": "There."},
      "all": {"type": "array", "items": place},
      "odd": {},
      "far": {},
    },
    "required": ["where"],
  }


def test_a_schema_that_is_a_part_of_itself_ends():
  schema = {
    "$defs": {
      "Node": {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}},
      }
    },
    "properties": {"node": {"$ref": "#/$defs/Node"}},
  }
  node = convert(schema)["properties"]["node"]
  assert node == {"type": "object", "properties": {"next": {}}}


@pytest.mark.parametrize(
  ("schema", "found"),
  [
    ({"const": "a"}, {"enum": ["a"]}),
    (
      {"oneOf": [{"type": "string"}, {"type": "null"}]},
      {"anyOf": [{"type": "string"}, {"type": "null"}]},
    ),
    (
      {"type": "string", "format": "date", "description": "When."},
      {"type": "string", "description": 'When. {"format": "date"}'},
    ),
    ({"pattern": "["}, {"description": '{"pattern": "["}'}),
    ({"pattern": "^a"}, {"pattern": "^a"}),
    ({"exclusiveMinimum": 0}, {"exclusiveMinimum": 0}),
    (
      {"minimum": 0, "exclusiveMinimum": True},
      {"minimum": 0, "description": '{"exclusiveMinimum": true}'},
    ),
    (
      {"additionalProperties": {"const": 1}},
      {"additionalProperties": {"enum": [1]}},
    ),
    (True, {}),
  ],
)
def test_rules_are_checked_or_told(schema, found):
  assert convert({"properties": {"a": schema}})["properties"]["a"] == found


def test_an_empty_schema_is_an_object():
  assert convert({}) == {"type": "object"}
  assert argument_error({"anything": 1}, convert({})) == ""


def result(*content, structured=None):
  return types.SimpleNamespace(content=content, structured_content=structured)


def part(kind, **fields):
  return types.SimpleNamespace(type=kind, **fields)


def test_parts_become_lines():
  file = types.SimpleNamespace(uri="file:///a", text="inside")
  blob = types.SimpleNamespace(uri="file:///b")
  answer = result(
    part("text", text="one"),
    part("resource", resource=file),
    part("resource", resource=blob),
    part("resource_link", uri="file:///c"),
    part("image", mime_type="image/png"),
    structured={"not": "read"},
  )
  assert content_text(answer).split("\n") == [
    "one",
    "inside",
    "file:///b",
    "file:///c",
    "[image, image/png: left out]",
  ]


def test_structured_content_stands_for_missing_parts():
  assert content_text(result(structured={"a": "\u00e9"})) == '{"a": "\u00e9"}'
  assert content_text(result()) == ""
