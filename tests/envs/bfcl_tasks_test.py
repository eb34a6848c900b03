"""Tests of how BFCL's tasks and call strings are read."""

import importlib.util
import sys

import pytest

from arl_jax.envs import bfcl_tasks, tool_arguments
from arl_jax.episode import ToolCall

HAS_BFCL = all(map(importlib.util.find_spec, ("bfcl_eval", "mpmath")))
needs_bfcl = pytest.mark.skipif(not HAS_BFCL, reason=bfcl_tasks.INSTALL)

PARAMETERS = {"mv": ("source", "destination"), "ls": ("a",)}


def test_call_strings_are_read_by_position_and_by_name():
  assert bfcl_tasks.parse_call("mv('x', destination='y')", PARAMETERS) == (
    ToolCall(name="mv", arguments={"source": "x", "destination": "y"})
  )
  call = bfcl_tasks.parse_call("ls(a=[1, -2.5, {'k': True}])", PARAMETERS)
  assert call.arguments == {"a": [1, -2.5, {"k": True}]}
  assert bfcl_tasks.parse_call("ls()", PARAMETERS).arguments == {}


@pytest.mark.parametrize(
  ("text", "reason"),
  [
    ("mv(", "not Python"),
    ("mv", "no call"),
    ("os.mv('x')", "no call"),
    ("rm('x')", "unknown"),
    ("ls(1, 2)", "more arguments"),
    ("ls(1, a=2)", "twice"),
    ("ls(**{'a': 1})", "without a name"),
    ("ls(a=open('/etc/passwd'))", "no literal"),
    ("ls(a=ls())", "no literal"),
  ],
)
def test_anything_but_a_call_with_literals_is_refused(text: str, reason: str):
  with pytest.raises(ValueError, match=reason):
    bfcl_tasks.parse_call(text, PARAMETERS)


def test_missing_package_is_named_with_how_to_install_it(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ModuleNotFoundError, match=bfcl_tasks.INSTALL):
    bfcl_tasks.read_tasks()


def test_unknown_variants_and_classes_are_named():
  with pytest.raises(ValueError, match="'easy'"):
    bfcl_tasks.read_tasks("easy")  # pyright: ignore[reportArgumentType]
  with pytest.raises(ValueError, match="TravelApi"):
    bfcl_tasks.read_tasks(apis=["TravelApi"])


@needs_bfcl
def test_all_tasks_are_read_and_the_unsolvable_one_is_left_out():
  numbers = [len(bfcl_tasks.read_tasks(name)) for name in bfcl_tasks.VARIANTS]
  assert numbers == [200, 199, 200, 200]
  ids = {task.task_id for task in bfcl_tasks.read_tasks("miss_func")}
  assert "multi_turn_miss_func_49" not in ids
  travel = bfcl_tasks.read_tasks(apis=["TravelAPI"])
  assert len(travel) == 13
  assert {task.hidden["apis"][0] for task in travel} == {"TravelAPI"}


@needs_bfcl
def test_schemas_are_json_schema_and_gold_calls_satisfy_them():
  schemas = {}
  for api in bfcl_tasks.APIS:
    found = bfcl_tasks.read_schemas(api)
    assert not schemas.keys() & found.keys()  # a name means one method
    schemas |= found
  assert len(schemas) == 128
  for name, schema in schemas.items():
    tool_arguments.check_schema(schema["parameters"], where=name)
  for variant in bfcl_tasks.VARIANTS:
    for task in bfcl_tasks.read_tasks(variant):
      for turn in range(len(task.hidden["turns"])):
        for call in bfcl_tasks.gold_calls(task, turn):
          parameters = schemas[call.name]["parameters"]
          assert not tool_arguments.argument_error(call.arguments, parameters)


@needs_bfcl
def test_reading_imports_nothing_of_the_package(monkeypatch):
  for name in [name for name in sys.modules if name.startswith("bfcl_eval")]:
    monkeypatch.delitem(sys.modules, name)
  bfcl_tasks.read_tasks()
  assert not [name for name in sys.modules if name.startswith("bfcl_eval.")]
