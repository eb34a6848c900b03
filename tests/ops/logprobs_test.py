import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import golden

B, T, D, V = 2, 6, 4, 9


def _model(seed: int = 0):
  rng = np.random.default_rng(seed)
  hidden = rng.normal(size=(B, T, D)).astype(np.float32)
  unembedding = rng.normal(size=(D, V)).astype(np.float32)
  return hidden, unembedding, rng.integers(0, V, (B, T))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_equal_a_loop(temperature: float):
  hidden, unembedding, tokens = _model()
  logits = (hidden @ unembedding).astype(np.float64)
  logprobs, entropies = np.zeros((B, T)), np.zeros((B, T))
  for b in range(B):
    for t in range(1, T):
      z = logits[b, t - 1] / temperature
      p = np.exp(z) / np.exp(z).sum()
      logprobs[b, t] = np.log(p[tokens[b, t]])
      entropies[b, t] = -(p * np.log(p)).sum()
  actual = arl.token_logprobs(logits, tokens, temperature=temperature)
  golden.assert_close(actual, logprobs)
  actual = arl.token_entropies(logits, temperature=temperature)
  golden.assert_close(actual, entropies)


@functools.cache
def _dense():
  hidden, unembedding, tokens = _model()

  def loss(hidden, unembedding):
    logits = hidden @ unembedding
    logprobs = arl.token_logprobs(logits, tokens, temperature=0.7)
    entropies = arl.token_entropies(logits, temperature=0.7)
    return jnp.sum(logprobs + 0.1 * entropies), (logprobs, entropies)

  return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(
    hidden, unembedding
  )


@pytest.mark.parametrize("chunk_size", [1, 2, 5, 6, 100])
def test_chunked_equals_dense_with_gradients(chunk_size: int):
  hidden, unembedding, tokens = _model()

  def loss(hidden, unembedding):
    logprobs, entropies = arl.chunked_token_logprobs(
      hidden, unembedding, tokens, chunk_size=chunk_size, temperature=0.7
    )
    return jnp.sum(logprobs + 0.1 * entropies), (logprobs, entropies)

  actual = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(
    hidden, unembedding
  )
  jax.tree.map(golden.assert_close, actual, _dense())


def test_a_row_of_one_token_has_nothing_to_score():
  logprobs, entropies = arl.chunked_token_logprobs(
    jnp.ones((2, 1, D)), jnp.ones((D, V)), jnp.zeros((2, 1), int), chunk_size=4
  )
  np.testing.assert_array_equal(logprobs, np.zeros((2, 1)))
  np.testing.assert_array_equal(entropies, np.zeros((2, 1)))


def _largest(jaxpr) -> int:
  """Elements of the largest array anywhere in a program."""
  sizes = [0]
  for equation in jaxpr.eqns:
    sizes += [v.aval.size for v in equation.outvars]
    for value in equation.params.values():
      inner = getattr(value, "jaxpr", value)
      if hasattr(inner, "eqns"):
        sizes.append(_largest(inner))
  return max(sizes)


def test_chunked_never_holds_the_logits_of_a_row():
  tokens, vocabulary, chunk = 64, 512, 8

  def loss(hidden, unembedding):
    logprobs, _ = arl.chunked_token_logprobs(
      hidden, unembedding, jnp.zeros((1, tokens), int), chunk_size=chunk
    )
    return jnp.sum(logprobs)

  program = jax.make_jaxpr(jax.grad(loss))(
    jnp.ones((1, tokens, 2)), jnp.ones((2, vocabulary))
  )
  assert _largest(program.jaxpr) <= chunk * vocabulary


def _temporary_bytes(score) -> int:
  """What a gradient of `score` needs besides arguments and results."""

  def loss(hidden, unembedding, tokens):
    logprobs, entropies = score(hidden, unembedding, tokens)
    return jnp.sum(logprobs + 0.1 * entropies)

  rows, length, width, vocabulary = 8, 256, 64, 49152
  lowered = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(
    jax.ShapeDtypeStruct((rows, length, width), jnp.float32),
    jax.ShapeDtypeStruct((width, vocabulary), jnp.float32),
    jax.ShapeDtypeStruct((rows, length), jnp.int32),
  )
  analysis = lowered.compile().memory_analysis()
  assert analysis is not None
  return analysis.temp_size_in_bytes


def test_chunks_take_less_than_a_third_of_the_memory():
  def dense(hidden, unembedding, tokens):
    logits = hidden @ unembedding
    return arl.token_logprobs(logits, tokens), arl.token_entropies(logits)

  chunked = functools.partial(arl.chunked_token_logprobs, chunk_size=32)
  assert _temporary_bytes(chunked) < _temporary_bytes(dense) / 3


def test_scores_of_bfloat16_are_float32():
  hidden, unembedding, tokens = _model()
  logprobs, entropies = arl.chunked_token_logprobs(
    jnp.asarray(hidden, jnp.bfloat16),
    jnp.asarray(unembedding, jnp.bfloat16),
    tokens,
    chunk_size=2,
  )
  assert logprobs.dtype == entropies.dtype == jnp.float32


def test_forbidden_words_leave_entropy_and_gradient_finite():
  logits = jnp.array([[[0.0, 0.0, -jnp.inf], [0.0, 0.0, 0.0]]])
  golden.assert_close(arl.token_entropies(logits)[0, 1], np.log(2))
  grad = jax.grad(lambda x: arl.token_entropies(x).sum())(logits)
  assert np.isfinite(grad).all()


def test_a_padding_id_reads_inside_the_vocabulary():
  logits, tokens = jnp.zeros((1, 3, V)), jnp.array([[0, -1, 10**6]])
  assert np.isfinite(arl.token_logprobs(logits, tokens)).all()
