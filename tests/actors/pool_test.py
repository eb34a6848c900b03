"""Groups and lists of tasks."""

import asyncio
import contextlib
import logging

import pytest

from arl_jax.actors import pool
from arl_jax.actors.pool import run_group, run_tasks
from arl_jax.actors.rollout import Limits
from arl_jax.episode import EpisodeStatus, Task
from tests.actors import fakes
from tests.actors.fakes import TASK, make_actor

TASKS = [Task(task_id=f"t{i}", prompt=f"go {i}") for i in range(5)]


def group_of(actor, *, group_size=8, ordinal=0, **settings):
  group = run_group(
    actor, TASK, ordinal=ordinal, group_size=group_size, **settings
  )
  return asyncio.run(asyncio.wait_for(group, timeout=30))


def one_world(number, on_step):
  """Makes environments of which one does something else."""
  worlds = []

  def make_environment():
    def step(environment, action):
      return on_step() if environment is worlds[number] else None

    worlds.append(fakes.FakeEnvironment(step))
    return worlds[-1]

  return make_environment


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


def broken():
  raise KeyError("seats")


def test_one_broken_member_fails_alone():
  group = group_of(
    make_actor(fakes.FakePolicy(fakes.by_seed), one_world(3, broken)),
    group_size=64,
  )
  failed = [e for e in group.episodes if e.status is EpisodeStatus.FAILED]
  assert [e.member for e in failed] == [3]
  assert "seats" in failed[0].error
  assert sum(e.success for e in group.episodes) == 63


def test_a_world_that_cannot_be_made_fails_alone():
  made = []

  def make_environment():
    made.append(None)
    if len(made) == 3:
      raise OSError("no sandbox left")
    return fakes.FakeEnvironment()

  group = group_of(
    make_actor(fakes.FakePolicy(fakes.by_seed), make_environment)
  )
  (failed,) = [e for e in group.episodes if not e.status.finished]
  assert failed.status is EpisodeStatus.FAILED
  assert failed.member == 2
  first, *trace = failed.error.splitlines()
  assert first == "make_environment raised OSError: no sandbox left"
  assert "in make_environment" in "".join(trace)
  assert sum(e.success for e in group.episodes) == 7


def test_one_stuck_member_does_not_hold_the_group():
  group = group_of(
    make_actor(
      fakes.FakePolicy(fakes.by_seed),
      one_world(5, fakes.forever),
      limits=Limits(max_turns=3, episode_timeout_seconds=0.05),
    )
  )
  statuses = [e.status for e in group.episodes]
  assert statuses.count(EpisodeStatus.TERMINATED) == 7
  assert statuses[5] is EpisodeStatus.TIMEOUT


def test_a_member_that_never_returns_is_cancelled_at_the_groups_limit():
  """One of 8 held the whole step for ever in NeMo-RL#3238."""
  policy = fakes.FakePolicy(fakes.by_seed)
  group = group_of(
    make_actor(policy, one_world(5, fakes.forever)), timeout_seconds=1.0
  )
  (late,) = [e for e in group.episodes if not e.status.finished]
  assert late.status is EpisodeStatus.GROUP_TIMEOUT
  assert not late.status.truncated
  assert late.member == 5
  assert "timeout_seconds of 1" in late.error
  assert late.seconds >= 0.9
  assert (late.rows, late.total_reward, late.success) == ((), 0.0, False)
  assert sum(e.success for e in group.episodes) == 7
  assert not policy.alive


def test_a_member_that_ignores_its_end_is_left_behind(monkeypatch, caplog):
  monkeypatch.setattr(pool, "CANCEL_GRACE_SECONDS", 0.05)

  release = asyncio.Event()

  async def deaf():
    while not release.is_set():
      try:
        await release.wait()
      except asyncio.CancelledError:
        pass

  async def main():
    policy = fakes.FakePolicy(fakes.by_seed)
    actor = make_actor(policy, one_world(5, deaf))
    with caplog.at_level(logging.WARNING):
      running = asyncio.create_task(
        run_group(actor, TASK, ordinal=9, group_size=8, timeout_seconds=1.0)
      )
      done, _ = await asyncio.wait([running], timeout=20)
    assert done
    group = running.result()
    statuses = [e.status for e in group.episodes]
    assert statuses[5] is EpisodeStatus.GROUP_TIMEOUT
    assert statuses.count(EpisodeStatus.TERMINATED) == 7
    (record,) = caplog.records
    assert "episode train/9/5 ignores" in record.getMessage()
    # Somebody knows of it as long as it lives, and it may end well.
    (left,) = pool._ENDING
    assert set(policy.alive) == {"train/9/5"}
    # Another attempt at the same group does not meet it.
    again = await run_group(
      make_actor(policy), TASK, ordinal=9, group_size=8, attempt=1
    )
    assert texts(again.episodes)[:5] == texts(group.episodes)[:5]
    assert set(policy.alive) == {"train/9/5"}
    release.set()
    await asyncio.wait([left], timeout=20)
    assert not policy.alive
    assert not pool._ENDING

  async def main_to_its_end():
    try:
      await main()
    finally:
      release.set()  # or what is left behind would outlive a failure

  asyncio.run(main_to_its_end())


def test_a_list_of_tasks_leaves_a_deaf_episode_behind(monkeypatch):
  monkeypatch.setattr(pool, "CANCEL_GRACE_SECONDS", 0.05)

  async def main():
    release = asyncio.Event()

    async def deaf():
      while not release.is_set():
        with contextlib.suppress(asyncio.CancelledError):
          await release.wait()

    actor = make_actor(fakes.FakePolicy(fakes.by_seed), one_world(1, deaf))
    try:
      return await run_tasks(
        actor, [TASK] * 4, max_concurrent=2, timeout_seconds=1.0
      )
    finally:
      release.set()

  statuses = [episode.status for episode in asyncio.run(main())]
  assert statuses.count(EpisodeStatus.TERMINATED) == 3
  assert statuses[1] is EpisodeStatus.GROUP_TIMEOUT


def test_a_group_within_its_limit_is_as_without_one():
  groups = [
    group_of(make_actor(fakes.FakePolicy(fakes.by_seed)), timeout_seconds=limit)
    for limit in (float("inf"), 60.0)
  ]
  assert texts(groups[0].episodes) == texts(groups[1].episodes)
  assert all(e.success for e in groups[1].episodes)


def test_the_first_bug_ends_the_others_and_is_the_one_that_is_raised():
  class Broken(fakes.FakePolicy):
    async def generate(self, token_ids, *, sampling, session):
      if session[-1] == "6":
        raise ZeroDivisionError("engine")
      if session[-1] == "2":
        try:
          await fakes.forever()
        finally:
          raise KeyError("a later one")
      return await super().generate(
        token_ids, sampling=sampling, session=session
      )

  policy = Broken(fakes.by_seed)
  with pytest.raises(ZeroDivisionError, match="engine"):
    group_of(make_actor(policy, lambda: fakes.FakeEnvironment(fakes.forever)))
  assert not policy.alive
  assert len(policy.ended) == 8


def test_three_of_eight_that_somebody_cancels_leave_the_group_complete():
  """The group never ended in trl#7176."""

  async def main():
    policy = fakes.FakePolicy(fakes.by_seed)
    actor = make_actor(policy, one_world(7, asyncio.Event().wait))
    group = asyncio.create_task(run_group(actor, TASK, ordinal=0, group_size=8))
    for _ in range(4):
      await asyncio.sleep(0)
    names = {f"train/0/{member}" for member in (1, 4, 7)}
    for task in asyncio.all_tasks():
      if task.get_name() in names:
        task.cancel()
    return await asyncio.wait_for(group, timeout=20)

  group = asyncio.run(main())
  failed = [e for e in group.episodes if not e.status.finished]
  assert [e.member for e in failed] == [1, 4, 7]
  assert {e.status for e in failed} == {EpisodeStatus.FAILED}
  assert all("was cancelled" in e.error for e in failed)
  assert sum(e.success for e in group.episodes) == 5


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


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"group_size": 0}, "group_size is 0"),
    ({"timeout_seconds": 0.0}, "timeout_seconds is 0.0"),
    ({"timeout_seconds": float("nan")}, "timeout_seconds is nan"),
  ],
)
def test_bad_arguments(settings, message):
  with pytest.raises(ValueError, match=message):
    group_of(make_actor(fakes.FakePolicy(fakes.by_seed)), **settings)


def test_rewards_of_an_episode_join_those_of_its_environment():
  actor = make_actor(
    fakes.FakePolicy(fakes.by_seed),
    reward_weights={"success": 1.0, "step": 0.25, "each": 0.5},
    reward_fns={"each": lambda episode: [1.0, 0.0, 3.0]},
  )
  for episode in group_of(actor, group_size=2).episodes:
    assert [turn.reward for turn in episode.turns] == [0.75, 0.25, 2.75]
    assert episode.reward_components["each"] == 4.0
    assert episode.success


@pytest.mark.parametrize("bad", [float("nan"), None, [1.0]])
def test_a_reward_that_breaks_fails_its_episode_alone(bad):
  def reward(episode):
    return bad if episode.member == 1 else 1.0

  policy = fakes.FakePolicy(fakes.by_seed)
  actor = make_actor(policy, reward_fns={"mine": reward})
  first, second = group_of(actor, group_size=2).episodes
  assert first.success
  assert second.status is EpisodeStatus.FAILED
  assert second.reward_components == {}
  assert "reward 'mine' gave" in second.error
  assert second.rows
