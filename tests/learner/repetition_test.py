"""How much actions repeat themselves, counted twice."""

import collections

import numpy as np
import pytest

from arl_jax.episode import Episode, EpisodeStatus, Row, Task
from arl_jax.learner.repetition import repeated_ngrams
from arl_jax.reporting.episode_metrics import episode_metrics


def by_hand(tokens, turn_ids, num_turns, size):
  """Counts n-grams one by one."""
  shares = np.zeros((len(tokens), num_turns), np.float32)
  for row, (ids, turns) in enumerate(zip(tokens, turn_ids, strict=True)):
    for turn in range(num_turns):
      said = ids[turns == turn].tolist()
      seen = collections.Counter(
        tuple(said[i : i + size]) for i in range(len(said) - size + 1)
      )
      again = sum(count - 1 for count in seen.values())
      shares[row, turn] = again / max(seen.total(), 1)
  return shares


def draw(seed):
  """Rows of two actions, with few different tokens and observations."""
  rng = np.random.default_rng(seed)
  turn_ids = np.full((5, 24), -1, np.int32)
  for row in turn_ids:
    first, second = rng.integers(1, 9, size=2)
    row[2 : 2 + first] = 0
    row[13 : 13 + second] = 1
  turn_ids[0, 12:] = 1  # an action up to the last column
  turn_ids[1] = -1
  return rng.integers(0, 3, turn_ids.shape).astype(np.int32), turn_ids


@pytest.mark.parametrize("size", [1, 2, 4])
def test_it_counts_what_was_said_before(make_outcomes, size):
  for seed in range(20):
    tokens, turn_ids = draw(seed)
    batch = make_outcomes(
      [0] * 5,
      group_ids=np.zeros(5, np.int32),
      tokens=tokens,
      turn_ids=turn_ids,
      action_mask=turn_ids >= 0,
      turn_mask=np.ones((5, 2), bool),
    )
    found = repeated_ngrams(batch, size=size)
    expected = by_hand(tokens, turn_ids, 2, size)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_metric_is_of_the_most_repetitive_action():
  def episode(row, ids):
    return Episode(
      task=Task(task_id="t", prompt="p"),
      member=0,
      status=EpisodeStatus.TERMINATED,
      turns=(),
      rows=(
        Row(
          tokens=row,
          action_mask=ids >= 0,
          turn_ids=ids,
          behavior_logprobs=np.zeros(len(row), np.float32),
          policy_versions=np.where(ids >= 0, 0, -1).astype(np.int32),
        ),
      ),
    )

  tokens, turn_ids = draw(3)
  pairs = zip(tokens, turn_ids, strict=True)
  metrics = episode_metrics([episode(row, ids) for row, ids in pairs])
  expected = by_hand(tokens, turn_ids, 2, 4).max(axis=1).mean()
  assert expected > 0
  assert metrics["episodes/repetition"] == pytest.approx(expected, rel=1e-6)
