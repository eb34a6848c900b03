"""Tests of outcome rewards."""

from arl_jax.episode import Episode, EpisodeStatus, Task
from arl_jax.rewards.outcome import success, weighted_reward


def make_episode(components):
  return Episode(
    task=Task(task_id="t", prompt=""),
    member=0,
    status=EpisodeStatus.TERMINATED,
    rows=(),
    turns=(),
    reward_components=components,
  )


def test_success_reads_the_component():
  assert success(make_episode({"success": 1.0})) == 1.0
  assert success(make_episode({"success": 0.0})) == 0.0
  assert success(make_episode({})) == 0.0


def test_weighted_reward_sums_what_is_there():
  weights = {"success": 1.0, "turns": -0.25}
  assert weighted_reward({"success": 1.0, "turns": 2.0}, weights) == 0.5
  assert weighted_reward({"turns": 2.0, "logged_only": 9.0}, weights) == -0.5
  assert weighted_reward({}, weights) == 0.0
