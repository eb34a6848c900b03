"""What a policy is to the actors: token ids in, sampled token ids out."""

import dataclasses
from typing import Protocol

from arl_jax.episode import Float32Array, Int32Array


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
  """How the tokens of one turn are drawn.

  Attributes:
    temperature: divides the logits; 0 is greedy.
    top_k: keeps the k likeliest tokens; 0 keeps all.
    top_p: keeps the likeliest tokens that together reach this probability.
    stop_ids: sampling one of these ends the turn.
    max_tokens: tokens that the turn may have.
    seed: fixes the draws of this turn.
  """

  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  stop_ids: tuple[int, ...] = ()
  max_tokens: int = 64
  seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
  """The tokens of one turn, as they were sampled.

  Attributes:
    token_ids: int32 `[n]` sampled ids; a sampled stop id is the last.
    logprobs: float32 `[n]` of the distribution each was drawn from.
    policy_versions: int32 `[n]` weights that sampled each token.
    finish_reason: `stop` (a stop id was sampled) or `length` (budget spent).
  """

  token_ids: Int32Array
  logprobs: Float32Array
  policy_versions: Int32Array
  finish_reason: str


class Policy(Protocol):
  """Whatever samples tokens: the engine, a remote server, a script."""

  async def generate(
    self, token_ids: Int32Array, *, sampling: SamplingParams, session: str
  ) -> Completion:
    """Samples the next turn.

    Args:
      token_ids: int32 `[T]` the whole row so far. What the session saw before
        is a prefix of it, so a policy may keep its state between calls.
      sampling: how to draw.
      session: names the row; unique among the rows that are alive.

    Returns:
      At least one token, at most `sampling.max_tokens`.
    """
    ...

  def end_session(self, session: str) -> None:
    """Forgets a session; one that is not known is no error."""
    ...
