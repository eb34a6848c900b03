"""The airline's data, or a skipped test module that says how to get it."""

import pytest

from arl_jax.envs.airline_data import AirlineData, load_airline


def load() -> AirlineData:
  """Returns the data; skips the module that calls this if there is none."""
  try:
    return load_airline()
  except ModuleNotFoundError as error:
    pytest.skip(str(error), allow_module_level=True)
