"""Rewards of what an episode achieved."""

from collections.abc import Mapping

from arl_jax.episode import Episode


def success(episode: Episode) -> float:
  """1 if the episode succeeded, else 0; one that failed did not succeed."""
  return float(episode.success)


def weighted_reward(
  components: Mapping[str, float], weights: Mapping[str, float]
) -> float:
  """The sum of `weight * component` over the components that are there.

  A component without a weight is logged but not rewarded. A weight without
  its component adds nothing, since turns and ends have different components.
  """
  return float(
    sum(
      weight * components[name]
      for name, weight in weights.items()
      if name in components
    )
  )
