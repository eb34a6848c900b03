"""Tests of the way from a section to a record."""

from collections.abc import Callable
import dataclasses
from typing import Any, Literal

from ml_collections import config_dict
import pytest

from arl_jax import config as config_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
  rate: float = 0.5
  name: str = "a"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
  steps: int
  rate: float = 1.0
  flag: bool = False
  kind: Literal["sync", "async"] = "sync"
  buckets: tuple[int, ...] = (1,)
  pair: tuple[int, str] = (1, "x")
  limit: float | None = None
  weights: dict[str, float] = dataclasses.field(default_factory=dict)
  inner: Inner = Inner()
  names: "tuple[str | Callable[[int], int], ...]" = ()

  def __post_init__(self):
    if self.steps < 0:
      raise ValueError(f"steps is {self.steps}; expected 0 or more")


def _build(**values: Any) -> Outer:
  section = config_dict.ConfigDict(values)
  return config_lib.build(Outer, section, path="config.outer")


def test_build_converts_every_kind_of_field():
  built = _build(
    steps=3,
    rate=2,
    flag=True,
    kind="async",
    buckets=[1, 2],
    pair=(4, "y"),
    limit=config_dict.placeholder(float),
    weights={"success": 1},
    inner={"rate": 3},
  )
  assert built == Outer(
    steps=3,
    rate=2.0,
    flag=True,
    kind="async",
    buckets=(1, 2),
    pair=(4, "y"),
    limit=None,
    weights={"success": 1.0},
    inner=Inner(rate=3.0),
  )
  assert isinstance(built.rate, float)
  assert isinstance(built.inner.rate, float)


def test_build_takes_a_function_where_one_may_stand_for_a_name():
  assert _build(steps=1, names=("a", abs)).names == ("a", abs)


def test_build_reads_references():
  section = config_dict.ConfigDict({"steps": 3})
  section.rate = section.get_ref("steps") * 2
  section.steps = 5
  assert config_lib.build(Outer, section, path="o").rate == 10.0


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"steps": 1, "rte": 2.0}, "config.outer.rte is not a known key. Did you"),
    ({"steps": 1, "rte": 2.0}, "mean rate? Allowed here: buckets, flag,"),
    ({"rate": 1.0}, "config.outer.steps is missing; expected an int."),
    ({"steps": 1.5}, "config.outer.steps is 1.5; expected an int."),
    ({"steps": True}, "config.outer.steps is True; expected an int."),
    ({"steps": 1, "rate": True}, "outer.rate is True; expected a number."),
    ({"steps": 1, "rate": "x"}, "outer.rate is 'x'; expected a number."),
    ({"steps": 1, "flag": 1}, "outer.flag is 1; expected True or False."),
    ({"steps": 1, "kind": "asnc"}, "'asnc'; expected one of 'sync', 'async'."),
    ({"steps": 1, "buckets": 3}, "outer.buckets is 3; expected a tuple of"),
    ({"steps": 1, "buckets": ("a",)}, "outer.buckets[0] is 'a'; expected an"),
    ({"steps": 1, "pair": (1,)}, "expected 2 values, found 1."),
    ({"steps": 1, "limit": "x"}, "outer.limit is 'x'; expected a number or"),
    ({"steps": 1, "weights": {"a": "b"}}, "outer.weights.a is 'b'; expected"),
    ({"steps": 1, "inner": {"rat": 1}}, "config.outer.inner.rat is not a"),
    ({"steps": 1, "inner": 3}, "config.outer.inner is 3; expected a section."),
    ({"steps": 1, "names": (3,)}, "outer.names[0] is 3; expected a string or"),
    ({"steps": 1, "names": (3,)}, "a string or a function."),
    ({"steps": -1}, "config.outer: steps is -1; expected 0 or more"),
  ],
)
def test_build_says_what_is_wrong(values, message):
  with pytest.raises(config_lib.ConfigError) as caught:
    _build(**values)
  assert message in str(caught.value)


def test_build_leaves_ignored_and_given_fields_to_the_caller():
  built = config_lib.build(
    Inner, {"kind": "x"}, path="i", ignore=("kind",), given={"name": "b"}
  )
  assert built == Inner(name="b")
  with pytest.raises(config_lib.ConfigError, match="i.name is not a known"):
    config_lib.build(Inner, {"name": "c"}, path="i", given={"name": "b"})


def test_build_refuses_what_is_no_section():
  with pytest.raises(config_lib.ConfigError, match="o must be a section"):
    config_lib.build(Inner, 3, path="o")  # pyright: ignore[reportArgumentType]


def test_get_follows_dots_or_names_the_key():
  config = config_dict.ConfigDict({"loss": {"clip": 0.2}})
  assert config_lib.get(config, "loss.clip") == 0.2
  with pytest.raises(config_lib.ConfigError, match=r"loss\.clp is missing"):
    config_lib.get(config, "loss.clp")
