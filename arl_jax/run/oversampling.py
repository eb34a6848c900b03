"""Chooses whom to learn from among more episodes than a group may have."""

import dataclasses

import numpy as np

from arl_jax.bridge.batching import is_void_turn
from arl_jax.episode import Episode, EpisodeStatus, Group
from arl_jax.ops.grouping import resample_on_correct


class Oversampling:
  """Cuts groups down to their size, and counts who was left out.

  Successes stay by how clean they are, failures by lot; each side keeps its
  share of the group (`resample_on_correct`).
  Reference: https://arxiv.org/abs/2508.20722 (GRPO-RoC of rStar2-Agent)

  Attributes:
    num_left_out: finished episodes that were left out so far.
    num_successes_left_out: those among them that were successful.
  """

  def __init__(self, group_size: int, *, seed: int):
    """Makes a chooser.

    Args:
      group_size: G, the members that a group keeps.
      seed: of the run; a group's lots depend on it and on its ordinal alone.
    """
    self.num_left_out = 0
    self.num_successes_left_out = 0
    self._group_size = group_size
    self._seed = seed

  def choose(self, group: Group) -> Group:
    """Returns the group with G members, in the order that they had.

    Those that did not finish stay only where too few did.

    Args:
      group: one whose members have ended, G of them at least.
    """
    finished = [e for e in group.episodes if e.status.finished]
    kept = finished
    if len(finished) > self._group_size:
      kept = self._draw(finished, group.ordinal)
      left_out = [e for e in finished if e.member not in _members(kept)]
      self.num_left_out += len(left_out)
      self.num_successes_left_out += sum(e.success for e in left_out)
    missing = self._group_size - len(kept)
    lost = [e for e in group.episodes if not e.status.finished][:missing]
    chosen = _members([*kept, *lost])
    return dataclasses.replace(
      group,
      episodes=tuple(e for e in group.episodes if e.member in chosen),
    )

  def _draw(self, finished: list[Episode], ordinal: int) -> list[Episode]:
    # Shuffled, so that the first failures are any, and ties among successes
    # are broken by lot.
    rng = np.random.default_rng((self._seed, ordinal))
    shuffled = [finished[i] for i in rng.permutation(len(finished))]
    indices = resample_on_correct(
      [float(episode.success) for episode in shuffled],
      [faults(episode) for episode in shuffled],
      num_keep=self._group_size,
    )
    return [shuffled[i] for i in indices]


def faults(episode: Episode) -> float:
  """Share of failed tool calls, 1/2 without any, plus that of void turns."""
  turns = episode.turns
  num_calls = sum(turn.num_tool_calls for turn in turns)
  num_errors = sum(turn.num_tool_errors for turn in turns)
  ended = episode.status == EpisodeStatus.TERMINATED
  num_void = sum(
    is_void_turn(turn, is_answer=ended and turn is turns[-1]) for turn in turns
  )
  # Without a call nothing failed, but nothing was shown either.
  failed = num_errors / num_calls if num_calls else 0.5
  return failed + num_void / max(len(turns), 1)


def _members(episodes: list[Episode]) -> set[int]:
  return {episode.member for episode in episodes}
