"""Worked examples, derived in float64 by two separate pieces of code."""

import functools
import json
import pathlib
from typing import Any

import numpy as np

_FILE = pathlib.Path(__file__).parent.parent / "golden/worked_examples.json"


@functools.cache
def _examples() -> dict[str, Any]:
  examples = json.loads(_FILE.read_text())["examples"]
  return {example["name"]: example for example in examples}


def names() -> list[str]:
  """Names of all examples."""
  return list(_examples())


def load(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
  """Inputs and outputs of one example."""
  return _examples()[name]["inputs"], _examples()[name]["outputs"]


def assert_close(actual: Any, expected: Any, tolerance: float = 2e-5) -> None:
  """Compares at the precision of float32."""
  np.testing.assert_allclose(
    np.asarray(actual), np.asarray(expected), rtol=tolerance, atol=tolerance
  )
