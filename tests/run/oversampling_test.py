"""Who stays of an oversampled group."""

import collections

import pytest

from arl_jax.episode import Episode, EpisodeStatus, Group, Task, Turn
from arl_jax.run.oversampling import Oversampling, faults

TASK = Task(task_id="t", prompt="p")
DONE, FAILED = EpisodeStatus.TERMINATED, EpisodeStatus.FAILED


def call(num_calls, num_errors=0):
  return Turn(
    action="a",
    finish_reason="stop",
    num_tool_calls=num_calls,
    num_tool_errors=num_errors,
  )


def make_episode(member, *, success=False, turns=(), status=DONE):
  return Episode(
    task=TASK,
    member=member,
    status=status,
    rows=(),
    turns=tuple(turns),
    reward_components={"success": float(success)},
  )


def make_group(episodes, ordinal=0):
  return Group(ordinal=ordinal, task=TASK, episodes=tuple(episodes))


def members(group):
  return [episode.member for episode in group.episodes]


@pytest.mark.parametrize(
  ("turns", "status", "expected"),
  [
    ([call(2), call(0)], DONE, 0.0),  # a call, then the answer
    ([call(2, 1), call(0)], DONE, 0.5),
    ([call(0)], DONE, 0.5),  # an answer without a call
    # Words that neither call nor end, then no end either.
    ([call(0), call(1)], EpisodeStatus.MAX_TURNS, 0.5),
    ([call(0), call(0)], EpisodeStatus.MAX_TURNS, 1.5),
    ([], EpisodeStatus.TIMEOUT, 0.5),
  ],
)
def test_faults_are_failed_calls_and_void_turns(turns, status, expected):
  assert faults(make_episode(0, turns=turns, status=status)) == expected


def sampled(ordinal=0):
  """Four successes with 3, 0, 2 and 1 failed calls of 4, and four failures."""
  errors = {0: 3, 2: 0, 4: 2, 6: 1}
  return make_group(
    [
      make_episode(
        member,
        success=member in errors,
        turns=[call(4, errors.get(member, 0)), call(0)],
      )
      for member in range(8)
    ],
    ordinal,
  )


def test_the_cleanest_successes_stay_and_failures_by_lot():
  drawn = collections.Counter()
  for ordinal in range(100):
    kept = members(Oversampling(4, seed=0).choose(sampled(ordinal)))
    assert kept == sorted(kept)
    assert [m for m in kept if m % 2 == 0] == [2, 6]
    lot = tuple(m for m in kept if m % 2)
    assert len(lot) == 2
    drawn[lot] += 1
  # All six pairs of failures, none of them rare.
  assert len(drawn) == 6
  assert min(drawn.values()) > 5


def test_lots_repeat_with_the_seed_and_the_ordinal():
  def lots(seed):
    chooser = Oversampling(4, seed=seed)
    return [members(chooser.choose(sampled(ordinal))) for ordinal in range(20)]

  assert lots(3) == lots(3)
  assert lots(3) != lots(4)


def test_it_counts_who_was_left_out():
  chooser = Oversampling(4, seed=0)
  for ordinal in range(3):
    chooser.choose(sampled(ordinal))
  assert chooser.num_left_out == 12
  assert chooser.num_successes_left_out == 6


def test_the_only_success_and_the_only_failure_stay():
  for is_success in (lambda member: member == 5, lambda member: member != 5):
    group = make_group(
      [make_episode(member, success=is_success(member)) for member in range(8)]
    )
    kept = members(Oversampling(4, seed=0).choose(group))
    assert len(kept) == 4
    assert 5 in kept


def test_who_did_not_finish_stays_only_where_too_few_did():
  def choose(num_finished):
    episodes = [
      make_episode(member, status=DONE if member < num_finished else FAILED)
      for member in range(6)
    ]
    chooser = Oversampling(4, seed=0)
    group = chooser.choose(make_group(episodes))
    assert len(group.episodes) == 4
    assert chooser.num_left_out == max(num_finished - 4, 0)
    return sum(e.status.finished for e in group.episodes)

  assert [choose(number) for number in (6, 5, 4, 2, 0)] == [4, 4, 4, 2, 0]


def test_a_group_without_extra_members_is_left_alone():
  group = sampled()
  assert Oversampling(8, seed=0).choose(group) == group
