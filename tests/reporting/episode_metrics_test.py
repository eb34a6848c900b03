"""How old the tokens of a step are."""

import numpy as np
import pytest

from arl_jax.episode import Episode, EpisodeStatus, Group, Row, Task, Turn
from arl_jax.reporting.episode_metrics import group_metrics

TASK = Task(task_id="t", prompt="p")
SHARES = (
  "staleness/age_0",
  "staleness/age_1",
  "staleness/age_2",
  "staleness/age_3",
  "staleness/age_4_or_more",
)


def make_episode(versions, *, status=EpisodeStatus.TERMINATED):
  """An episode of a prompt token, then one action per version."""
  count = len(versions)
  mask = np.arange(count + 1) > 0
  row = Row(
    tokens=np.zeros(count + 1, np.int32),
    action_mask=mask,
    turn_ids=np.where(mask, 0, -1).astype(np.int32),
    behavior_logprobs=np.zeros(count + 1, np.float32),
    policy_versions=np.array([-1, *versions], np.int32),
  )
  turn = Turn(action="a", finish_reason="stop", reward=0.0)
  return Episode(task=TASK, member=0, status=status, rows=(row,), turns=(turn,))


def measure(*episodes, version):
  group = Group(ordinal=0, task=TASK, episodes=episodes)
  return group_metrics([group], version=version)


def test_ages_are_counted_by_token():
  metrics = measure(
    make_episode([9, 9, 8]), make_episode([7, 5, 5, 2, 0]), version=9
  )
  shares = [metrics[name] for name in SHARES]
  assert shares == pytest.approx([2 / 8, 1 / 8, 1 / 8, 0.0, 4 / 8])
  assert metrics["staleness/mean"] == pytest.approx((1 + 2 + 4 + 4 + 7 + 9) / 8)
  assert metrics["staleness/max"] == 9


def test_fresh_tokens_are_of_age_zero():
  metrics = measure(make_episode([3, 3]), version=3)
  assert [metrics[name] for name in SHARES] == [1.0, 0.0, 0.0, 0.0, 0.0]


def test_episodes_that_did_not_finish_are_not_trained_on():
  failed = make_episode([0, 0], status=EpisodeStatus.FAILED)
  metrics = measure(make_episode([4]), failed, version=5)
  assert [metrics[name] for name in SHARES] == [0.0, 1.0, 0.0, 0.0, 0.0]


def test_names_do_not_depend_on_what_was_sampled():
  failed = make_episode([0], status=EpisodeStatus.FAILED)
  metrics = measure(failed, version=5)
  assert {name: metrics[name] for name in SHARES} == dict.fromkeys(SHARES, 0.0)
  assert metrics["staleness/max"] == 0.0
  assert metrics.keys() == measure(make_episode([5]), version=5).keys()
