"""Door 1: groups of episodes become padded batches of a few fixed shapes."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from arl_jax.episode import Episode, EpisodeStatus, Group, Row, Turn
from arl_jax.learner.filters import RowFacts
from arl_jax.ops.grouping import dense_ids
from arl_jax.types import TrajectoryBatch


def collate_groups(
  groups: Sequence[Group],
  *,
  num_rows: int,
  length: int,
  num_turns: int,
  min_group_size: int = 2,
) -> TrajectoryBatch:
  """Pads the episodes of a step into one batch of NumPy arrays.

  Where an agent went on in another row, each turn is credited in the row that
  sampled it, whose turns count from 0 again; see `turn_spans`.

  Rows of failed episodes, and of groups with fewer than `min_group_size`
  episodes that finished, get `row_mask` False: they neither learn nor move a
  baseline.

  Args:
    groups: whole groups, in the order of their tasks.
    num_rows: B; rows that are missing become filler.
    length: T; every row must fit.
    num_turns: K; every episode must fit.
    min_group_size: fewest episodes that can be compared; 1 where an advantage
      needs no comparison.

  Raises:
    ValueError: if the rows, a row's tokens or an episode's turns don't fit.
  """
  rows: list[Row] = []
  owners: list[tuple[int, int, Sequence[Turn]]] = []
  finished: list[bool] = []
  num_episodes = 0
  for index, group in enumerate(groups):
    good = [e.status.finished for e in group.episodes]
    for episode, is_good in zip(group.episodes, good, strict=True):
      if len(episode.turns) > num_turns:
        raise ValueError(
          f"an episode has {len(episode.turns)} turns; num_turns is {num_turns}"
        )
      spans = turn_spans(episode)
      for row, (start, end) in zip(episode.rows, spans, strict=True):
        rows.append(_count_turns_from(row, start, end))
        owners.append((index, num_episodes, episode.turns[start:end]))
        finished.append(is_good and sum(good) >= min_group_size)
      num_episodes += 1
  arrays = _padded(rows, num_rows=num_rows, length=length, num_turns=num_turns)
  state_keys: list[tuple[int, str] | None] = []
  for b, (group_id, episode_id, turns) in enumerate(owners):
    arrays["turn_rewards"][b, : len(turns)] = [turn.reward for turn in turns]
    arrays["turn_mask"][b, : len(turns)] = True
    arrays["group_ids"][b] = group_id
    arrays["episode_ids"][b] = episode_id
    arrays["row_mask"][b] = finished[b]
    keys = [turn.state_key for turn in turns]
    padded = [*keys, *[None] * (num_turns - len(keys))]
    state_keys.extend(None if k is None else (group_id, k) for k in padded)
  known = [i for i, key in enumerate(state_keys) if key is not None]
  if known:
    flat = arrays["state_ids"].reshape(-1)
    flat[known] = dense_ids([state_keys[i] for i in known])
  return TrajectoryBatch(**arrays)


def turn_spans(episode: Episode) -> list[tuple[int, int]]:
  """Says which turns are credited in which row.

  The rows of one agent follow each other. Each has the turns from its first
  action up to the first action of the next one; the first row begins with turn
  0, the last one has the rest.

  Returns:
    First turn and end of each row, in their order.
  """
  spans = [(0, len(episode.turns))] * len(episode.rows)
  for agent in {row.agent_id for row in episode.rows}:
    own = [b for b, row in enumerate(episode.rows) if row.agent_id == agent]
    end = len(episode.turns)
    for b in reversed(own):
      turns = episode.rows[b].turn_ids[episode.rows[b].action_mask]
      first = int(turns[0]) if len(turns) else end
      start = 0 if b == own[0] else min(first, end)
      spans[b], end = (start, end), start
  return spans


def _count_turns_from(row: Row, start: int, end: int) -> Row:
  acted = row.turn_ids[row.action_mask]
  if acted.size and not start <= acted.min() <= acted.max() < end:
    raise ValueError(
      f"a row acts in the turns {acted.min()} to {acted.max()}, but the turns"
      f" {start} to {end - 1} are its own; rows of an agent have to follow each"
      " other"
    )
  if start == 0:
    return row
  turn_ids = np.where(row.action_mask, row.turn_ids - start, -1)
  return dataclasses.replace(row, turn_ids=turn_ids.astype(np.int32))


def collate_facts(
  groups: Sequence[Group],
  *,
  version: int,
  num_rows: int,
  num_turns: int,
  seed: int = 0,
) -> RowFacts:
  """Says of each row what a batch has no field for.

  Args:
    groups: as given to `collate_groups`, whose order of rows this follows.
    version: of the weights before the step, which ages are counted from.
    num_rows: B.
    num_turns: K.
    seed: of the run; an episode's draw depends on it and on its place alone.

  Returns:
    NumPy arrays, False and 0 for filler.
  """
  truncated = np.zeros(num_rows, bool)
  turn_is_void = np.zeros((num_rows, num_turns), bool)
  draws = np.zeros(num_rows, np.float32)
  age = np.zeros(num_rows, np.int32)
  owners = [
    (group, episode, row, span)
    for group in groups
    for episode in group.episodes
    for row, span in zip(episode.rows, turn_spans(episode), strict=True)
  ]
  for b, (group, episode, row, (start, end)) in enumerate(owners):
    place = (group.ordinal, episode.member)
    draws[b] = np.random.default_rng((seed, *place)).random(dtype=np.float32)
    if row.action_mask.any():
      age[b] = version - row.policy_versions[row.action_mask].min()
    truncated[b] = episode.status.truncated
    last = len(episode.turns) - 1
    ended = episode.status == EpisodeStatus.TERMINATED
    for k in range(start, end):
      turn_is_void[b, k - start] = is_void_turn(
        episode.turns[k], is_answer=ended and k == last
      )
  return RowFacts(
    truncated=truncated, turn_is_void=turn_is_void, age=age, draws=draws
  )


def is_void_turn(turn: Turn, *, is_answer: bool) -> bool:
  """True if a turn has neither a complete tool call nor a final answer."""
  if turn.num_tool_calls > turn.num_tool_errors:
    return False
  if turn.finish_reason == "length":
    return True  # what was cut off is neither
  # A call that was refused is complete; the policy sees why and can go on.
  return turn.num_tool_calls == 0 and not is_answer


def pad_rows(
  rows: Sequence[Row], *, num_rows: int, length: int, num_turns: int
) -> TrajectoryBatch:
  """Pads rows into a batch whose rewards and ids are still empty.

  Args:
    rows: token streams, each of `length` tokens at most.
    num_rows: B; rows that are missing become filler.
    length: T.
    num_turns: K.

  Raises:
    ValueError: if there are too many rows, or one is too long.
  """
  return TrajectoryBatch(
    **_padded(rows, num_rows=num_rows, length=length, num_turns=num_turns)
  )


def _padded(
  rows: Sequence[Row], *, num_rows: int, length: int, num_turns: int
) -> dict[str, Any]:
  if len(rows) > num_rows:
    raise ValueError(f"{len(rows)} rows don't fit num_rows, {num_rows}")
  longest = max((len(row) for row in rows), default=0)
  if longest > length:
    raise ValueError(f"a row has {longest} tokens; length is {length}")
  tokens = (num_rows, length)
  turns = (num_rows, num_turns)
  arrays: dict[str, Any] = {
    "tokens": np.zeros(tokens, np.int32),
    "action_mask": np.zeros(tokens, bool),
    "turn_ids": np.full(tokens, -1, np.int32),
    "segment_ids": np.zeros(tokens, np.int32),
    "positions": np.zeros(tokens, np.int32),
    "behavior_logprobs": np.zeros(tokens, np.float32),
    "policy_versions": np.full(tokens, -1, np.int32),
    "turn_rewards": np.zeros(turns, np.float32),
    "turn_mask": np.zeros(turns, bool),
    "group_ids": np.zeros(num_rows, np.int32),
    "episode_ids": np.zeros(num_rows, np.int32),
    "agent_ids": np.zeros(num_rows, np.int32),
    "state_ids": np.full(turns, -1, np.int32),
    "edge_ids": np.full(turns, -1, np.int32),
    "row_mask": np.zeros(num_rows, bool),
  }
  for b, row in enumerate(rows):
    n = len(row)
    arrays["tokens"][b, :n] = row.tokens
    arrays["action_mask"][b, :n] = row.action_mask
    arrays["turn_ids"][b, :n] = row.turn_ids
    arrays["segment_ids"][b, :n] = 1
    arrays["positions"][b, :n] = np.arange(n)
    arrays["behavior_logprobs"][b, :n] = row.behavior_logprobs
    arrays["policy_versions"][b, :n] = row.policy_versions
    arrays["agent_ids"][b] = row.agent_id
    arrays["row_mask"][b] = True
  return arrays


def split_minibatches(
  live: npt.NDArray[np.bool_],
  *,
  num_minibatches: int,
  min_rows: int,
  seed: int,
) -> list[npt.NDArray[np.int64]]:
  """Deals the rows that carry a signal into minibatches, one update each.

  Args:
    live: bool `[B]` rows to train on.
    num_minibatches: most minibatches to make.
    min_rows: fewest rows in each, unless there are fewer in all.
    seed: fixes the order in which rows are dealt.

  Returns:
    Index arrays that together hold each live row once; none if no row is.
  """
  rows = np.flatnonzero(live)
  if not len(rows):
    return []
  np.random.default_rng(seed).shuffle(rows)
  count = max(1, min(num_minibatches, len(rows) // min_rows))
  return [np.sort(part) for part in np.array_split(rows, count)]
