"""What a KL estimator pulls towards when it is minimised.

Over a categorical policy π every expectation is a sum, so that the gradient of
a loss over samples is exact: Σ_a μ(a) ∇ℓ(a), μ the policy that sampled.

  python experiments/kl_gradients/study.py
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import arl_jax as arl

SIZES = (4, 16, 64)  # actions
SEEDS = (0, 1, 2, 3, 4)
HEADER = (
  "term",
  "sampled by",
  "value / KL(π ‖ ref)",
  "size of gradient",
  "off ∇KL(π ‖ ref)",
  "off ∇KL(ref ‖ π)",
)

Array = jax.Array
# From log-probabilities of policy, reference, sampler: a loss per action.
Term = Callable[[Array, Array, Array], Array]


def penalty(estimator: str) -> Term:
  def term(logprobs: Array, ref: Array, sampler: Array) -> Array:
    mask = jnp.ones(logprobs.shape, bool)
    return arl.kl_penalty_loss(
      logprobs, ref, sampler, mask, estimator=estimator
    )

  return term


def k1_as_loss(logprobs: Array, ref: Array, sampler: Array) -> Array:
  return arl.kl_k1(logprobs, ref)


def k1_in_reward(logprobs: Array, ref: Array, sampler: Array) -> Array:
  rewards = -arl.kl_k1(logprobs, ref)
  mask = jnp.ones(logprobs.shape, bool)
  return arl.policy_gradient_loss(logprobs, rewards, mask)


TERMS: dict[str, Term] = {
  "k1": k1_as_loss,
  "k1 in the reward": k1_in_reward,
  "k2": penalty("k2"),
  "k3": penalty("k3"),
  "k3_unbiased": penalty("k3_unbiased"),
}
# An older policy sampled, as in asynchronous training.
OLDER = ("k2", "k3", "k3_unbiased")
ROWS = [(name, "π") for name in TERMS] + [
  (name, "an older π") for name in OLDER
]


def reverse_kl(logprobs: Array, ref: Array) -> Array:
  """KL(π ‖ ref)."""
  return jnp.sum(jnp.exp(logprobs) * (logprobs - ref))


def forward_kl(logprobs: Array, ref: Array) -> Array:
  """KL(ref ‖ π)."""
  return jnp.sum(jnp.exp(ref) * (ref - logprobs))


def log_softmax(logits: Array) -> Array:
  return jax.nn.log_softmax(logits)[None]  # one row of tokens, [1, actions]


def measure_one(logits: Array, older: Array, ref: Array) -> Array:
  """Returns the numbers of one policy, `[rows, 4]`."""
  ref = log_softmax(ref)
  samplers = {"π": log_softmax(logits), "an older π": log_softmax(older)}
  kl, reverse = jax.value_and_grad(lambda x: reverse_kl(log_softmax(x), ref))(
    logits
  )
  forward = jax.grad(lambda x: forward_kl(log_softmax(x), ref))(logits)
  norm = jnp.linalg.norm

  def measure_term(term: Term, sampler: Array) -> Array:
    def expected(logits: Array) -> Array:
      # The sampler is given: nothing is differentiated through the sampling.
      return jnp.sum(jnp.exp(sampler) * term(log_softmax(logits), ref, sampler))

    value, grad = jax.value_and_grad(expected)(logits)
    return jnp.stack(
      [
        value / kl,
        norm(grad) / norm(reverse),
        norm(grad - reverse) / norm(reverse),
        norm(grad - forward) / norm(forward),
      ]
    )

  return jnp.stack(
    [measure_term(TERMS[name], samplers[who]) for name, who in ROWS]
  )


def measure() -> dict[tuple[str, str], np.ndarray]:
  """Returns for each row the numbers of all policies, `[policies, 4]`."""
  measured = []
  for size in SIZES:
    draws = [
      np.random.default_rng([size, seed]).normal(size=(3, size))
      for seed in SEEDS
    ]
    policies = jnp.asarray(np.stack(draws, axis=1), jnp.float32)
    measured.append(jax.jit(jax.vmap(measure_one))(*policies))
  return dict(zip(ROWS, np.concatenate(measured).swapaxes(0, 1), strict=True))


def describe(numbers: np.ndarray) -> str:
  """Returns the range of a column, to two digits."""
  low, high = (f"{x:.2f}" for x in (numbers.min(), numbers.max()))
  return low if low == high else f"{low} to {high}"


def table(measured: dict[tuple[str, str], np.ndarray]) -> str:
  lines = [HEADER, ("---",) * len(HEADER)]
  for (name, sampled_by), numbers in measured.items():
    columns = [describe(column) for column in numbers.T]
    if name == "k1 in the reward":
      columns[0] = "no value"  # only its gradient means something
    lines.append((name, sampled_by, *columns))
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
  print(table(measure()))
