"""Groups and lists of tasks."""

import asyncio

import pytest

from arl_jax.actors.pool import run_group, run_tasks
from arl_jax.actors.rollout import Limits
from arl_jax.episode import EpisodeStatus, Task
from tests.actors import fakes
from tests.actors.fakes import TASK, make_actor

TASKS = [Task(task_id=f"t{i}", prompt=f"go {i}") for i in range(5)]


def group_of(actor, *, group_size=8, ordinal=0):
  return asyncio.run(
    run_group(actor, TASK, ordinal=ordinal, group_size=group_size)
  )


def texts(episodes):
  return [tuple(turn.action for turn in e.turns) for e in episodes]


def test_the_members_of_a_group_differ_and_repeat():
  groups = [
    group_of(make_actor(fakes.FakePolicy(fakes.by_seed), seed=seed))
    for seed in (0, 0, 1)
  ]
  first, again, other = (texts(group.episodes) for group in groups)
  assert len(set(first)) == 8
  assert first == again
  assert not set(first) & set(other)
  assert [e.member for e in groups[0].episodes] == list(range(8))


def test_the_order_of_events_repeats():
  def log():
    policy = fakes.FakePolicy(fakes.by_seed)
    group_of(make_actor(policy))
    return [(call.session, call.fed, call.sampled) for call in policy.calls]

  assert log() == log()


def test_every_member_has_a_world_of_its_own():
  worlds = []

  def make_environment():
    worlds.append(fakes.FakeEnvironment())
    return worlds[-1]

  policy = fakes.FakePolicy(fakes.by_seed)
  group = group_of(make_actor(policy, make_environment))
  assert [tuple(world.actions) for world in worlds] == texts(group.episodes)
  assert len({world.seed for world in worlds}) == 8
  assert len({call.session for call in policy.calls}) == 8
  assert not policy.alive


def test_one_broken_member_fails_alone():
  worlds = []

  def on_step(environment, action):
    if environment is worlds[3]:
      raise KeyError("seats")

  def make_environment():
    worlds.append(fakes.FakeEnvironment(on_step))
    return worlds[-1]

  group = group_of(
    make_actor(fakes.FakePolicy(fakes.by_seed), make_environment),
    group_size=64,
  )
  failed = [e for e in group.episodes if e.status is EpisodeStatus.FAILED]
  assert [e.member for e in failed] == [3]
  assert "seats" in failed[0].error
  assert sum(e.success for e in group.episodes) == 63


def test_one_stuck_member_does_not_hold_the_group():
  worlds = []

  def on_step(environment, action):
    return fakes.forever() if environment is worlds[5] else None

  def make_environment():
    worlds.append(fakes.FakeEnvironment(on_step))
    return worlds[-1]

  group = group_of(
    make_actor(
      fakes.FakePolicy(fakes.by_seed),
      make_environment,
      limits=Limits(max_turns=3, episode_timeout_seconds=0.05),
    )
  )
  statuses = [e.status for e in group.episodes]
  assert statuses.count(EpisodeStatus.TERMINATED) == 7
  assert statuses[5] is EpisodeStatus.TIMEOUT


def test_cancelled_members_leave_the_group_complete():
  class Cancelling(fakes.FakePolicy):
    async def generate(self, token_ids, *, sampling, session):
      if session[-1] in "146":  # as an engine does that drops its requests
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
      return await super().generate(
        token_ids, sampling=sampling, session=session
      )

  policy = Cancelling(fakes.by_seed)
  group = group_of(make_actor(policy))
  failed = [
    e.member for e in group.episodes if e.status is EpisodeStatus.FAILED
  ]
  assert failed == [1, 4, 6]
  assert "was cancelled" in group.episodes[1].error
  assert sum(e.success for e in group.episodes) == 5
  episodes = asyncio.run(
    run_tasks(
      make_actor(Cancelling(fakes.by_seed)),
      TASKS,
      max_concurrent=2,
      samples_per_task=3,
    )
  )
  assert [e.status is EpisodeStatus.FAILED for e in episodes] == (
    [False, True, False] * 5
  )


def test_a_cancelled_group_ends_all_its_members():
  policy = fakes.FakePolicy(fakes.by_seed)
  actor = make_actor(policy, lambda: fakes.FakeEnvironment(fakes.forever))

  async def main():
    with pytest.raises(TimeoutError):
      await asyncio.wait_for(
        run_group(actor, TASK, ordinal=0, group_size=4), timeout=0.02
      )

  asyncio.run(main())
  assert len(policy.ended) == 4
  assert not policy.alive


def test_a_bug_is_raised_as_itself():
  def script(turn, sampling):
    raise ZeroDivisionError("engine")

  policy = fakes.FakePolicy(script)
  with pytest.raises(ZeroDivisionError, match="engine"):
    group_of(make_actor(policy))
  with pytest.raises(ZeroDivisionError, match="engine"):
    asyncio.run(run_tasks(make_actor(policy), TASKS, max_concurrent=2))


@pytest.mark.parametrize("max_concurrent", [1, 3, 50])
def test_tasks_come_back_in_order_and_bounded(max_concurrent):
  policy, ended = fakes.FakePolicy(fakes.by_seed), []
  episodes = asyncio.run(
    run_tasks(
      make_actor(policy, name="evaluate"),
      TASKS,
      max_concurrent=max_concurrent,
      samples_per_task=2,
      on_episode=ended.append,
    )
  )
  assert [(e.task.task_id, e.member) for e in episodes] == [
    (task.task_id, sample) for task in TASKS for sample in range(2)
  ]
  assert len(set(texts(episodes))) == 10
  assert sorted(map(id, ended)) == sorted(map(id, episodes))
  assert policy.most_alive == min(max_concurrent, 10)
  assert policy.calls[0].session.startswith("evaluate/")


def test_results_do_not_depend_on_the_bound():
  results = [
    texts(
      asyncio.run(
        run_tasks(
          make_actor(fakes.FakePolicy(fakes.by_seed)),
          TASKS,
          max_concurrent=bound,
        )
      )
    )
    for bound in (1, 4)
  ]
  assert results[0] == results[1]


def test_failed_episodes_are_returned():
  def on_step(environment, action):
    raise KeyError("seats")

  actor = make_actor(
    fakes.FakePolicy(fakes.by_seed), lambda: fakes.FakeEnvironment(on_step)
  )
  episodes = asyncio.run(run_tasks(actor, TASKS, max_concurrent=2))
  assert [e.status for e in episodes] == [EpisodeStatus.FAILED] * 5


def test_no_tasks_no_episodes():
  actor = make_actor(fakes.FakePolicy(fakes.by_seed))
  assert asyncio.run(run_tasks(actor, [], max_concurrent=2)) == []
  with pytest.raises(ValueError, match="max_concurrent is 0"):
    asyncio.run(run_tasks(actor, TASKS, max_concurrent=0))
