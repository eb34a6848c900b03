"""Synthetic episodes as lines of JSON."""

from collections.abc import Iterable
import json
import os
import pathlib

from arl_jax.synthesis.synthetic_episode import (
  SyntheticEpisode,
  decode_synthetic,
  encode_synthetic,
)
from arl_jax.trajectories.whole_file import write_lines


def save_episodes(
  path: str | os.PathLike[str], episodes: Iterable[SyntheticEpisode]
) -> None:
  """Writes one episode a line; readers see the whole file or none.

  Args:
    path: a file that is there is replaced, once all of the new one is written.
    episodes: one or more.

  Raises:
    ValueError: there are no episodes, or a task holds what JSON cannot.
    OSError: it cannot be written; nothing of it is left then.
  """
  records = [encode_synthetic(episode) for episode in episodes]
  if not records:
    raise ValueError(
      f"there are no episodes to write to {path}; expected one or more"
    )
  target = pathlib.Path(path)
  target.parent.mkdir(parents=True, exist_ok=True)
  write_lines(target, records)


def load_episodes(path: str | os.PathLike[str]) -> list[SyntheticEpisode]:
  """Reads what `save_episodes` wrote; blank lines are skipped.

  Raises:
    ValueError: there is no such file, it has no episodes, or a line is not
      one; names the file, the line and the fault.
  """
  source = pathlib.Path(path)
  if not source.is_file():
    raise ValueError(
      f"{path} is not a file; expected episodes, one JSON object a line, as"
      " python -m arl_jax.synthesize writes them"
    )
  episodes: list[SyntheticEpisode] = []
  with source.open("rb") as lines:
    for number, line in enumerate(lines, start=1):
      if not line.strip():
        continue
      try:
        episodes.append(decode_synthetic(_parse(line)))
      except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
  if not episodes:
    raise ValueError(f"{path} has no episodes; expected one JSON object a line")
  return episodes


def _parse(line: bytes) -> object:
  try:
    return json.loads(line.decode("utf-8"))
  except ValueError as error:
    raise ValueError(f"not JSON ({error})") from None
