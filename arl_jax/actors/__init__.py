"""Runs episodes: the policy acts, the environment answers."""
