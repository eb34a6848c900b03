"""Tests of shaping rewards."""

from arl_jax.episode import Episode, EpisodeStatus, Task, Turn
from arl_jax.rewards.shaping import format_penalty, turn_cost


def make_episode(*counts):
  return Episode(
    task=Task(task_id="t", prompt=""),
    member=0,
    status=EpisodeStatus.TERMINATED,
    rows=(),
    turns=tuple(
      Turn(
        action="",
        finish_reason="stop",
        num_tool_calls=calls,
        num_tool_errors=errors,
      )
      for calls, errors in counts
    ),
  )


def test_format_penalty_is_the_share_of_failed_attempts():
  assert format_penalty(make_episode((3, 1), (1, 1), (0, 0))) == -0.5
  assert format_penalty(make_episode((2, 0))) == 0.0
  assert format_penalty(make_episode()) == 0.0


def test_turn_cost_counts_from_the_free_turns():
  episode = make_episode((1, 0), (1, 0), (0, 0))
  assert turn_cost(episode) == -3.0
  assert turn_cost(episode, num_free_turns=2) == -1.0
  assert turn_cost(episode, num_free_turns=5) == 0.0
