"""Tests of episodes that recover from a mistake."""

import asyncio

import pytest

from arl_jax.synthesis.mistakes import flight_mistakes, search_mistakes
from arl_jax.synthesis.recovery import Mistake, recovery_variants
from arl_jax.synthesis.replay import verify
from arl_jax.synthesis.scripts import flight_script, search_script
from tests.synthesis import played


def variants(episodes, mistakes, make_environment, make_script=None):
  return asyncio.run(
    recovery_variants(
      episodes,
      mistakes,
      make_environment=make_environment,
      make_script=make_script,
    )
  )


def flight_variants(number, style):
  return variants(
    played.flight_episodes(number, style=style),
    flight_mistakes(style),
    played.flight_environment(style),
    lambda episode: flight_script(episode.task.prompt, style=style),
  )


@pytest.mark.parametrize("style", ["hermes", "compact"])
def test_flights_are_booked_after_every_kind_of_mistake(style):
  kept, counts = flight_variants(80, style)
  names = {mistake.name for mistake in flight_mistakes(style)}
  assert {episode.tags[1] for episode in kept} == names
  assert counts["kept"] == len(kept) > 60
  assert counts["kept"] == sum(counts[f"kept/{name}"] for name in names)
  for episode in kept:
    assert asyncio.run(verify(episode, played.flight_environment(style)))
    (place,) = [i for i, t in enumerate(episode.turns) if not t.trained]
    answer = episode.turns[place + 1].observations[0].content
    told = "0 seats" if episode.tags[1] == "sold_out" else "error: "
    assert answer.startswith(told)


@pytest.mark.parametrize("style", ["tags", "hermes"])
def test_questions_are_answered_after_every_kind_of_mistake(style):
  make_environment = played.search_environment(style)
  kept, counts = variants(
    played.search_episodes(40, style=style),
    search_mistakes(style),
    make_environment,
    lambda episode: search_script(episode.task.prompt, style=style),
  )
  names = {mistake.name for mistake in search_mistakes(style)}
  assert {episode.tags[1] for episode in kept} == names
  assert counts["kept"] == len(kept) == 40
  for episode in kept:
    assert asyncio.run(verify(episode, make_environment))
    (wrong,) = [turn for turn in episode.turns if not turn.trained]
    assert wrong != episode.turns[-1]


def test_a_variant_differs_from_its_episode_by_the_mistake():
  """In a market that stands still, all else is as before."""
  episodes = [e for e in played.flight_episodes(24) if e.task.level == 1]
  mistakes = [m for m in flight_mistakes("hermes") if m.name == "malformed"]
  kept, _ = variants(episodes, mistakes, played.flight_environment())
  assert len(kept) == len(episodes) > 4
  for before, after in zip(episodes, kept, strict=True):
    good = [turn.action for turn in after.turns if turn.trained]
    assert tuple(good) == before.actions


def test_what_is_no_mistake_or_has_no_end_is_dropped():
  episodes = played.flight_episodes(4)
  harmless = Mistake(name="harmless", write=lambda moment, rng: moment.seen)
  ending = Mistake(name="ending", write=lambda moment, rng: "No flight fits.")
  nowhere = Mistake(name="nowhere", write=lambda moment, rng: None)
  right = [flight_mistakes("hermes")[0]]
  environment = played.flight_environment()
  assert variants(episodes, [harmless], environment)[1]["no_answer"] == 4
  assert variants(episodes, [ending], environment)[1]["no_answer"] == 4
  assert variants(episodes, [nowhere], environment)[1]["no_place"] == 4
  other = episodes[-1].task.prompt
  lost = variants(episodes, right, environment, lambda e: flight_script(other))
  assert lost[1]["script_failed"] == 3
  failed = played.flight_episodes(30, careful=0.0)
  num_failed = sum(not episode.success for episode in failed)
  counts = variants(failed, right, environment)[1]
  assert counts["failed"] == num_failed > 0


def test_the_same_seed_makes_the_same_variants():
  assert flight_variants(12, "hermes") == flight_variants(12, "hermes")
