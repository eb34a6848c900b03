"""Tests of failures that become successes at something else."""

import asyncio
import dataclasses

import pytest

from arl_jax.envs import flight_json, search_tasks
from arl_jax.envs.flight_text import Request
from arl_jax.envs.flight_world import Fare, Flight, World
from arl_jax.episode import Task, ToolCall
from arl_jax.synthesis.flight_goals import relabel_flight, task_of
from arl_jax.synthesis.hindsight import hindsight_relabel, relabel_failures
from arl_jax.synthesis.replay import recorded, verify
from arl_jax.synthesis.search_goals import AnsweredQuestions, is_supported
from arl_jax.text.tool_calls import render_tool_call
from tests.envs import tiny_world
from tests.synthesis import played

DEAR_AND_EARLY = Flight(
  number="KL215",
  origin="BOS",
  destination="LAX",
  date="May 12",
  time="06:10",
  fares={"economy": Fare(price=400, seats=1)},
)
CHEAP_AND_LATE = dataclasses.replace(
  DEAR_AND_EARLY,
  number="LH104",
  time="12:10",
  fares={"economy": Fare(price=200, seats=1)},
)
WORLD = World(
  flights=(DEAR_AND_EARLY, CHEAP_AND_LATE),
  passengers=("Ana Silva", "Leo Braun"),
)
REQUEST = Request(
  kind="cheapest",
  cabin="economy",
  origin="BOS",
  destination="LAX",
  dates=("May 12",),
  passenger="Ana Silva",
)
TASK = task_of(Task(task_id="t", prompt=""), WORLD, REQUEST, suffix="0")


def call(name, **arguments):
  return render_tool_call(
    ToolCall(name=name, arguments=arguments), style="hermes"
  )


SEARCH = call(
  "search", **{"from": "BOS", "to": "LAX", "date": "May 12", "cabin": "economy"}
)


def book(number, passenger="Ana Silva"):
  return call("book", passenger=passenger, flight=number, cabin="economy")


def relabelled(*actions):
  episode = played.episode_of(
    played.flight_environment(), TASK, recorded(actions)
  )
  assert not episode.success
  return asyncio.run(
    hindsight_relabel(
      episode,
      relabel_flight("hermes"),
      make_environment=played.flight_environment(),
    )
  )


def test_a_booking_of_another_flight_is_right_for_another_request():
  found = relabelled(SEARCH, book("KL215"), "Booked.")
  assert found is not None
  assert found.task.prompt == (
    "Book the earliest economy flight BOS to LAX on May 12 for Ana Silva."
  )
  assert found.turns[0].observations[0].content == found.task.prompt
  assert flight_json.read_hidden(found.task.hidden)[1].kind == "earliest"
  assert found.success
  assert found.reward == 1.0
  assert asyncio.run(verify(found, played.flight_environment()))


def test_a_booking_for_somebody_else_is_right_for_them():
  found = relabelled(SEARCH, book("LH104", "Leo Braun"), "Booked.")
  assert found is not None
  assert found.task.prompt.endswith("for Leo Braun.")
  assert "cheapest" in found.task.prompt


@pytest.mark.parametrize(
  "actions",
  [
    (SEARCH, "No flight fits."),
    (SEARCH, book("LH104"), book("KL215"), "Booked."),
    # It sorted by price, and took what is the best by time alone.
    (SEARCH, call("sort", by="price"), book("KL215"), "Booked."),
    # Nobody looked for what was booked.
    (book("KL215"), "Booked."),
  ],
)
def test_what_no_request_is_answered_by_stays_a_failure(actions):
  assert relabelled(*actions) is None


def test_a_wrong_relabeler_is_found_out_by_the_replay():
  episode = played.episode_of(
    played.flight_environment(), TASK, recorded([SEARCH, book("KL215"), "."])
  )
  assert (
    asyncio.run(
      hindsight_relabel(
        episode,
        lambda episode: [episode.task],
        make_environment=played.flight_environment(),
      )
    )
    is None
  )


@pytest.mark.parametrize("style", ["hermes", "compact"])
def test_some_failures_of_experts_are_successes_at_something(style):
  episodes = played.flight_episodes(120, style=style, careful=0.0)
  kept, counts = asyncio.run(
    relabel_failures(
      episodes,
      relabel_flight(style),
      make_environment=played.flight_environment(style),
    )
  )
  assert counts["given"] == 120
  assert counts["kept"] == len(kept) > 5
  assert sum(counts.values()) == 240
  for episode in kept:
    assert asyncio.run(verify(episode, played.flight_environment(style)))


def test_answers_to_other_questions_are_found_with_their_evidence():
  episodes = played.search_episodes(160, careful=0.0)
  make_environment = played.search_environment()
  kept, counts = asyncio.run(
    relabel_failures(
      episodes,
      AnsweredQuestions(tiny_world.atlas()).relabel,
      make_environment=make_environment,
      accept=lambda replay: is_supported(replay.scores),
    )
  )
  assert counts["kept"] == len(kept) > 3
  held = {
    country.name
    for code, country in tiny_world.atlas().countries.items()
    if search_tasks.is_held_out(code)
  }
  asked = {episode.task.prompt for episode in episodes}
  for episode in kept:
    assert asyncio.run(verify(episode, make_environment))
    assert episode.task.prompt not in asked
    assert not any(name in episode.task.prompt for name in held)
