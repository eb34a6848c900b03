"""Sampling against probabilities worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arl_jax.models import sampling

PROBS = np.array([0.4, 0.3, 0.2, 0.1])


def draw(num, *, temperature=1.0, top_k=0, top_p=1.0):
  logits = jnp.broadcast_to(jnp.log(jnp.asarray(PROBS)), (num, 4))
  return sampling.sample_tokens(
    logits,
    sampling.draw_uniforms(jnp.full(num, 3, jnp.uint32), jnp.arange(num)),
    temperature=jnp.full(num, temperature),
    top_k=jnp.full(num, top_k),
    top_p=jnp.full(num, top_p),
  )


def check(expected, **kwargs):
  """Frequencies and log-probabilities both follow the expected cut."""
  expected = np.asarray(expected) / np.sum(expected)
  tokens, logprobs = draw(4000, **kwargs)
  counts = np.bincount(np.asarray(tokens), minlength=4) / 4000
  np.testing.assert_allclose(counts, expected, atol=0.03)
  assert set(np.unique(tokens)) <= set(np.flatnonzero(expected))
  drawn = expected[np.asarray(tokens)]
  np.testing.assert_allclose(logprobs, np.log(drawn), atol=1e-5)


def test_plain():
  check(PROBS)


@pytest.mark.parametrize("vocab_size", [5, 128, 300])
def test_samples_follow_the_distribution(vocab_size):
  """Chi-square over 20,000 draws, within a block of the sum and across."""
  num = 20000
  rng = np.random.default_rng(vocab_size)
  probs = rng.dirichlet(np.ones(vocab_size))
  tokens, logprobs = sampling.sample_tokens(
    jnp.broadcast_to(jnp.log(jnp.asarray(probs)) + 7.0, (num, vocab_size)),
    sampling.draw_uniforms(jnp.full(num, 1, jnp.uint32), jnp.arange(num)),
    temperature=jnp.ones(num),
    top_k=jnp.zeros(num, jnp.int32),
    top_p=jnp.ones(num),
  )
  tokens = np.asarray(tokens)
  counts = np.bincount(tokens, minlength=vocab_size)
  # Cells with less than 5 expected draws are pooled, as the test asks for.
  rare = probs * num < 5
  seen = np.append(counts[~rare], counts[rare].sum())
  expected = np.append(probs[~rare], probs[rare].sum()) * num
  kept = expected > 0
  statistic = np.sum((seen - expected)[kept] ** 2 / expected[kept])
  freedom = kept.sum() - 1
  # Wilson and Hilferty: the cube root is normal; 4 standard deviations.
  spread = 2 / (9 * freedom)
  assert statistic < freedom * (1 - spread + 4 * spread**0.5) ** 3
  np.testing.assert_allclose(logprobs, np.log(probs[tokens]), atol=1e-4)


def test_the_edges_of_the_uniforms_draw_what_can_be_drawn():
  nearly_one = np.nextafter(np.float32(1), np.float32(0))
  uniforms = jnp.array([[0, 0], [nearly_one, nearly_one]], jnp.float32)
  logits = jnp.full((2, 400), -jnp.inf).at[:, 130:140].set(0.0)
  tokens, logprobs = sampling.sample_tokens(
    logits,
    uniforms,
    temperature=jnp.ones(2),
    top_k=jnp.zeros(2, jnp.int32),
    top_p=jnp.ones(2),
  )
  np.testing.assert_array_equal(tokens, [130, 139])
  np.testing.assert_allclose(logprobs, np.log(0.1), atol=1e-6)


def test_greedy_takes_the_first_of_equals():
  logits = jnp.zeros((1, 300)).at[0, jnp.array([200, 250])].set(1.0)
  tokens, _ = sampling.sample_tokens(
    logits,
    jnp.full((1, 2), 0.99),
    temperature=jnp.zeros(1),
    top_k=jnp.zeros(1, jnp.int32),
    top_p=jnp.ones(1),
  )
  assert tokens.tolist() == [200]


def test_temperature_sharpens():
  check(PROBS**2, temperature=0.5)


def test_top_k_renormalises():
  check([0.4, 0.3, 0, 0], top_k=2)


def test_top_p_keeps_the_token_that_crosses():
  # 0.4 is short of 0.5, so the second token is kept too.
  check([0.4, 0.3, 0, 0], top_p=0.5)
  check([0.4, 0, 0, 0], top_p=0.4)


def test_top_p_counts_what_top_k_leaves():
  # Of (4, 3, 2)/9 the first two hold 0.78.
  check([0.4, 0.3, 0, 0], top_k=3, top_p=0.7)


def test_rows_have_their_own_parameters():
  logits = jnp.broadcast_to(jnp.log(jnp.asarray(PROBS)), (3, 4))
  tokens, logprobs = sampling.sample_tokens(
    logits,
    sampling.draw_uniforms(
      jnp.arange(3, dtype=jnp.uint32), jnp.zeros(3, jnp.int32)
    ),
    temperature=jnp.array([0.0, 1.0, 1.0]),
    top_k=jnp.array([0, 1, 0]),
    top_p=jnp.array([1.0, 1.0, 0.01]),
  )
  np.testing.assert_array_equal(tokens, [0, 0, 0])
  np.testing.assert_allclose(logprobs, 0.0, atol=1e-6)


def test_counters_change_the_draw_and_seeds_repeat_it():
  first, _ = draw(64)
  again, _ = draw(64)
  np.testing.assert_array_equal(first, again)
  assert len(set(np.asarray(first).tolist())) > 1


def test_jit_equals_eager():
  jitted = jax.jit(sampling.keep_likely)
  logits = jnp.log(jnp.asarray(PROBS))[None]
  kwargs = {"top_k": jnp.array([3]), "top_p": jnp.array([0.8])}
  np.testing.assert_array_equal(
    sampling.keep_likely(logits, **kwargs), jitted(logits, **kwargs)
  )
