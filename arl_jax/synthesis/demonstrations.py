"""Demonstrations: what scripted experts read and wrote, for a warm start."""

from collections.abc import Callable, Iterator, Sequence

from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.flight_expert import ExpertEpisode, play_expert
from arl_jax.envs.inline import run_inline
from arl_jax.episode import Message, Task
from arl_jax.synthesis.flight_experts import ExpertMix
from arl_jax.text.tool_calls import Style


def expert_transcripts(
  tasks: Sequence[Task],
  *,
  mix: ExpertMix | None = None,
  seed: int = 0,
  style: Style = "hermes",
  make_environment: Callable[[], FlightBookingEnv] | None = None,
) -> list[ExpertEpisode]:
  """Plays one drawn expert per task through the real environment.

  Args:
    tasks: what to play.
    mix: how often each expert is drawn; the default mix if None.
    seed: fixes the draws.
    style: how tool calls are written.
    make_environment: makes the environment, whose style must be the same;
      by default one that shows only the request.

  Returns:
    One episode per task, failed ones included.
  """
  mix = mix or ExpertMix()
  make = make_environment or (lambda: FlightBookingEnv(style=style))
  return [
    run_inline(
      play_expert(
        make(),
        task,
        habits=mix.draw(seed=seed, index=index),
        style=style,
      )
    )
    for index, task in enumerate(tasks)
  ]


def transcript_messages(episode: ExpertEpisode) -> Iterator[Message]:
  """All messages of an episode in order, its actions as the assistant's."""
  for turn in episode.turns:
    yield from turn.observations
    yield Message(role="assistant", content=turn.action)
