"""Episodes that scripts played, for tests of what is made from them."""

import asyncio
import functools

from arl_jax.envs import flight_tasks
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.search_environment import SearchEnv, SearchStyle
from arl_jax.episode import Task
from arl_jax.synthesis.flight_experts import ExpertMix
from arl_jax.synthesis.replay import Script, play
from arl_jax.synthesis.scripts import flight_script, search_script
from arl_jax.synthesis.search_experts import SearchExpertMix
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode
from arl_jax.text.tool_calls import Style
from tests.envs import tiny_world


def flight_environment(style: Style = "hermes"):
  return functools.partial(FlightBookingEnv, style=style)


def search_environment(style: SearchStyle = "tags", snippet_chars=40):
  return lambda: SearchEnv(
    tiny_world.index(), style=style, inline=True, snippet_chars=snippet_chars
  )


def flight_tasks_of(number: int, *, seed: int = 0, drill: bool = True):
  return flight_tasks.generate_tasks(
    number, seed=seed, split="warmup", drill=drill
  )


def episode_of(make_environment, task: Task, script: Script):
  played = asyncio.run(play(make_environment, task, script))
  return SyntheticEpisode(
    task=task,
    source="experts",
    turns=played.turns,
    success=played.success,
    reward=played.scores["success"],
  )


def flight_episodes(number: int, *, style: Style = "hermes", careful=1.0):
  mix = ExpertMix(careful=careful)
  return [
    episode_of(
      flight_environment(style),
      task,
      flight_script(
        task.prompt, style=style, habits=mix.draw(seed=0, index=index)
      ),
    )
    for index, task in enumerate(flight_tasks_of(number))
  ]


def search_episodes(number: int, *, style: SearchStyle = "tags", careful=1.0):
  mix = SearchExpertMix(careful=careful)
  tasks = tiny_world.source().tasks(number, seed=0, split="warmup")
  return [
    episode_of(
      search_environment(style),
      task,
      search_script(
        task.prompt, style=style, habits=mix.draw(seed=0, index=index)
      ),
    )
    for index, task in enumerate(tasks)
  ]
