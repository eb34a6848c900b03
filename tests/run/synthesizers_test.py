"""Tests of what a suite's episodes to imitate are made from."""

import asyncio
import dataclasses
import functools

import pytest

from arl_jax.episode import Task
from arl_jax.run import synthesizers
from arl_jax.run.flight_suite import FlightSettings, flight_booking_suite
from arl_jax.run.suite import Suite

SETTINGS = FlightSettings(
  reward_weights={"success": 1.0, "turns": -0.125, "turn_cost": 0.5}
)
WEIGHTS = SETTINGS.reward_weights


def experts(suite, number=24, *, careful=0.25, drill=True):
  return asyncio.run(
    synthesizers.make_experts(
      suite,
      number,
      reward_weights=WEIGHTS,
      seed=0,
      careful=careful,
      drill=drill,
    )
  )


@functools.cache
def made(method):
  suite = flight_booking_suite(SETTINGS)
  synthesizer = synthesizers.flight_synthesizer(SETTINGS)
  if method == "graph":
    return asyncio.run(
      synthesizers.make_paths(
        suite, synthesizer, 12, reward_weights=WEIGHTS, seed=0
      )
    )
  episodes, counts = experts(suite, 60)
  if method == "experts":
    return episodes, counts
  if method == "recovery":
    return asyncio.run(
      synthesizers.make_recoveries(
        suite, synthesizer, episodes, reward_weights=WEIGHTS, seed=0
      )
    )
  return asyncio.run(
    synthesizers.make_relabelled(
      suite, synthesizer, episodes, reward_weights=WEIGHTS
    )
  )


@pytest.mark.parametrize(
  "method", ["experts", "recovery", "graph", "hindsight"]
)
def test_rewards_that_the_environment_does_not_give_are_counted(method):
  episodes, _ = made(method)
  assert len(episodes) > 1
  for episode in episodes:
    turns = len(episode.turns)
    assert turns > 1
    # Each turn is 1 of `turns` and -1 of `turn_cost`.
    assert episode.reward == episode.success - 0.125 * turns - 0.5 * turns


def elsewhere(suite: Suite, *, drills: bool) -> Suite:
  """A suite whose experts play in another world, if they drill or always."""
  other = flight_booking_suite(dataclasses.replace(SETTINGS, show_times=False))

  def demonstrate(number, seed, careful, drill):
    where = other if drill or not drills else suite
    return where.demonstrate(number, seed, careful, drill)

  return dataclasses.replace(suite, demonstrate=demonstrate)


def test_experts_that_drill_elsewhere_play_at_home(caplog):
  suite = flight_booking_suite(SETTINGS)
  found = experts(elsewhere(suite, drills=True))
  assert "played in its own" in caplog.text
  caplog.clear()
  assert found == experts(suite, drill=False)
  assert found[1]["not_reproduced"] == 0
  assert found[1]["played"] == 24
  assert found != experts(suite)
  assert not caplog.text


def test_what_goes_otherwise_without_drill_is_left_out(caplog):
  suite = flight_booking_suite(SETTINGS)
  episodes, counts = experts(elsewhere(suite, drills=False), drill=False)
  assert counts["not_reproduced"] == 24 - len(episodes) > 0
  assert "does not answer the same each time" in caplog.text


def test_experts_of_other_tasks_than_the_environments_are_refused():
  suite = flight_booking_suite(SETTINGS)

  def demonstrate(*args):
    task = Task(task_id="foreign", prompt="2 + 2?", hidden={"gold": "4"})
    return [
      dataclasses.replace(one, task=task) for one in suite.demonstrate(*args)
    ]

  foreign = dataclasses.replace(suite, demonstrate=demonstrate)
  with pytest.raises(ValueError, match=r"which cannot be stored .*rejection"):
    experts(foreign, 4)
