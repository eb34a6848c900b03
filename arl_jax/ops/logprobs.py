"""Log-probabilities of tokens, the home of the one-token shift."""

# jax.numpy leaves some of its own types open.
# pyright: reportUnknownMemberType=false

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from arl_jax.ops import checks
from arl_jax.types import Array

_ScoreChunk = Callable[[Array, Array, Array], tuple[Array, Array]]

# Stands for -inf, which a sampler writes on forbidden words: p·log p of such
# a word must be 0 and its gradient finite.
LOWEST_LOGIT = -1e30


def _scale(logits: Array, temperature: float) -> Array:
  """Logits of the distribution that was sampled from, float32."""
  logits = logits.astype(jnp.float32) / temperature
  return jnp.maximum(logits, LOWEST_LOGIT)


def _score(logits: Array, tokens: Array) -> Array:
  """Scores `tokens` `[...]` under `logits` `[..., V]`."""
  # A padding id may be anything; it must not read outside the vocabulary.
  tokens = jnp.clip(tokens, 0, logits.shape[-1] - 1)
  chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
  return chosen - jax.nn.logsumexp(logits, axis=-1)


def _entropy(logits: Array) -> Array:
  """-Σ p log p over the last axis."""
  log_total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
  logprobs = logits - log_total
  return -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)


def _shift(values: Array) -> Array:
  """Moves what position t says about token t + 1 to index t + 1."""
  return jnp.pad(values, ((0, 0), (1, 0)))


def _logits(logits: ArrayLike, temperature: float) -> Array:
  """Checks logits, without a float32 copy of them."""
  checks.positive("temperature", temperature)
  logits = checks.array("logits", logits)
  if logits.ndim != 3 or 0 in logits.shape[1:]:
    raise ValueError(
      f"logits has shape {logits.shape}; expected [B, T, V] with T and V "
      "at least 1"
    )
  return logits


def token_logprobs(
  logits: ArrayLike, tokens: ArrayLike, *, temperature: float = 1.0
) -> Array:
  """Log-probability of each token given those before it.

  log p(x_t | x_{<t}), read from the logits at t - 1

  Args:
    logits: `[B, T, V]` what each position says about the next token.
    tokens: int32 `[B, T]` the row.
    temperature: the one that the tokens were sampled at, above 0.

  Returns:
    `[B, T]` float32; index t is about token t, index 0 is 0.

  Raises:
    ValueError: on a wrong shape or dtype or a temperature of 0 or less.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logits = jnp.zeros((1, 3, 4))
    >>> print(arl.token_logprobs(logits, jnp.array([[0, 1, 2]])).round(3))
    [[ 0.    -1.386 -1.386]]
  """
  logits = _logits(logits, temperature)
  tokens = checks.ids("tokens", tokens, "[B, T]", logits.shape[:2])
  return _shift(_score(_scale(logits[:, :-1], temperature), tokens[:, 1:]))


def token_entropies(logits: ArrayLike, *, temperature: float = 1.0) -> Array:
  """Entropy of the distribution that each token was drawn from.

  H_t = -Σ_v p_v log p_v, p the distribution at t - 1

  Args:
    logits: `[B, T, V]` what each position says about the next token.
    temperature: the one that the tokens were sampled at, above 0.

  Returns:
    `[B, T]` float32 in nats; index t is about token t, index 0 is 0.

  Raises:
    ValueError: on a wrong shape or a temperature of 0 or less.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> print(arl.token_entropies(jnp.zeros((1, 3, 4))).round(3))
    [[0.    1.386 1.386]]
  """
  logits = _logits(logits, temperature)
  return _shift(_entropy(_scale(logits[:, :-1], temperature)))


def chunked_token_logprobs(
  hidden: ArrayLike,
  unembedding: ArrayLike,
  tokens: ArrayLike,
  *,
  chunk_size: int,
  temperature: float = 1.0,
  transposed: bool = False,
) -> tuple[Array, Array]:
  """Log-probabilities and entropies that never hold the logits of a row.

  log p(x_t | x_{<t}) = z[x_t] - logsumexp(z), z = h_{t-1} W / temperature

  The row is cut along T, so that the batch axis keeps its sharding; each
  piece's logits are made again in the backward pass.

  Args:
    hidden: `[B, T, D]` what the model says after each position.
    unembedding: `[D, V]` matrix from hidden values to logits.
    tokens: int32 `[B, T]` the row.
    chunk_size: tokens of a row whose logits exist at one time; it need not
      divide T.
    temperature: the one that the tokens were sampled at, above 0.
    transposed: `unembedding` is `[V, D]`, as an embedding table is; turning a
      large one would copy it.

  Returns:
    Log-probabilities and entropies, each `[B, T]` float32; index t is about
    token t, index 0 is 0.

  Raises:
    ValueError: on a wrong shape or dtype, or a temperature or a chunk size
      of 0 or less.

  Example:
    >>> import arl_jax as arl
    >>> import jax.numpy as jnp
    >>> logprobs, entropies = arl.chunked_token_logprobs(
    ...   jnp.zeros((1, 4, 2)),
    ...   jnp.zeros((2, 8)),
    ...   jnp.array([[0, 1, 2, 3]]),
    ...   chunk_size=2,
    ... )
    >>> print(logprobs.round(3))
    [[ 0.    -2.079 -2.079 -2.079]]
  """
  chunk_size = checks.count("chunk_size", chunk_size)
  checks.positive("temperature", temperature)
  tokens = checks.ids("tokens", tokens, "[B, T]", (None, None))
  hidden = checks.array("hidden", hidden)
  unembedding = checks.array("unembedding", unembedding)
  num_rows, num_tokens = tokens.shape
  if hidden.ndim != 3 or hidden.shape[:2] != tokens.shape:
    raise ValueError(
      f"hidden has shape {hidden.shape}; expected [B, T, D] with the "
      f"[B, T] = {tokens.shape} of tokens"
    )
  width_axis = 1 if transposed else 0
  if unembedding.ndim != 2 or unembedding.shape[width_axis] != hidden.shape[2]:
    raise ValueError(
      f"unembedding has shape {unembedding.shape}; expected "
      f"{'[V, D]' if transposed else '[D, V]'} with "
      f"the D = {hidden.shape[2]} of hidden"
    )

  def score_chunk(
    weights: Array, states: Array, targets: Array
  ) -> tuple[Array, Array]:
    flat = states.reshape(-1, states.shape[-1])
    logits = jax.lax.dot_general(
      flat,
      weights,
      (((1,), (width_axis,)), ((), ())),
      preferred_element_type=jnp.float32,
    )
    logits = _scale(logits, temperature)
    scores = _score(logits, targets.reshape(-1))
    entropies = _entropy(logits)
    return scores.reshape(targets.shape), entropies.reshape(targets.shape)

  num_scored = num_tokens - 1
  if num_scored < 1:
    nothing = jnp.zeros(tokens.shape, jnp.float32)
    return nothing, nothing
  num_chunks = -(-num_scored // chunk_size)
  size = -(-num_scored // num_chunks)  # even pieces need the least padding
  padding = num_chunks * size - num_scored

  def split(x: Array) -> Array:
    """[B, T - 1, ...] to [chunks, B, size, ...]."""
    widths = [(0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 2)
    pieces = jnp.pad(x, widths).reshape(
      num_rows, num_chunks, size, *x.shape[2:]
    )
    return jnp.swapaxes(pieces, 0, 1)

  def join(x: Array) -> Array:
    """[chunks, B, size] to [B, T], shifted."""
    whole = jnp.swapaxes(x, 0, 1).reshape(num_rows, num_chunks * size)
    return _shift(whole[:, :num_scored])

  # The logits of a chunk are made again in the backward pass, not kept.
  remade = cast(_ScoreChunk, jax.checkpoint(score_chunk))

  def step(
    carry: None, chunk: tuple[Array, Array]
  ) -> tuple[None, tuple[Array, Array]]:
    return carry, remade(unembedding, *chunk)

  chunks = (split(hidden[:, :-1]), split(tokens[:, 1:]))
  _, (logprobs, entropies) = jax.lax.scan(step, None, chunks)
  return join(logprobs), join(entropies)
