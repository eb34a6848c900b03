"""Settings of JAX for all tests; they must come before its first use."""

import atexit
import os
import shutil
import tempfile

import jax

jax.config.update("jax_num_cpu_devices", 4)
# Most of the time goes into compiling, and many tests compile the same. A
# folder for each process: JAX writes files bit by bit, and others might read.
_COMPILED = tempfile.mkdtemp(prefix="compiled-")
atexit.register(shutil.rmtree, _COMPILED, ignore_errors=True)
for _name, _value in {
  "jax_compilation_cache_dir": _COMPILED,
  "jax_persistent_cache_min_compile_time_secs": 0.1,
  "jax_persistent_cache_min_entry_size_bytes": -1,
}.items():
  jax.config.update(_name, _value)
  # Programs that tests start take them from here.
  os.environ[_name.upper()] = str(_value)
