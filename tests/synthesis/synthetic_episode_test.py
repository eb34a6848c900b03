"""Tests of episodes to imitate, as records and as lines of JSON."""

import asyncio
import dataclasses
import json
import math

import pytest

from arl_jax.episode import Episode, EpisodeStatus, Message, Task, Turn
from arl_jax.synthesis.episode_file import load_episodes, save_episodes
from arl_jax.synthesis.replay import play, recorded
from arl_jax.synthesis.synthetic_episode import (
  SyntheticEpisode,
  SyntheticTurn,
  decode_synthetic,
  encode_synthetic,
  from_episode,
)
from tests.synthesis import played

EPISODE = SyntheticEpisode(
  task=Task(
    task_id="t/ä",
    prompt="Book 😀",
    seed=5,
    level=2,
    hidden={"pair": (1, 2), "$key": {"low": -math.inf}},
  ),
  source="recovery",
  turns=(
    SyntheticTurn(
      observations=(
        Message(role="system", content="Be brief."),
        Message(role="user", content="Book\n"),
      ),
      action="wrong",
      trained=False,
    ),
    SyntheticTurn(observations=(), action="Done."),
  ),
  success=True,
  reward=0.75,
  tags=("recovered", "malformed"),
)


def test_a_record_is_read_back_as_it_was():
  line = json.dumps(encode_synthetic(EPISODE), allow_nan=False)
  assert decode_synthetic(json.loads(line)) == EPISODE


def _without(name):
  record = encode_synthetic(EPISODE)
  del record[name]
  return record


def _with(**changes):
  return encode_synthetic(EPISODE) | changes


@pytest.mark.parametrize(
  ("record", "message"),
  [
    (_without("task"), "task is missing"),
    (_without("reward"), "reward is None; expected a number"),
    (_with(schema=2), "schema is 2; expected 1"),
    (_with(success=1), "success is 1; expected true or false"),
    (_with(turns=[]), "turns is empty"),
    (_with(turns=[{"action": "a"}]), "observations is missing"),
    (_with(tags=[3]), "tags holds 3"),
    ([], "expected an object"),
  ],
)
def test_a_bad_record_says_what_is_wrong(record, message):
  with pytest.raises(ValueError, match=message):
    decode_synthetic(record)


def test_a_policys_episode_keeps_what_each_action_answers():
  (expert,) = played.flight_episodes(1)
  observations = [turn.observations for turn in expert.turns]
  episode = Episode(
    task=expert.task,
    member=0,
    status=EpisodeStatus.TERMINATED,
    rows=(),
    prompt=observations[0],
    turns=tuple(
      Turn(action=turn.action, finish_reason="stop", observations=answer)
      for turn, answer in zip(
        expert.turns, [*observations[1:], ()], strict=True
      )
    ),
    reward_components={"success": 1.0},
  )
  made = from_episode(episode, source="rejection")
  assert made.turns == expert.turns
  assert made.success
  with pytest.raises(ValueError, match="has no turns"):
    from_episode(dataclasses.replace(episode, turns=()), source="rejection")


def test_a_file_is_read_back_and_its_tasks_can_be_played_again(tmp_path):
  episodes = [EPISODE, *played.flight_episodes(4)]
  save_episodes(tmp_path / "new" / "file.jsonl", episodes)
  found = load_episodes(tmp_path / "new" / "file.jsonl")
  assert found == episodes
  for episode in found[1:]:
    again = asyncio.run(
      play(played.flight_environment(), episode.task, recorded(episode.actions))
    )
    assert again.turns == episode.turns
    assert again.success


def test_a_bad_line_is_named_with_its_fault(tmp_path):
  path = tmp_path / "file.jsonl"
  good = json.dumps(encode_synthetic(EPISODE))
  path.write_text(f"{good}\n\n{good[:-3]}\n")
  with pytest.raises(ValueError, match=r"file\.jsonl, line 3: not JSON"):
    load_episodes(path)
  path.write_text(f"{good}\n{json.dumps(_without('source'))}\n")
  with pytest.raises(ValueError, match=r"line 2: source is missing"):
    load_episodes(path)
  path.write_text("\n")
  with pytest.raises(ValueError, match="has no episodes"):
    load_episodes(path)
  with pytest.raises(ValueError, match="is not a file"):
    load_episodes(tmp_path / "other.jsonl")


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
  path = tmp_path / "file.jsonl"
  save_episodes(path, [EPISODE])
  before = path.read_bytes()
  task = dataclasses.replace(EPISODE.task, hidden={"a": {1, 2}})
  with pytest.raises(ValueError, match="is a set"):
    save_episodes(path, [EPISODE, dataclasses.replace(EPISODE, task=task)])
  with pytest.raises(ValueError, match="there are no episodes to write"):
    save_episodes(path, [])
  assert path.read_bytes() == before
  assert [one.name for one in tmp_path.iterdir()] == ["file.jsonl"]
