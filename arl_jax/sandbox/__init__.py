"""Runs code that a policy wrote, under limits."""
