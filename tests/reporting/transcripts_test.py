"""Tests of episodes as text."""

import numpy as np

from arl_jax.episode import Episode, EpisodeStatus, Message, Row, Task, Turn
from arl_jax.reporting import transcripts


def _episode(**changes) -> Episode:
  row = Row(
    tokens=np.arange(4, dtype=np.int32),
    action_mask=np.array([False, True, True, False]),
    turn_ids=np.array([-1, 0, 0, -1], np.int32),
    behavior_logprobs=np.zeros(4, np.float32),
    policy_versions=np.array([-1, 0, 0, -1], np.int32),
  )
  values = {
    "task": Task(task_id="flight-7", prompt="Book it.", level=2),
    "member": 3,
    "status": EpisodeStatus.TERMINATED,
    "rows": (row,),
    "prompt": (Message(role="user", content="Book it."),),
    "turns": (
      Turn(
        action="search\nnow",
        finish_reason="length",
        observations=(Message(role="tool", content="KL215 $460"),),
        num_tool_calls=1,
        num_tool_errors=1,
      ),
      Turn(action="", finish_reason="stop", reward=1.0),
    ),
    "reward_components": {"success": 1.0, "cost": 0.5},
  }
  return Episode(**{**values, **changes})


def test_episode_reads_from_top_to_bottom():
  rule = "=" * 80
  assert transcripts.format_episode(_episode()) == (
    f"{rule}\n"
    "task flight-7, level 2, member 3: success, terminated\n"
    f"{rule}\n"
    "[user]\n"
    "  Book it.\n"
    "[turn 1, assistant, cut off]\n"
    "  search\n"
    "  now\n"
    "[turn 1, tool]\n"
    "  KL215 $460\n"
    "[turn 2, assistant]\n"
    "  (empty)\n"
    "[turn 2, reward] 1\n"
    "[reward] 1 (success 1, cost 0.5)\n"
    "[counts] 2 turns, 1 tool calls, 1 of them failed, 2 sampled tokens\n"
  )


def test_failed_episode_shows_its_cause():
  text = transcripts.format_episode(
    _episode(
      status=EpisodeStatus.FAILED, error="desk broke", reward_components={}
    )
  )
  assert "no success, failed" in text
  assert text.endswith("[error]\n  desk broke\n")


def test_file_holds_all_episodes(tmp_path):
  path = transcripts.write_episodes(
    [_episode(member=member) for member in range(2)], tmp_path / "a" / "e.txt"
  )
  assert path.read_text().count("task flight-7") == 2
