"""Small penalties that shape how an episode reaches its outcome.

All are at most 0, to be weighed against a success of 1.
"""

from arl_jax.episode import Episode


def format_penalty(episode: Episode) -> float:
  """Minus the share of tool call attempts that failed; in [-1, 0]."""
  num_calls = sum(turn.num_tool_calls for turn in episode.turns)
  num_errors = sum(turn.num_tool_errors for turn in episode.turns)
  return -num_errors / num_calls if num_calls else 0.0


def turn_cost(episode: Episode, *, num_free_turns: int = 0) -> float:
  """Minus the number of turns beyond the free ones."""
  return -float(max(0, len(episode.turns) - num_free_turns))
