"""Settings of JAX for all tests; they must come before its first use."""

import jax
from jax.experimental.compilation_cache import compilation_cache
import pytest

jax.config.update("jax_num_cpu_devices", 4)


@pytest.fixture(name="compile_cache", scope="module")
def keep_compiled(tmp_path_factory):
  """Lets runs of one configuration share what they compile."""
  options = {
    "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
    "jax_persistent_cache_min_compile_time_secs": 0.2,
    "jax_persistent_cache_min_entry_size_bytes": -1,
  }
  before = {name: getattr(jax.config, name) for name in options}
  for name, value in options.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()  # it looks at the folder once
  yield
  for name, value in before.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()
