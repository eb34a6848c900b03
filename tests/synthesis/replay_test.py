"""Tests of scripts that are played, and of replays."""

import asyncio
import dataclasses

import pytest

from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.flight_expert import play_expert
from arl_jax.envs.inline import run_inline
from arl_jax.synthesis.replay import play, recorded, verify
from arl_jax.synthesis.scripts import flight_script
from tests.synthesis import played


def test_a_script_plays_what_its_expert_plays():
  for task in played.flight_tasks_of(12):
    expert = run_inline(play_expert(FlightBookingEnv(), task))
    script = flight_script(task.prompt)
    episode = played.episode_of(FlightBookingEnv, task, script)
    turns = [(turn.observations, turn.action) for turn in expert.turns]
    assert [(t.observations, t.action) for t in episode.turns] == turns
    assert episode.success == expert.success


def test_a_replay_finds_what_was_tampered_with():
  (episode,) = played.flight_episodes(1)
  first, *others, last = episode.turns
  wrong_text = dataclasses.replace(last, observations=first.observations)
  wrong_action = dataclasses.replace(first, action="Booked.")

  def verdict(*turns):
    changed = dataclasses.replace(episode, turns=turns)
    return asyncio.run(verify(changed, FlightBookingEnv))

  assert verdict(*episode.turns)
  assert not verdict(first, *others, wrong_text)
  assert not verdict(wrong_action, *others, last)
  assert not verdict(first, *others)


def test_an_environment_is_closed_however_its_episode_ends():
  closed = []

  class Closing(FlightBookingEnv):
    async def close(self):
      closed.append(self)

  (task,) = played.flight_tasks_of(1)

  def broken():
    yield "<tool_call>"
    raise RuntimeError("broken script")

  asyncio.run(play(Closing, task, recorded(["Booked."])))
  with pytest.raises(RuntimeError, match="broken script"):
    asyncio.run(play(Closing, task, broken()))
  assert len(closed) == 2


def test_a_script_without_end_is_an_error():
  (task,) = played.flight_tasks_of(1)

  def endless():
    while True:
      yield "<tool_call>"

  with pytest.raises(ValueError, match="wants more than 64 turns"):
    asyncio.run(play(FlightBookingEnv, task, endless()))
