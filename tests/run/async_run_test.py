"""Whole runs whose parts break, wait, stop, or are left out."""

import asyncio
import collections
import contextlib
import dataclasses
import errno
import os
import shutil
import signal
import threading
import time

import jax
import numpy as np
import pytest

from arl_jax import config as config_lib
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.run import saves, suites
from arl_jax.run.flight_suite import flight_booking_suite
from arl_jax.run.watchdog import StalledError
from arl_jax.trajectories import store
from tests import toy_runs
from tests.toy_runs import records, restored, run

_NUM_STEPS = 4


def make_config(**changes):
  small = {
    "warmup__num_steps": 2,
    "evaluation__num_tasks": 1,
    "environment__num_train_tasks": 64,
    "learner__num_steps": _NUM_STEPS,
  }
  return toy_runs.make_config(**small | changes)


def make_async(**changes):
  return make_config(rollout__mode="async", rollout__max_staleness=2, **changes)


def groups_of(folder):
  return list(store.read_groups(folder / "trajectories"))


def ordinals_of(folder):
  return [g.ordinal for _, groups in groups_of(folder) for g in groups]


def assert_equal(one, two):
  for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
    np.testing.assert_array_equal(a, b)


class Desk(FlightBookingEnv):
  """Flight booking that a test can break."""


def use_desk(monkeypatch, desk):
  def make(settings):
    whole = flight_booking_suite(settings)
    return dataclasses.replace(
      whole, make_environment=lambda: desk(style=settings.style)
    )

  kind = suites.SUITES["flight_booking"]._replace(make=make)
  monkeypatch.setitem(suites.SUITES, "flight_booking", kind)


@pytest.fixture(name="online", scope="module")
def make_online(tmp_path_factory):
  folder = tmp_path_factory.mktemp("runs") / "online"
  run(make_async(), folder)
  return folder


def test_every_trained_token_is_fresh_and_every_task_is_trained_once(online):
  assert sorted(ordinals_of(online)) == list(range(2 * _NUM_STEPS))
  ages = collections.Counter()
  for step, groups in groups_of(online):
    for row in (r for g in groups for e in g.episodes for r in e.rows):
      ages.update((step - row.policy_versions[row.action_mask]).tolist())
  assert min(ages) >= 0
  assert 0 < max(ages) <= 2
  # The metrics say the same as the episodes.
  assert max(r["staleness/max"] for r in records(online)) == max(ages)
  for record in records(online):
    assert record["groups/failed"] == record["groups/stale"] == 0
    assert record["engine_kl"] is not None
    assert 0 < record["ess"] <= 1


def test_a_store_holds_what_a_step_was_trained_on(online):
  rows = list(store.read_rows(online / "trajectories"))
  assert len(rows) == _NUM_STEPS * 2 * 4
  for row in rows:
    assert row.advantages is not None
    assert len(row.advantages) == len(row.row)
    assert not row.advantages[~row.row.action_mask].any()
    assert row.row.tokens.dtype == np.int32
  assert any(np.any(row.advantages) for row in rows)


def test_training_on_a_store_reproduces_the_weights(online, tmp_path):
  offline = make_async(
    debug__mode="train_from_store", debug__store=str(online / "trajectories")
  )
  assert run(offline, tmp_path / "offline") == {}
  assert_equal(
    restored(make_async(), online)[0],
    restored(offline, tmp_path / "offline")[0],
  )
  losses = [
    [record["loss"] for record in records(folder)]
    for folder in (online, tmp_path / "offline")
  ]
  assert losses[0] == losses[1]


def test_a_store_without_a_step_says_which(online, tmp_path):
  shutil.copytree(online / "trajectories", tmp_path / "store")
  (tmp_path / "store" / "step-00000000.jsonl").unlink()
  config = make_async(
    debug__mode="train_from_store", debug__store=str(tmp_path / "store")
  )
  with pytest.raises(ValueError, match="no step 0; it holds steps 1 to 3"):
    run(config, tmp_path / "run")
  assert not (tmp_path / "run").exists()


def test_a_store_that_does_not_fit_names_the_key(online, tmp_path):
  config = make_async(
    debug__mode="train_from_store",
    debug__store=str(online / "trajectories"),
    rollout__group_size=2,
  )
  with pytest.raises(ValueError, match=r"\* max_rows_per_episode is 4;"):
    run(config, tmp_path / "run")
  assert not (tmp_path / "run").exists()


def test_rollout_only_samples_and_learns_nothing(tmp_path):
  run(make_async(debug__mode="rollout_only"), tmp_path)
  assert sorted(ordinals_of(tmp_path)) == list(range(2 * _NUM_STEPS))
  versions = {
    int(version)
    for row in store.read_rows(tmp_path / "trajectories")
    for version in row.row.policy_versions[row.row.action_mask]
  }
  assert versions == {0}
  assert not list((tmp_path / "checkpoints").iterdir())


def test_a_simulated_learner_lets_versions_pass(tmp_path):
  config = make_async(
    debug__mode="simulated_learner", debug__learn_seconds=0.05
  )
  before_and_after = []
  metrics = run(config, tmp_path)
  before_and_after = [r["reward/mean"] for r in records(tmp_path, "eval")]
  assert before_and_after == [metrics["reward/mean"]] * 2
  newest = max(
    int(row.row.policy_versions.max())
    for row in store.read_rows(tmp_path / "trajectories")
  )
  assert newest > 0
  assert max(r["staleness/max"] for r in records(tmp_path)) <= 2


def stop_after_step(monkeypatch, last):
  """Sends SIGTERM while a step's episodes are being stored."""
  original = saves.Saves.store

  def write(self, step, groups, advantages):
    original(self, step, groups, advantages)
    if step == last:
      os.kill(os.getpid(), signal.SIGTERM)

  monkeypatch.setattr(saves.Saves, "store", write)


@pytest.mark.parametrize("damage", ["none", "torn", "missing"])
def test_finished_groups_wait_for_the_resume(
  tmp_path, monkeypatch, caplog, damage
):
  with monkeypatch.context() as patch:
    stop_after_step(patch, 1)
    assert run(make_async(checkpoint__every=100), tmp_path) == {}
  (file,) = (tmp_path / "pending").glob("00000002.jsonl")
  text = file.read_text()
  if damage == "torn":
    file.write_text(text[: len(text) // 2])
  elif damage == "missing":
    file.unlink()
  # Also on another number of devices.
  run(make_async(), tmp_path, num_devices=2)
  assert sorted(ordinals_of(tmp_path)) == list(range(2 * _NUM_STEPS))
  assert ("run again" in caplog.text) == (damage == "torn")
  assert [r["step"] for r in records(tmp_path)] == list(range(_NUM_STEPS))


def test_a_stop_does_not_wait_for_a_tool(tmp_path, monkeypatch):
  class Stuck(Desk):
    async def step(self, action):
      os.kill(os.getpid(), signal.SIGTERM)
      monkeypatch.setattr(Stuck, "step", Stuck.hang)
      await self.hang(action)

    async def hang(self, action):
      del action
      await asyncio.Event().wait()

  use_desk(monkeypatch, Stuck)
  config = make_async(
    rollout__step_timeout_seconds=3000.0,
    rollout__episode_timeout_seconds=3000.0,
    failures__watchdog_seconds=0.0,
  )
  assert run(config, tmp_path) == {}
  assert [r["step"] for r in records(tmp_path)] == []
  assert (tmp_path / "checkpoints" / "0").exists()


def test_a_full_disk_stops_the_run_and_costs_no_step(tmp_path, monkeypatch):
  original = saves.TrajectoryStore.write

  def fill(self, step, groups, advantages):
    if step == 2:
      raise OSError(errno.ENOSPC, "the disk is full: free space")
    original(self, step, groups, advantages)

  with monkeypatch.context() as patch:
    patch.setattr(saves.TrajectoryStore, "write", fill)
    with pytest.raises(OSError, match="free space"):
      run(make_async(), tmp_path)
  run(make_async(), tmp_path)
  assert sorted(ordinals_of(tmp_path)) == list(range(2 * _NUM_STEPS))


def test_a_broken_environment_ends_the_run_with_the_first_cause(
  tmp_path, monkeypatch
):
  class Closed(Desk):
    count = 0

    async def reset(self, task, *, seed):
      Closed.count += 1
      # It is open for a look at 8 prompts and 1 held-out one, and for the
      # evaluation.
      if Closed.count > 10:
        raise OSError(f"the desk is closed, visit {Closed.count}")
      return await super().reset(task, seed=seed)

  use_desk(monkeypatch, Closed)
  config = make_async(failures__max_in_a_row=20)
  with pytest.raises(RuntimeError, match="first cause: .*closed, visit 11\n"):
    run(config, tmp_path)
  assert 30 < Closed.count < 70


def test_an_evaluation_that_only_failed_is_not_recorded(tmp_path, monkeypatch):
  class Broken(Desk):
    async def step(self, action):
      raise OSError("the desk is on fire")

  use_desk(monkeypatch, Broken)
  with pytest.raises(RuntimeError, match="none of the 1 .*desk is on fire"):
    run(make_config(), tmp_path)
  assert records(tmp_path, "eval") == []


async def never():
  """Waits for ever, and does not hear that it is cancelled."""
  while True:
    with contextlib.suppress(asyncio.CancelledError):
      await asyncio.Event().wait()


def test_a_run_that_stands_still_ends_and_says_where(tmp_path, monkeypatch):
  class Deaf(Desk):
    async def step(self, action):
      del action
      return await never()

  use_desk(monkeypatch, Deaf)
  config = make_async(
    rollout__step_timeout_seconds=1.0,
    rollout__episode_timeout_seconds=2.0,
    failures__watchdog_seconds=4.0,
  )
  with pytest.raises(StalledError, match="an evaluation runs, 0 groups"):
    run(config, tmp_path)


def test_a_deaf_environment_costs_its_episode(tmp_path, monkeypatch):
  class Deaf(Desk):
    count = 0

    async def step(self, action):
      Deaf.count += 1
      if Deaf.count in (1, 6):  # in the evaluation, and in the training
        return await never()
      return await super().step(action)

  use_desk(monkeypatch, Deaf)
  monkeypatch.setattr("arl_jax.actors.pool.CANCEL_GRACE_SECONDS", 0.1)
  monkeypatch.setattr("arl_jax.run.guard._CLOSE_SECONDS", 0.1)
  config = make_async(
    rollout__step_timeout_seconds=1.0,
    rollout__episode_timeout_seconds=100.0,
    rollout__group_timeout_seconds=15.0,
    learner__num_steps=1,
    evaluation__num_tasks=2,
  )
  assert run(config, tmp_path)["failed_fraction"] == 0.0
  before, after = records(tmp_path, "eval")
  assert (before["failed_fraction"], after["failed_fraction"]) == (0.5, 0.0)
  statuses = [
    str(episode.status)
    for _, groups in groups_of(tmp_path)
    for group in groups
    for episode in group.episodes
  ]
  assert statuses.count("group_timeout") == 1
  assert len(statuses) == 8


def test_the_second_interrupt_does_not_wait_for_an_update(
  tmp_path, monkeypatch
):
  released = threading.Event()

  def learn(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)  # two at the same moment are one
    os.kill(os.getpid(), signal.SIGINT)
    released.wait(60)

  monkeypatch.setattr("arl_jax.run.learners.learn", learn)
  try:
    with pytest.raises(KeyboardInterrupt):
      run(make_async(), tmp_path)
    assert "learner" in {thread.name for thread in threading.enumerate()}
  finally:
    released.set()


def test_episodes_of_an_earlier_run_are_not_written_over(tmp_path, capsys):
  config = make_async(debug__mode="rollout_only", learner__num_steps=2)
  run(config, tmp_path)
  before = ordinals_of(tmp_path)
  for again in (config, make_async()):
    with pytest.raises(config_lib.ConfigError, match="episodes of an earlier"):
      run(again, tmp_path)
  assert ordinals_of(tmp_path) == before


def test_a_debug_run_does_not_promise_to_go_on(tmp_path, monkeypatch, capsys):
  stop_after_step(monkeypatch, 1)
  run(make_async(debug__mode="rollout_only"), tmp_path)
  assert "rollout_only cannot go on" in capsys.readouterr().out
  assert len(ordinals_of(tmp_path)) == 4


def test_a_store_stays_true_where_a_part_of_a_run_stored_nothing(
  tmp_path, monkeypatch
):
  with monkeypatch.context() as patch:
    # As if it had been killed after a step that no checkpoint holds.
    patch.setattr(saves.Saves, "is_due", lambda self, version: version == 1)
    patch.setattr(saves.Saves, "save", keep_first(saves.Saves.save))
    run(make_async(learner__num_steps=3), tmp_path)
  assert [step for step, _ in groups_of(tmp_path)] == [0, 1, 2]
  run(make_async(store__max_gigabytes=0.0, learner__num_steps=3), tmp_path)
  assert [step for step, _ in groups_of(tmp_path)] == [0]


def keep_first(save):
  def maybe(self, version, *rest):
    if version <= 1:
      save(self, version, *rest)

  return maybe


def test_all_actors_killed_end_the_run(tmp_path, monkeypatch):
  class Killer(Desk):
    async def step(self, action):
      for task in asyncio.all_tasks():
        if task.get_name().startswith("actor "):
          task.cancel()
      return await super().step(action)

  use_desk(monkeypatch, Killer)
  # NeMo#3488: a trainer that polls an empty buffer for hours.
  config = make_async(evaluation__num_tasks=1)
  with monkeypatch.context() as patch:
    patch.setattr(
      "arl_jax.run.collector.measure_policy", lambda *_: asyncio.sleep(0)
    )
    with pytest.raises(RuntimeError, match="actors ended without an error"):
      run(config, tmp_path)


def test_groups_without_variance_are_replaced_up_to_a_bound(tmp_path):
  config = make_config(
    rollout__max_replaced_groups=3,
    environment__reward_weights={"success": 1.0},  # never reached
    learner__num_steps=2,
  )
  run(config, tmp_path)
  assert [r["groups/replaced"] for r in records(tmp_path)] == [3.0, 3.0]
  assert [r["num_updates"] for r in records(tmp_path)] == [0, 0]
  assert len(ordinals_of(tmp_path)) == 4
  assert max(ordinals_of(tmp_path)) == 9


def test_each_evaluation_happens_once(tmp_path):
  # tunix#1523: once per micro-batch at a boundary.
  config = make_config(
    evaluation__every=1, learner__num_steps=2, learner__micro_batch_rows=1
  )
  run(config, tmp_path)
  assert [r["step"] for r in records(tmp_path, "eval")] == [0, 1, 2]
