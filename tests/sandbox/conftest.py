"""All tests of the sandbox are slow: they start, starve and kill processes."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
  for item in items:
    if "tests/sandbox" in item.path.as_posix():
      item.add_marker(pytest.mark.slow)
