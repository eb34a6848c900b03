"""Environments that answer the actions of a policy."""
