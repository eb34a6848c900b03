"""Stored episodes are imitated in their own environment alone."""

import asyncio
import dataclasses
import functools
import importlib.util

import pytest

from arl_jax import config as config_lib
from arl_jax.envs.environment import StepResult
from arl_jax.episode import Message, Task
from arl_jax.run import synthesizers
from arl_jax.run.flight_suite import FlightSettings, flight_booking_suite
from arl_jax.run.stored_episodes import open_checked
from arl_jax.synthesis.episode_dataset import prepare_dataset
from arl_jax.synthesis.episode_file import save_episodes
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode, SyntheticTurn


@functools.cache
def episodes(**changes):
  """Those of experts, as the command makes them."""
  suite = flight_booking_suite(FlightSettings(**changes))
  made, _ = asyncio.run(
    synthesizers.make_experts(
      suite,
      8,
      reward_weights={"success": 1.0},
      seed=0,
      careful=0.5,
      drill=True,
    )
  )
  return tuple(made)


def check(path, stored, *, make_environment=None, encode=None, max_chars=9999):
  """Saves episodes, and opens them for flight booking of JSON calls."""
  suite = flight_booking_suite(FlightSettings())
  save_episodes(path / "episodes.jsonl", stored)
  return open_checked(
    str(path / "episodes.jsonl"),
    make_environment=make_environment or suite.make_environment,
    encode=encode or (lambda episode: None),  # pyright: ignore[reportArgumentType]
    max_observation_chars=max_chars,
    step_timeout_seconds=10.0,
  )


def test_episodes_of_the_same_environment_are_taken(tmp_path, caplog):
  assert tuple(check(tmp_path, episodes())) == episodes()
  assert not caplog.records


@pytest.mark.parametrize(
  ("changes", "words"),
  [
    # Prompts are the same; how calls look is not.
    ({"style": "compact"}, r"turn 1 reads tool '.*', and here "),
    ({"show_tools": True}, r"turn 0 reads system '.*' and user .* here user '"),
    ({"system_prompt": "Be"}, r"turn 0 reads system 'Be' and user"),
  ],
)
def test_episodes_of_other_settings_are_refused(changes, words, tmp_path):
  with pytest.raises(config_lib.ConfigError, match=words) as caught:
    check(tmp_path, episodes(**changes))
  assert str(caught.value).startswith("config.warmup.episodes is '")
  assert "synthesize makes with this config.environment" in str(caught.value)


def test_some_that_go_otherwise_are_warned_of(tmp_path, caplog):
  other = episodes(system_prompt="Be")
  assert len(check(tmp_path, [*other, *episodes()])) == 2 * len(other)
  (record,) = caplog.records
  assert "4 of 8 episodes of config.warmup.episodes go" in record.getMessage()
  assert "episode 0: turn 0 reads system 'Be'" in record.getMessage()


def test_one_whose_task_cannot_be_begun_is_refused(tmp_path):
  *most, last = episodes()
  other = dataclasses.replace(last, task=Task(task_id="x", prompt="Who?"))
  with pytest.raises(config_lib.ConfigError) as caught:
    check(tmp_path, [*most, other])
  message = str(caught.value)
  assert message.startswith("config.warmup.episodes is '")
  assert f"of episode {len(most)}, 'x': environment.reset raised" in message


def test_what_was_cut_off_is_not_compared(tmp_path):
  def cut(message):
    return Message(role=message.role, content=f"{message.content[:30]}\n[cut]")

  stored = [
    dataclasses.replace(
      episode,
      turns=tuple(
        dataclasses.replace(
          turn, observations=tuple(map(cut, turn.observations))
        )
        for turn in episode.turns
      ),
    )
    for episode in episodes()
  ]
  assert check(tmp_path, stored, max_chars=30)
  with pytest.raises(config_lib.ConfigError, match=r"\[cut\]"):
    check(tmp_path, stored)


class Dice:
  """Rolls dice that the seed decides."""

  async def reset(self, task, *, seed):
    self._rolled = f"{seed + 1}"
    return (Message(role="user", content=task.prompt),)

  async def step(self, action):
    del action
    return StepResult(
      observations=(Message(role="tool", content=self._rolled),)
    )

  async def score(self):
    return {"success": 0.0}


def rolled(number, *, prompt="Roll."):
  turns = [
    SyntheticTurn(
      observations=(Message(role=role, content=text),), action="roll"
    )
    for role, text in (("user", prompt), ("tool", number))
  ]
  return SyntheticEpisode(
    task=Task(task_id="dice", prompt="Roll."),
    source="mine",
    turns=tuple(turns),
    success=True,
    reward=1.0,
  )


def test_what_is_drawn_cannot_be_compared_and_is_taken(tmp_path, caplog):
  assert check(tmp_path, [rolled("6")], make_environment=Dice)
  assert not caplog.records


def test_every_sequence_of_roles_is_rendered_once(tmp_path):
  def encode(episode):
    seen.append(episode)
    if any(len(turn.observations) == 0 for turn in episode.turns):
      raise ValueError("messages is empty")

  seen, one = [], rolled("1")
  empty = dataclasses.replace(
    one, turns=(one.turns[0], SyntheticTurn(observations=(), action="roll"))
  )
  check(tmp_path, [one, one, one], make_environment=Dice, encode=encode)
  assert len(seen) == 1
  with pytest.raises(config_lib.ConfigError, match=r"episode 2, of .*is empty"):
    check(tmp_path, [one, one, empty], make_environment=Dice, encode=encode)


@pytest.mark.skipif(
  importlib.util.find_spec("tensorflow_datasets") is None,
  reason="pip install 'arl-jax[data]'",
)
def test_a_dataset_is_read_to_its_end(tmp_path):
  prepare_dataset(tmp_path / "data", episodes())
  suite = flight_booking_suite(FlightSettings())
  limits = {"max_observation_chars": 9999, "step_timeout_seconds": 10.0}

  def check_dataset():
    return open_checked(
      str(tmp_path / "data"),
      make_environment=suite.make_environment,
      encode=lambda episode: None,  # pyright: ignore[reportArgumentType]
      **limits,
    )

  assert list(check_dataset()) == list(episodes())
  for pattern in ("*array_record*", "dataset_info.json"):
    (file,) = tmp_path.rglob(pattern)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(config_lib.ConfigError, match="^config.warmup.episod"):
      check_dataset()
