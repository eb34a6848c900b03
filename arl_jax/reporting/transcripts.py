"""Writes episodes as text for a person to read."""

from collections.abc import Iterable
import os
import pathlib
import textwrap

from arl_jax import episode as episode_lib

_RULE = "=" * 80


def format_episode(episode: episode_lib.Episode) -> str:
  """Returns one episode: the prompt, every turn, then how it was judged."""
  task = episode.task
  outcome = "success" if episode.success else "no success"
  lines = [
    _RULE,
    f"task {task.task_id}, level {task.level}, member {episode.member}: "
    f"{outcome}, {episode.status.value}",
    _RULE,
  ]
  for message in episode.prompt:
    lines += _block(message.role, message.content)
  for number, turn in enumerate(episode.turns, start=1):
    cut = ", cut off" if turn.finish_reason == "length" else ""
    lines += _block(f"turn {number}, assistant{cut}", turn.action)
    for message in turn.observations:
      lines += _block(f"turn {number}, {message.role}", message.content)
    if turn.reward:
      lines.append(f"[turn {number}, reward] {turn.reward:g}")
  parts = ", ".join(
    f"{name} {value:g}" for name, value in episode.reward_components.items()
  )
  errors = sum(turn.num_tool_errors for turn in episode.turns)
  calls = sum(turn.num_tool_calls for turn in episode.turns)
  lines += [
    f"[reward] {episode.total_reward:g}" + (f" ({parts})" if parts else ""),
    f"[counts] {len(episode.turns)} turns, {calls} tool calls, "
    f"{errors} of them failed, {episode.num_action_tokens} sampled tokens",
  ]
  if episode.error:
    lines += _block("error", episode.error)
  return "\n".join(lines) + "\n"


def write_episodes(
  episodes: Iterable[episode_lib.Episode], path: str | os.PathLike[str]
) -> pathlib.Path:
  """Writes episodes to one text file and returns its path."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  text = "\n".join(format_episode(episode) for episode in episodes)
  path.write_text(text, encoding="utf-8")
  return path


def _block(label: str, content: str) -> list[str]:
  """Returns a label with its text indented below it."""
  return [f"[{label}]", textwrap.indent(content.strip() or "(empty)", "  ")]
