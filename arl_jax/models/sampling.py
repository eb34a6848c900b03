"""Sampling of one token a row, each row by its own parameters."""

import jax
import jax.numpy as jnp


def sample_tokens(
  logits: jax.Array,
  seeds: jax.Array,
  counters: jax.Array,
  *,
  temperature: jax.Array,
  top_k: jax.Array,
  top_p: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Samples a token from each row of logits.

  The distribution is softmax(logits / temperature), cut to the `top_k` most
  likely tokens, then to the smallest set that holds `top_p` of what is left,
  then renormalised. Ties at either edge are kept. A temperature of 0 takes
  the most likely token, whose log-probability is then 0.

  Args:
    logits: `[B, V]` unnormalised log-probabilities.
    seeds: uint32 `[B]` seed of each row.
    counters: int32 `[B]` folded into the seed, so that tokens differ.
    temperature: float32 `[B]`.
    top_k: int32 `[B]`, 0 keeps all tokens.
    top_p: float32 `[B]` in (0, 1], 1 keeps all tokens.

  Returns:
    Token ids int32 `[B]`, with their log-probabilities float32 `[B]` under
    the distribution that they were drawn from.
  """
  logits = logits.astype(jnp.float32)
  greedy = temperature <= 0
  scaled = logits / jnp.where(greedy, 1.0, temperature)[:, None]
  scaled = jax.lax.cond(
    jnp.any((top_k > 0) | (top_p < 1)),
    lambda x: keep_likely(x, top_k=top_k, top_p=top_p),
    lambda x: x,
    scaled,
  )

  def noise(seed, counter):
    key = jax.random.fold_in(jax.random.key(seed), counter)
    return jax.random.gumbel(key, logits.shape[1:], jnp.float32)

  gumbel = jax.vmap(noise)(seeds, counters)
  tokens = jnp.argmax(
    jnp.where(greedy[:, None], logits, scaled + gumbel), axis=-1
  )
  chosen = jnp.take_along_axis(scaled, tokens[:, None], axis=-1)[:, 0]
  logprobs = chosen - jax.nn.logsumexp(scaled, axis=-1)
  return tokens.astype(jnp.int32), jnp.where(greedy, 0.0, logprobs)


def keep_likely(
  logits: jax.Array, *, top_k: jax.Array, top_p: jax.Array
) -> jax.Array:
  """Sets the logits outside top-k and top-p to minus infinity.

  Args:
    logits: float32 `[B, V]`, already divided by the temperature.
    top_k: int32 `[B]`, 0 keeps all tokens.
    top_p: float32 `[B]` in (0, 1], a share of what top-k leaves.

  Returns:
    float32 `[B, V]`.
  """
  vocab_size = logits.shape[-1]
  ordered = jnp.sort(logits, axis=-1, descending=True)
  limit = jnp.where(top_k > 0, jnp.minimum(top_k, vocab_size), vocab_size)
  in_top_k = jnp.arange(vocab_size)[None] < limit[:, None]
  probs = jax.nn.softmax(jnp.where(in_top_k, ordered, -jnp.inf), axis=-1)
  # A token stays if the mass before it has not yet reached top_p; the first
  # one always stays.
  before = jnp.cumsum(probs, axis=-1) - probs
  kept = in_top_k & (before < top_p[:, None])
  kept = kept.at[:, 0].set(True)
  threshold = jnp.min(jnp.where(kept, ordered, jnp.inf), axis=-1)
  return jnp.where(logits >= threshold[:, None], logits, -jnp.inf)
