"""Batches: what lands where, and that no split changes what is trained."""

import dataclasses

import numpy as np
import pytest

from arl_jax.bridge import batching, pieces
from arl_jax.episode import Episode, EpisodeStatus, Group, Row, Task, Turn

TASK = Task(task_id="t", prompt="p")


def make_row(length, *, start=2, num_actions=3, version=4):
  mask = np.zeros(length, bool)
  mask[start : start + num_actions] = True
  return Row(
    tokens=np.arange(length, dtype=np.int32) + 1,
    action_mask=mask,
    turn_ids=np.where(mask, 0, -1).astype(np.int32),
    behavior_logprobs=np.where(mask, -0.5, 0.0).astype(np.float32),
    policy_versions=np.where(mask, version, -1).astype(np.int32),
  )


def make_episode(length, rewards, *, status=EpisodeStatus.TERMINATED, keys=()):
  keys = list(keys) or [None] * len(rewards)
  return Episode(
    task=TASK,
    member=0,
    status=status,
    rows=(make_row(length),) if length else (),
    turns=tuple(
      Turn(action="a", finish_reason="stop", reward=r, state_key=key)
      for r, key in zip(rewards, keys, strict=True)
    ),
  )


def make_group(ordinal, *episodes):
  return Group(ordinal=ordinal, task=TASK, episodes=tuple(episodes))


def collate(*groups, num_rows=6):
  return batching.collate_groups(
    groups, num_rows=num_rows, length=12, num_turns=3
  )


def test_fields_of_a_batch():
  batch = collate(
    make_group(7, make_episode(9, [0.0, 1.0]), make_episode(6, [0.5])),
    make_group(9, make_episode(8, [0.0]), make_episode(8, [0.0])),
  )
  np.testing.assert_array_equal(batch.row_mask, [1, 1, 1, 1, 0, 0])
  np.testing.assert_array_equal(batch.group_ids[:4], [0, 0, 1, 1])
  np.testing.assert_array_equal(batch.episode_ids[:4], [0, 1, 2, 3])
  np.testing.assert_array_equal(batch.turn_rewards[0], [0.0, 1.0, 0.0])
  np.testing.assert_array_equal(batch.turn_mask[0], [1, 1, 0])
  np.testing.assert_array_equal(batch.segment_ids[1], [1] * 6 + [0] * 6)
  np.testing.assert_array_equal(batch.positions[1, :6], range(6))
  np.testing.assert_array_equal(batch.tokens[1], [*range(1, 7)] + [0] * 6)
  assert batch.policy_versions[0, 2] == 4
  assert batch.policy_versions[0, 0] == -1
  assert batch.action_mask.sum() == 4 * 3


def test_failed_episodes_and_lonely_ones_do_not_count():
  failed = make_episode(6, [9.0], status=EpisodeStatus.FAILED)
  batch = collate(
    make_group(0, failed, make_episode(6, [1.0])),
    make_group(1, failed, make_episode(6, [1.0]), make_episode(6, [0.0])),
  )
  np.testing.assert_array_equal(batch.row_mask[:5], [0, 0, 0, 1, 1])


def test_groups_of_one_count_where_nothing_is_compared():
  groups = [make_group(0, make_episode(6, [1.0]))]
  sizes = dict(num_rows=2, length=12, num_turns=3)
  alone = batching.collate_groups(groups, **sizes, min_group_size=1)
  np.testing.assert_array_equal(alone.row_mask, [1, 0])
  np.testing.assert_array_equal(
    batching.collate_groups(groups, **sizes).row_mask, [0, 0]
  )


def act(*turns, agent=0):
  """A row of a prompt token, then two action tokens in each of the turns."""
  turn_ids = np.repeat(np.array([-1, *turns], np.int32), 2)
  mask = turn_ids >= 0
  return Row(
    tokens=np.arange(len(mask), dtype=np.int32),
    action_mask=mask,
    turn_ids=turn_ids,
    behavior_logprobs=np.zeros(len(mask), np.float32),
    policy_versions=np.where(mask, 4, -1).astype(np.int32),
    agent_id=agent,
  )


def with_rows(rewards, *rows):
  keys = [f"state {turn}" for turn in range(len(rewards))]
  return dataclasses.replace(make_episode(0, rewards, keys=keys), rows=rows)


def test_each_turn_is_credited_in_the_row_that_sampled_it():
  several = with_rows([1.0, 2.0, 4.0, 8.0, 16.0], act(0, 1), act(2), act(3, 4))
  single = with_rows([1.0, 2.0], act(0, 1))
  batch = batching.collate_groups(
    [make_group(0, several, single)], num_rows=4, length=8, num_turns=5
  )
  assert batch.turn_rewards.tolist() == [
    [1, 2, 0, 0, 0],
    [4, 0, 0, 0, 0],
    [8, 16, 0, 0, 0],
    [1, 2, 0, 0, 0],
  ]
  assert np.sum(batch.turn_mask, axis=1).tolist() == [2, 1, 2, 2]
  assert batch.episode_ids.tolist() == [0, 0, 0, 1]
  for row, turns in zip(batch.turn_ids, ([0, 1], [0], [0, 1]), strict=False):
    assert np.unique(row[row >= 0]).tolist() == turns
  # The same state has the same id wherever it is, one of a later row its own.
  states = np.asarray(batch.state_ids)
  assert states[3, 0] == states[0, 0]
  assert len({*states[0, :2], states[1, 0], *states[2, :2]}) == 5


def test_rewards_add_up_to_those_of_the_episode_for_every_agent():
  # Agent 0 acts in the turns 0, 3 and 4 in two rows, agent 1 in turn 2.
  team = with_rows(
    [1.0, 2.0, 4.0, 8.0, 16.0], act(0), act(2, agent=1), act(3, 4)
  )
  assert batching.turn_spans(team) == [(0, 3), (0, 5), (3, 5)]
  batch = batching.collate_groups(
    [make_group(0, team, team)], num_rows=6, length=8, num_turns=5
  )
  totals = np.sum(batch.turn_rewards, axis=1)
  assert totals[:3].tolist() == [7, 31, 24]
  # A row that never acted has no turn, wherever it is.
  silent = with_rows([1.0, 2.0], act(0), act(), act(1), act())
  assert batching.turn_spans(silent) == [(0, 1), (1, 1), (1, 2), (2, 2)]


def test_rows_of_an_agent_that_overlap_are_refused():
  mixed = with_rows([1.0, 2.0, 4.0], act(0, 2), act(1))
  with pytest.raises(ValueError, match="rows of an agent have to follow each"):
    batching.collate_groups(
      [make_group(0, mixed)], num_rows=2, length=8, num_turns=3
    )


def test_facts_of_rows():
  def turn(calls, errors, *, reason="stop"):
    return Turn(
      action="a",
      finish_reason=reason,
      num_tool_calls=calls,
      num_tool_errors=errors,
    )

  def episode(status, *turns, num_rows=1):
    whole = make_episode(6, [], status=status)
    rows = (*whole.rows, *map(later, range(1, num_rows)))
    return dataclasses.replace(whole, turns=turns, rows=rows)

  def later(turn):
    row = make_row(6)
    return dataclasses.replace(
      row, turn_ids=np.where(row.action_mask, turn, -1).astype(np.int32)
    )

  done, cut = EpisodeStatus.TERMINATED, EpisodeStatus.MAX_TURNS
  groups = [
    # A good call, a refused one, the answer: nothing is void.
    make_group(0, episode(done, turn(1, 0), turn(1, 1), turn(0, 0))),
    # An answer that did not end the task, and a call in a row of its own.
    make_group(1, episode(cut, turn(0, 0), turn(2, 1), num_rows=2)),
    # A call, then an answer, that the token budget cut off.
    make_group(
      2,
      episode(
        done,
        turn(1, 1, reason="length"),
        turn(2, 1, reason="length"),
        turn(0, 0, reason="length"),
      ),
    ),
  ]
  facts = batching.collate_facts(groups, version=7, num_rows=5, num_turns=3)
  np.testing.assert_array_equal(facts.truncated, [0, 1, 1, 0, 0])
  np.testing.assert_array_equal(
    facts.turn_is_void,
    [[0, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 1], [0, 0, 0]],
  )
  # All were sampled by version 4; the last row is filler.
  np.testing.assert_array_equal(facts.age, [3, 3, 3, 3, 0])


def test_draws_are_of_an_episode_and_repeat():
  def draws(seed, ordinals):
    groups = [
      make_group(
        ordinal,
        dataclasses.replace(
          make_episode(6, [0.0]), rows=make_episode(6, [0.0]).rows * 2
        ),
        dataclasses.replace(make_episode(6, [0.0]), member=1),
      )
      for ordinal in ordinals
    ]
    facts = batching.collate_facts(
      groups, version=0, num_rows=7, num_turns=3, seed=seed
    )
    assert np.asarray(facts.draws)[6] == 0
    return np.asarray(facts.draws).tolist()

  found = draws(5, (3, 4))
  # Both rows of an episode have the same one.
  assert found[0] == found[1]
  assert found[3] == found[4]
  assert len({*found[1:3], *found[4:6]}) == 4
  assert all(0 <= draw < 1 for draw in found)
  assert draws(5, (4, 3))[:3] == found[3:6]
  assert draws(6, (3, 4)) != found


def test_a_row_is_as_old_as_its_oldest_action():
  whole = make_episode(8, [0.0])
  (row,) = whole.rows
  versions = row.policy_versions.copy()
  versions[row.action_mask] = [6, 5, 7]
  silent = dataclasses.replace(
    row,
    action_mask=np.zeros_like(row.action_mask),
    policy_versions=np.full_like(versions, -1),
  )
  mixed = dataclasses.replace(row, policy_versions=versions)
  group = make_group(0, dataclasses.replace(whole, rows=(mixed, silent, row)))
  facts = batching.collate_facts([group], version=7, num_rows=4, num_turns=3)
  np.testing.assert_array_equal(facts.age, [2, 0, 3, 0])


def test_an_episode_without_a_row_takes_no_place():
  empty = make_episode(0, [], status=EpisodeStatus.FAILED)
  batch = collate(
    make_group(0, empty, make_episode(5, [1.0]), make_episode(5, [0]))
  )
  np.testing.assert_array_equal(batch.row_mask, [1, 1, 0, 0, 0, 0])
  np.testing.assert_array_equal(batch.episode_ids[:2], [1, 2])


def test_state_ids_are_shared_within_a_group_only():
  batch = collate(
    make_group(
      0,
      make_episode(6, [0, 0], keys=["x", "y"]),
      make_episode(6, [0, 0], keys=["x", None]),
    ),
    make_group(1, make_episode(6, [0], keys=["x"]), make_episode(6, [0])),
  )
  ids = batch.state_ids
  assert ids[0, 0] == ids[1, 0] >= 0
  assert ids[0, 1] >= 0
  assert ids[0, 1] != ids[0, 0]
  assert ids[1, 1] == -1
  assert ids[3, 0] == -1
  assert ids[2, 0] not in (ids[0, 0], -1)


@pytest.mark.parametrize(
  ("groups", "named"),
  [
    ([make_group(0, *[make_episode(5, [0])] * 7)], "num_rows"),
    ([make_group(0, make_episode(13, [0]))], "length"),
    ([make_group(0, make_episode(5, [0] * 4))], "num_turns"),
  ],
)
def test_what_does_not_fit_is_named(groups, named):
  with pytest.raises(ValueError, match=named):
    collate(*groups)


def test_minibatches_hold_each_live_row_once():
  live = np.array([1, 0, 1, 1, 1, 0, 1, 1], bool)
  parts = batching.split_minibatches(
    live, num_minibatches=3, min_rows=2, seed=5
  )
  assert len(parts) == 3
  np.testing.assert_array_equal(
    np.sort(np.concatenate(parts)), np.flatnonzero(live)
  )
  again = batching.split_minibatches(
    live, num_minibatches=3, min_rows=2, seed=5
  )
  for one, two in zip(parts, again, strict=True):
    np.testing.assert_array_equal(one, two)


def test_few_live_rows_make_fewer_minibatches():
  live = np.array([1, 1, 1, 0], bool)
  split = batching.split_minibatches
  assert len(split(live, num_minibatches=4, min_rows=2, seed=0)) == 1
  assert split(live & False, num_minibatches=4, min_rows=2, seed=0) == []


def test_micro_batches_keep_every_action_token_and_no_more():
  lengths = [4, 11, 6, 9, 5]
  rows = [make_row(n, num_actions=2) for n in lengths]
  batch = batching.pad_rows(rows, num_rows=5, length=12, num_turns=1)
  advantages = np.arange(60, dtype=np.float32).reshape(5, 12)
  chosen = np.array([0, 1, 2, 4])
  parts = list(
    pieces.micro_batches(
      batch,
      chosen,
      micro_batch_rows=3,
      lengths=(6, 8),
      per_token={"advantages": advantages},
    )
  )
  # Short rows first, three together in 6 columns; the long one in all 12.
  assert [part.batch.tokens.shape for part in parts] == [(3, 6), (3, 12)]
  assert [part.rows.tolist() for part in parts] == [[0, 4, 2], [1]]
  assert [int(part.batch.row_mask.sum()) for part in parts] == [3, 1]
  assert sum(int(part.batch.action_mask.sum()) for part in parts) == 2 * 4
  kept = np.concatenate(
    [part.per_token["advantages"][part.batch.action_mask] for part in parts]
  )
  np.testing.assert_array_equal(
    np.sort(kept), np.sort(advantages[chosen][:, 2:4].ravel())
  )


def test_scored_columns_list_the_actions():
  mask = np.zeros((3, 40), bool)
  mask[0, [3, 9]] = True
  mask[1, 10:30] = True
  columns = pieces.scored_columns(mask, multiple=16)
  assert columns.shape == (3, 32)
  np.testing.assert_array_equal(columns[0, :3], [3, 9, 40])
  np.testing.assert_array_equal(columns[1, :20], range(10, 30))
  np.testing.assert_array_equal(columns[2], 40)
