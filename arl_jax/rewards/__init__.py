"""Plain functions that turn an episode into numbers."""
