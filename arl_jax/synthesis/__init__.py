"""Trajectories that are written by scripts instead of sampled."""
