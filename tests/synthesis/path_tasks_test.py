"""Tests of tasks that come from paths of calls."""

import asyncio

import pytest

from arl_jax.envs import search_tasks
from arl_jax.synthesis.flight_paths import FlightPaths
from arl_jax.synthesis.path_tasks import PathSettings, synthesize_paths
from arl_jax.synthesis.replay import verify
from arl_jax.synthesis.search_paths import SearchPaths
from tests.envs import tiny_world
from tests.synthesis import played

TASKS = played.flight_tasks_of(40, drill=False)
SEARCHES = PathSettings(goal="open", connect_chance=0.6, expand_chance=0.1)


def flights(style, number, **options):
  return asyncio.run(
    synthesize_paths(
      FlightPaths(lambda index: TASKS[index % len(TASKS)], style=style),
      settings=PathSettings(goal="book"),
      make_environment=played.flight_environment(style),
      number=number,
      **options,
    )
  )


def searches(number, seed=0):
  return asyncio.run(
    synthesize_paths(
      SearchPaths(tiny_world.atlas(), style="tags"),
      settings=SEARCHES,
      make_environment=played.search_environment(),
      number=number,
      seed=seed,
    )
  )


@pytest.mark.parametrize("style", ["hermes", "compact"])
def test_every_path_is_a_request_whose_booking_is_right(style):
  episodes, counts = flights(style, 60)
  assert len(episodes) == counts["kept"] == 60
  assert len({episode.task.prompt for episode in episodes}) == 60
  lost = ("no_value", "same_call", "tool_error", "no_goal", "not_verified")
  assert counts["run"] == 60 + sum(
    counts[name] for name in (*lost, "same_task")
  )
  for episode in episodes:
    assert asyncio.run(verify(episode, played.flight_environment(style)))
    assert len(episode.tags[0].split(">")) == len(episode.turns) - 1
  assert len({episode.tags for episode in episodes}) > 8


def test_searches_answer_questions_of_one_and_of_two_facts():
  episodes, counts = searches(40)
  assert len(episodes) == 40
  assert counts["kept/search>open>search>open"] > 5
  assert counts["kept/search>open"] > 5
  kinds = {episode.task.hidden["kind"] for episode in episodes}
  assert kinds == {"lookup", "compare", "border"}
  held = [
    country.name
    for code, country in tiny_world.atlas().countries.items()
    if search_tasks.is_held_out(code)
  ]
  for episode in episodes:
    assert asyncio.run(verify(episode, played.search_environment()))
    assert not any(name in episode.task.prompt for name in held)


def test_a_seed_fixes_the_paths():
  assert searches(6) == searches(6)
  assert searches(6)[0] != searches(6, seed=1)[0]
  assert flights("hermes", 6) == flights("hermes", 6)


def test_rewards_are_weighed_over_the_whole_episode():
  weights = {"success": 1.0, "turns": -0.125}
  episodes, _ = flights("hermes", 5, reward_weights=weights)
  for episode in episodes:
    assert episode.reward == 1.0 - 0.125 * len(episode.turns)


def test_a_goal_that_no_path_reaches_is_an_error():
  with pytest.raises(ValueError, match="no path of 4 calls or fewer leads to"):
    asyncio.run(
      synthesize_paths(
        SearchPaths(tiny_world.atlas(), style="tags"),
        settings=PathSettings(goal="book"),
        make_environment=played.search_environment(),
        number=1,
      )
    )
