"""Sampling of one token a row, each row by its own parameters."""

import jax
import jax.numpy as jnp

# Tokens in one block of the vocabulary.
_BLOCK = 128


def draw_uniforms(seeds: jax.Array, counters: jax.Array) -> jax.Array:
  """Draws the randomness of `sample_tokens`.

  Args:
    seeds: uint32 `[B]` seed of each row.
    counters: int32 `[..., B]` folded into the seed, so that tokens differ.

  Returns:
    float32 `[..., B, 2]` in [0, 1).
  """

  def draw(seed, counter):
    return jax.random.uniform(
      jax.random.fold_in(jax.random.key(seed), counter), (2,)
    )

  shape = counters.shape
  flat = jax.vmap(draw)(
    jnp.broadcast_to(seeds, shape).reshape(-1), counters.reshape(-1)
  )
  return flat.reshape(*shape, 2)


def sample_tokens(
  logits: jax.Array,
  uniforms: jax.Array,
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
    uniforms: float32 `[B, 2]` in [0, 1), see `draw_uniforms`.
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
  peak = jnp.max(scaled, axis=-1, keepdims=True)
  weights = jnp.exp(scaled - peak)
  tokens, total = _draw(weights, uniforms)
  tokens = jax.lax.cond(
    jnp.any(greedy),
    lambda: jnp.where(greedy, _first_where(scaled == peak), tokens),
    lambda: tokens,
  )
  chosen = jnp.take_along_axis(scaled, tokens[:, None], axis=-1)
  logprobs = (chosen - peak)[:, 0] - jnp.log(total)
  return tokens, jnp.where(greedy, 0.0, logprobs)


def _draw(
  weights: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Inverts the distribution function, first over blocks, then in a block.

  Two uniforms a row cost far less than the V that Gumbel noise takes, and
  two short sums lose less in float32 than one over the whole vocabulary.

  Args:
    weights: float32 `[B, V]` unnormalised probabilities.
    uniforms: float32 `[B, 2]` in [0, 1).

  Returns:
    Ids int32 `[B]`, and the sum of the weights float32 `[B]`.
  """
  num_rows, vocab_size = weights.shape
  num_blocks = -(-vocab_size // _BLOCK)
  padding = num_blocks * _BLOCK - vocab_size
  blocks = jnp.pad(weights, ((0, 0), (0, padding)))
  blocks = blocks.reshape(num_rows, num_blocks, _BLOCK)
  sums = jnp.sum(blocks, axis=-1)
  block = _invert(sums, uniforms[:, 0])
  inside = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
  token = block * _BLOCK + _invert(inside, uniforms[:, 1])
  return token, jnp.sum(sums, axis=-1)


def _invert(weights: jax.Array, uniform: jax.Array) -> jax.Array:
  """Returns int32 `[B]`, the first index whose running sum passes u·total."""
  running = jnp.cumsum(weights, axis=-1)
  total = running[:, -1:]
  index = jnp.sum(running <= uniform[:, None] * total, axis=-1)
  # Rounding can lift u·total to the total; what lies behind the last weight
  # above 0 is never drawn.
  return jnp.minimum(index, jnp.sum(running < total, axis=-1)).astype(jnp.int32)


def _first_where(condition: jax.Array) -> jax.Array:
  # Not argmax: XLA's CPU backend does not vectorise it.
  index = jnp.arange(condition.shape[-1], dtype=jnp.int32)
  return jnp.min(jnp.where(condition, index, condition.shape[-1] - 1), axis=-1)


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
