"""Settings of JAX for all tests; they must come before its first use."""

import jax

jax.config.update("jax_num_cpu_devices", 4)
