"""Tests of expert episodes for a warm start."""

import asyncio

from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.flight_tasks import generate_tasks
from arl_jax.synthesis.demonstrations import (
  expert_transcripts,
  transcript_messages,
)
from arl_jax.synthesis.flight_experts import ExpertMix

TASKS = generate_tasks(240, seed=0, split="heldout")


def test_the_mix_leaves_room_for_a_better_strategy():
  episodes = expert_transcripts(TASKS)
  rate = sum(episode.success for episode in episodes) / len(episodes)
  assert 0.42 < rate < 0.64


def test_careful_episodes_all_succeed_in_both_styles():
  for style in ("hermes", "compact"):
    episodes = expert_transcripts(
      TASKS[:20], mix=ExpertMix(careful=1.0), style=style
    )
    assert all(episode.success for episode in episodes)


def test_a_transcript_replays_in_the_environment():
  """The messages are what an awaiting caller would have read."""
  (episode,) = expert_transcripts(TASKS[:1])

  async def replay():
    environment = FlightBookingEnv()
    seen = [await environment.reset(episode.task, seed=9)]
    for turn in episode.turns:
      seen.append((await environment.step(turn.action)).observations)
    return seen

  seen = asyncio.run(replay())
  assert [turn.observations for turn in episode.turns] == seen[:-1]
  assert seen[-1] == ()


def test_messages_alternate_and_end_with_the_answer():
  (episode,) = expert_transcripts(TASKS[:1], mix=ExpertMix(careful=1.0))
  messages = list(transcript_messages(episode))
  roles = [message.role for message in messages]
  assert roles[:2] == ["user", "assistant"]
  assert set(roles[2::2]) == {"tool"}
  assert set(roles[1::2]) == {"assistant"}
  assert messages[-1].content in ("Booked.", "No flight fits.")
