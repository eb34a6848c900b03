"""What tests of several experiments need."""

import gc

import jax
from jax.experimental.compilation_cache import compilation_cache
import pytest


@pytest.fixture
def jax_config():
  """Takes back what a script sets for its whole process."""
  names = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
  )
  before = {name: getattr(jax.config, name) for name in names}
  yield
  for name, value in before.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()
  gc.collect()
