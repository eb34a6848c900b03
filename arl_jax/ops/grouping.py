"""Integer ids for groups that only the host can tell apart."""

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]


def dense_ids(keys: Iterable[Hashable]) -> Ids:
  """Numbers keys 0, 1, 2, … in the order in which they first appear.

  Args:
    keys: hashable keys; None stands for "none" and becomes -1.

  Returns:
    int32 `[N]`, equal where the keys are equal.

  Raises:
    ValueError: if a key is not hashable.

  Example:
    >>> import arl_jax as arl
    >>> print(arl.dense_ids(["inbox", "search", None, "inbox"]))
    [ 0  1 -1  0]
  """
  known: dict[Hashable, int] = {}
  ids: list[int] = []
  for index, key in enumerate(keys):
    try:
      ids.append(-1 if key is None else known.setdefault(key, len(known)))
    except TypeError as error:
      raise ValueError(
        f"keys[{index}] is a {type(key).__name__}, which is not hashable; "
        "use a tuple or a string"
      ) from error
  return np.asarray(ids, np.int32)


def _check_groups(
  name: str, rows: Sequence[object], groups: Sequence[int]
) -> None:
  """Raises unless there is one group per row."""
  if len(rows) != len(groups):
    raise ValueError(
      f"group_ids has {len(groups)} entries; expected one for each of the "
      f"{len(rows)} rows of {name}"
    )


def _pad(rows: Sequence[Sequence[Hashable]], num_turns: int | None) -> Ids:
  """Dense ids `[B, K]` of ragged keys, -1 past the end of a row."""
  longest = max((len(row) for row in rows), default=0)
  width = longest if num_turns is None else num_turns
  if width < longest:
    raise ValueError(f"num_turns is {width}, but a row has {longest} turns")
  flat = [
    row[turn] if turn < len(row) else None
    for row in rows
    for turn in range(width)
  ]
  return dense_ids(flat).reshape(len(rows), width)


def salt_edge_ids(
  episodes: Sequence[Sequence[tuple[Hashable, Hashable]]],
  group_ids: Sequence[int],
  *,
  history: int = 1,
  num_turns: int | None = None,
) -> Ids:
  """Names the edge of the trajectory graph that each turn walks.

  state_k = the last `history` pairs (action, observation) up to turn k
  edge_k = (group, state_{k-1}, action_k, state_k)

  Reference: https://arxiv.org/abs/2510.20022 (SALT)

  Args:
    episodes: per row, the pair (action, observation) of each turn.
    group_ids: per row, its group; edges of two groups never merge.
    history: how many pairs make up a state; more merge less.
    num_turns: K of the result, the longest row's if None.

  Returns:
    int32 `[B, K]`, -1 past the end of a row.

  Raises:
    ValueError: on a history below 1, lengths that differ, a K too small.

  Example:
    >>> import arl_jax as arl
    >>> episodes = [[("look", "door"), ("open", "hall")], [("look", "door")]]
    >>> print(arl.salt_edge_ids(episodes, [0, 0]))
    [[ 0  1]
     [ 0 -1]]
  """
  if history < 1:
    raise ValueError(f"history is {history}; expected at least 1")
  _check_groups("episodes", episodes, group_ids)
  rows: list[list[Hashable]] = []
  for episode, group in zip(episodes, group_ids, strict=True):
    pairs = [tuple(pair) for pair in episode]
    edges: list[Hashable] = []
    for turn, (action, _) in enumerate(pairs):
      before = tuple(pairs[max(turn - history, 0) : turn])
      after = tuple(pairs[max(turn + 1 - history, 0) : turn + 1])
      edges.append((int(group), before, action, after))
    rows.append(edges)
  return _pad(rows, num_turns)


def history_context_ids(
  states: Sequence[Sequence[Hashable]],
  group_ids: Sequence[int],
  *,
  num_levels: int,
  num_turns: int | None = None,
) -> Ids:
  """Names each turn's state together with the states that led to it.

  context_{c, k} = (group, c, state_{k-c}, …, state_k)

  A turn with fewer than c states before it has no context at level c.

  Reference: https://arxiv.org/abs/2602.22817 (HGPO)

  Args:
    states: per row, the state before each turn; None is an unknown one.
    group_ids: per row, its group; contexts of two groups never merge.
    num_levels: C; level 0 is the state alone.
    num_turns: K of the result, the longest row's if None.

  Returns:
    int32 `[C, B, K]`, -1 where there is no context.

  Raises:
    ValueError: on num_levels below 1, lengths that differ, a K too small.

  Example:
    >>> import arl_jax as arl
    >>> print(arl.history_context_ids([["a", "b"]], [0], num_levels=2))
    [[[ 0  1]]
    <BLANKLINE>
     [[-1  2]]]
  """
  if num_levels < 1:
    raise ValueError(f"num_levels is {num_levels}; expected at least 1")
  _check_groups("states", states, group_ids)
  rows: list[list[Hashable]] = []
  for level in range(num_levels):
    for row, group in zip(states, group_ids, strict=True):
      windows = [
        tuple(row[turn - level : turn + 1]) if turn >= level else (None,)
        for turn in range(len(row))
      ]
      rows.append(
        [None if None in w else (int(group), level, w) for w in windows]
      )
  ids = _pad(rows, num_turns)
  return ids.reshape(num_levels, len(states), ids.shape[-1])


def resample_on_correct(
  rewards: Sequence[float],
  penalties: Sequence[float],
  *,
  num_keep: int,
  min_correct: int = 1,
  min_incorrect: int = 1,
) -> Ids:
  """Chooses which rollouts of an oversampled group to learn from.

  Of the correct (reward above 0) the cleanest are kept, those of the lowest
  penalty; of the others the first, so that all ways to fail stay in. Each
  side keeps its share of the group, rounded, but no less than its minimum
  as long as it has that many. The paper draws where this ranks.

  Reference: https://arxiv.org/abs/2508.20722 (GRPO-RoC of rStar2-Agent)

  Args:
    rewards: `[N]` outcome of each rollout of one group.
    penalties: `[N]` share of failed tool calls plus faults of format.
    num_keep: how many to keep, at most N.
    min_correct: fewest correct ones to keep.
    min_incorrect: fewest others to keep.

  Returns:
    int32 `[num_keep]` indices, ascending.

  Raises:
    ValueError: on lengths that differ, NaN, or a num_keep out of range.

  Example:
    >>> import arl_jax as arl
    >>> rewards, penalties = [1, 1, 0, 0], [0.5, 0.0, 0.0, 0.0]
    >>> print(arl.resample_on_correct(rewards, penalties, num_keep=2))
    [1 2]
  """
  scores = np.asarray(rewards, np.float64)
  faults = np.asarray(penalties, np.float64)
  if scores.ndim != 1 or scores.shape != faults.shape:
    raise ValueError(
      f"penalties has shape {faults.shape}; expected [N] like rewards, "
      f"which has {scores.shape}"
    )
  if np.isnan(scores).any() or np.isnan(faults).any():
    raise ValueError("rewards or penalties hold NaN; drop those rollouts first")
  if not 0 < num_keep <= scores.size:
    raise ValueError(
      f"num_keep is {num_keep}; expected it in [1, {scores.size}]"
    )
  correct = np.flatnonzero(scores > 0)
  others = np.flatnonzero(scores <= 0)
  quota = round(num_keep * correct.size / scores.size)
  quota = min(quota, num_keep - min(min_incorrect, others.size))
  quota = max(quota, min(min_correct, correct.size, num_keep))
  # Whatever one side lacks, the other fills.
  quota = min(max(quota, num_keep - others.size), correct.size)
  cleanest = correct[np.argsort(faults[correct], kind="stable")[:quota]]
  kept = np.concatenate([cleanest, others[: num_keep - quota]])
  return np.sort(kept).astype(np.int32)
