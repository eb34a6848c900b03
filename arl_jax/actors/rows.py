"""Grows one row, token by token, as the policy sees it."""

import numpy as np

from arl_jax.actors.policy import Completion
from arl_jax.episode import Int32Array, Row

# One record per token: the columns of a row cannot differ in length.
_CELL = np.dtype(
  [
    ("tokens", np.int32),
    ("action_mask", np.bool_),
    ("turn_ids", np.int32),
    ("behavior_logprobs", np.float32),
    ("policy_versions", np.int32),
  ]
)


class RowBuilder:
  """Owns the growing arrays of a row; tokens are only ever appended."""

  def __init__(self, *, agent_id: int = 0):
    self._cells = np.zeros(64, _CELL)
    self._length = 0
    self._agent_id = agent_id

  def __len__(self) -> int:
    return self._length

  @property
  def tokens(self) -> Int32Array:
    """The ids so far, int32 `[T]`; a copy that cannot be written."""
    tokens = self._cells["tokens"][: self._length].copy()
    tokens.flags.writeable = False
    return tokens

  def append_context(self, token_ids: Int32Array) -> None:
    """Appends ids that the policy did not sample.

    Args:
      token_ids: int32 `[n]` a prompt, an observation or what surrounds them.
    """
    cells = self._extend(len(token_ids))
    cells["tokens"] = token_ids
    cells["turn_ids"] = -1
    cells["policy_versions"] = -1

  def append_action(
    self, fed: Int32Array, completion: Completion, *, turn: int
  ) -> None:
    """Appends sampled ids as they are.

    Args:
      fed: int32 `[T]` what the policy was given; it must be the row so far,
        or the log-probabilities would belong to another context.
      completion: what the policy sampled after it.
      turn: index of the turn.

    Raises:
      ValueError: if `fed` is not the row so far, or the completion is empty
        or its arrays differ in length.
    """
    if not np.array_equal(fed, self._cells["tokens"][: self._length]):
      raise ValueError(
        f"the policy was fed {len(fed)} ids that are not the row's "
        f"{self._length}; feed RowBuilder.tokens unchanged"
      )
    lengths = {
      "token_ids": len(completion.token_ids),
      "logprobs": len(completion.logprobs),
      "policy_versions": len(completion.policy_versions),
    }
    if len(set(lengths.values())) > 1 or not lengths["token_ids"]:
      raise ValueError(
        f"a completion has the lengths {lengths}; they must be equal, at "
        "least 1. Return every sampled id with its log-probability"
      )
    cells = self._extend(len(completion.token_ids))
    cells["tokens"] = completion.token_ids
    cells["action_mask"] = True
    cells["turn_ids"] = turn
    cells["behavior_logprobs"] = completion.logprobs
    cells["policy_versions"] = completion.policy_versions

  def build(self) -> Row:
    """Returns the row so far, in arrays of its own."""
    cells = self._cells[: self._length]
    columns = {name: cells[name].copy() for name in _CELL.fields or ()}
    return Row(agent_id=self._agent_id, **columns)

  def _extend(self, num_tokens: int) -> np.ndarray:
    """Returns the zeroed cells of `num_tokens` new tokens."""
    start, end = self._length, self._length + num_tokens
    if end > len(self._cells):
      grown = np.zeros(max(end, 2 * len(self._cells)), _CELL)
      grown[:start] = self._cells[:start]
      self._cells = grown
    self._length = end
    return self._cells[start:end]
