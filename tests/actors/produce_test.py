"""The loop from tasks to queued groups, synchronous or not."""

import asyncio
import dataclasses

import numpy as np
import pytest

from arl_jax.actors.ledger import TaskLedger
from arl_jax.actors.produce import Replacements
from arl_jax.actors.queue import oldest_version
from arl_jax.actors.rollout import Limits
from arl_jax.actors.staleness import Outcome
from arl_jax.episode import Episode, EpisodeStatus, Group, Turn
from tests.actors import fakes
from tests.actors.fake_learner import (
  SOURCE,
  TASKS,
  Parts,
  ordinals,
  stop,
  ticks,
  train,
)
from tests.actors.fakes import make_actor


def by_ordinal(batches):
  """All that was sampled and seen, but for the versions and the times."""
  return {
    group.ordinal: [
      (
        episode.status,
        [
          (turn.action, turn.finish_reason, turn.observations, turn.reward)
          for turn in episode.turns
        ],
        [
          np.stack(
            [row.tokens, row.action_mask, row.turn_ids, row.behavior_logprobs]
          ).tolist()
          for row in episode.rows
        ],
        dict(episode.reward_components),
      )
      for episode in group.episodes
    ]
    for batch in batches
    for group in batch
  }


def test_synchronous_batches_are_the_tasks_in_order():
  parts = Parts()
  policy = fakes.FakePolicy(fakes.by_seed)
  batches = asyncio.run(train(make_actor(policy), parts, num_steps=4))
  assert [ordinals([batch]) for batch in batches] == [
    [0, 1, 2],
    [3, 4, 5],
    [6, 7, 8],
    [9, 10, 11],
  ]
  for step, batch in enumerate(batches):
    for group in batch:
      assert group.task == SOURCE.task_at(group.ordinal)
      for episode in group.episodes:
        (row,) = episode.rows
        # Every trained token is of the version that trains on it.
        assert set(row.policy_versions[row.action_mask]) == {step}


def of_many_lengths(turn, sampling):
  """Ends at once, at the task's end, or never; some actions are cut off."""
  kind = sampling.seed % 5
  if kind == 0 or (kind < 3 and turn == 1):
    return fakes.say("done")
  return fakes.say("x" * (sampling.seed % 97))


@pytest.mark.parametrize("max_staleness", [1, 4])
@pytest.mark.parametrize("max_concurrent", [2, 16])
def test_both_modes_play_the_same_episodes(max_staleness, max_concurrent):
  """One driver cut episodes that the other did not, in NeMo-RL#3851."""
  played = []
  limits = Limits(max_turns=3, max_length=150, max_tokens_per_turn=64)
  for staleness in (0, max_staleness):
    parts = Parts(
      max_staleness=staleness, max_concurrent=max_concurrent, num_steps=8
    )
    actor = make_actor(fakes.FakePolicy(of_many_lengths), limits=limits)
    batches = asyncio.run(train(actor, parts, num_steps=8, group_size=4))
    assert sorted(ordinals(batches)) == list(range(24))
    played.append(by_ordinal(batches))
  assert played[0] == played[1]
  statuses = {e[0] for group in played[0].values() for e in group}
  assert statuses == {
    EpisodeStatus.TERMINATED,
    EpisodeStatus.MAX_TURNS,
    EpisodeStatus.MAX_TOKENS,
  }


def test_a_run_that_resumes_plays_what_the_whole_run_plays():
  actor = make_actor(fakes.FakePolicy(fakes.by_seed))
  first = Parts()
  whole = by_ordinal(asyncio.run(train(actor, first, num_steps=4)))
  assert sorted(whole) == list(range(12))

  half = Parts()
  actor = make_actor(fakes.FakePolicy(fakes.by_seed))
  asyncio.run(train(actor, half, num_steps=2))
  rest = Parts(ledger=TaskLedger(**half.ledger.snapshot()))
  rest.gate.resume(2)
  batches = asyncio.run(train(actor, rest, num_steps=2))
  assert by_ordinal(batches) == {k: whole[k] for k in range(6, 12)}


def test_no_ordinal_is_lost_or_played_twice():
  parts = Parts(max_staleness=2, max_concurrent=5, num_steps=30)
  actor = make_actor(fakes.FakePolicy(fakes.by_seed))
  batches = asyncio.run(train(actor, parts, num_steps=30))
  assert sorted(ordinals(batches)) == list(range(90))
  assert parts.ledger.snapshot() == {"next_ordinal": 90, "open_ordinals": []}


def test_a_group_that_grew_too_old_runs_again():
  async def main():
    parts = Parts(batch_size=2, max_staleness=1, num_steps=2)
    policy = fakes.FakePolicy(fakes.by_seed)
    producer = parts.produce(make_actor(policy))
    await ticks(60)
    assert len(parts.queue) == 4
    policy.version = 2
    parts.gate.set_version(2)
    batch = await asyncio.wait_for(parts.queue.get_batch(4), timeout=20)
    assert ordinals([batch]) == [0, 1, 2, 3]
    assert {oldest_version(group) for group in batch} == {2}
    assert parts.queue.num_stale == 4
    # An engine may know the sessions of the first attempt still.
    sessions = {call.session for call in policy.calls}
    assert {"train/0/1", "train/0/1/attempt-1"} <= sessions
    await stop(producer)

  asyncio.run(main())


def of_returns(*returns, status=EpisodeStatus.TERMINATED):
  """A group; a return of None is of a member that failed."""
  return Group(
    ordinal=0,
    task=TASKS[0],
    episodes=tuple(
      Episode(
        task=TASKS[0],
        member=member,
        status=EpisodeStatus.FAILED if value is None else status,
        rows=(),
        turns=(Turn(action="", finish_reason="stop", reward=value or 0.0),),
      )
      for member, value in enumerate(returns)
    ),
  )


@pytest.mark.parametrize(
  ("returns", "replaced"),
  [
    ([1.0, 1.0, 1.0], True),
    ([0.0, 0.0], True),
    ([1.0, 0.0, 1.0], False),
    ([1.0, 1.0, None], True),  # a failure is no return of 0
    ([1.0, 0.0, None], False),
    ([1.0], False),  # nobody to differ from
  ],
)
def test_what_has_nothing_to_tell_apart_is_replaced(returns, replaced):
  replacements = Replacements(5)
  group = of_returns(*returns)
  assert replacements.replace(group, version=0) is replaced
  assert replacements.total == replaced


def test_who_stays_is_chosen_before_a_group_is_judged():
  chosen, parts = [], Parts(num_steps=2)

  def choose(group):
    assert len(group.episodes) == 4
    chosen.append(group.ordinal)
    return dataclasses.replace(group, episodes=group.episodes[1::2])

  actor = make_actor(fakes.FakePolicy(fakes.by_seed))
  settings = dict(group_size=4, choose=choose)
  batches = asyncio.run(train(actor, parts, num_steps=2, **settings))
  assert sorted(chosen) == sorted(ordinals(batches)) == list(range(6))
  for batch in batches:
    for group in batch:
      assert [episode.member for episode in group.episodes] == [1, 3]


def test_replacements_are_bounded_between_two_versions():
  replacements, flat = Replacements(2), of_returns(1.0, 1.0)
  replaced = [
    replacements.replace(flat, version=version)
    for version in (0, 0, 0, 0, 1, 1, 1, 5, 5, 5)
  ]
  assert replaced == [True, True, False, False] + [True, True, False] * 2
  assert replacements.total == 6
  assert not Replacements(0).replace(flat, version=0)
  with pytest.raises(ValueError, match="max_per_version is -1"):
    Replacements(-1)


def test_replaced_groups_leave_their_place_to_the_next_task():
  class Scored(fakes.FakeEnvironment):
    async def reset(self, task, *, seed):
      self.gain = seed % 2 if task.task_id in ("t0", "t3") else 1
      return await super().reset(task, seed=seed)

    async def score(self):
      return {"success": float(self.gain)}

  mixed = [o for o in range(200) if SOURCE.task_at(o).task_id in ("t0", "t3")]
  parts, replacements, seen = Parts(num_steps=4), Replacements(1000), []
  policy = fakes.FakePolicy(lambda turn, sampling: fakes.say("done"))
  batches = asyncio.run(
    train(
      make_actor(policy, Scored),
      parts,
      num_steps=4,
      group_size=12,
      replacements=replacements,
      on_group=lambda group, outcome: seen.append((group.ordinal, outcome)),
    )
  )
  trained = ordinals(batches)
  assert trained == mixed[:12]  # the others are all alike
  assert replacements.total == parts.gate.rejected == max(trained) - 11
  assert [o for o, outcome in seen if outcome is Outcome.ACCEPTED] == trained
  assert {outcome for _, outcome in seen} == {
    Outcome.ACCEPTED,
    Outcome.REJECTED,
  }
  assert sorted(o for o, _ in seen) == list(range(max(trained) + 1))


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_a_run_with_nothing_to_tell_apart_comes_to_its_end(max_staleness):
  parts = Parts(max_staleness=max_staleness, num_steps=4)
  replacements = Replacements(5)
  policy = fakes.FakePolicy(lambda turn, sampling: fakes.say("done"))
  batches = asyncio.run(
    train(make_actor(policy), parts, num_steps=4, replacements=replacements)
  )
  assert len(ordinals(batches)) == 12
  assert 5 <= replacements.total <= 20
  assert parts.gate.rejected == replacements.total


@pytest.mark.parametrize(
  ("group_size", "num_broken", "outcome"),
  [
    (2, 1, Outcome.FAILED),
    (4, 3, Outcome.FAILED),
    (4, 2, Outcome.ACCEPTED),
    (1, 0, Outcome.ACCEPTED),
    (1, 1, Outcome.FAILED),
  ],
)
def test_a_group_with_one_left_has_nobody_to_compare_with(
  group_size, num_broken, outcome
):
  made, seen = [], []

  def make_environment():
    made.append(None)
    if len(made) <= num_broken:
      raise KeyError("seats")
    return fakes.FakeEnvironment()

  parts = Parts(batch_size=1, max_concurrent=1)
  actor = make_actor(fakes.FakePolicy(fakes.by_seed), make_environment)
  batches = asyncio.run(
    train(
      actor,
      parts,
      num_steps=1,
      group_size=group_size,
      on_group=lambda group, outcome: seen.append((group.ordinal, outcome)),
    )
  )
  assert seen[0] == (0, outcome)
  assert ordinals(batches) == [0 if outcome is Outcome.ACCEPTED else 1]
  assert parts.gate.accepted == 1
  assert 0 not in parts.ledger
