"""Pure functions of arrays: advantages, losses, reductions."""
