"""How time and memory of an update grow as rows, tokens and vocabulary double.

    python experiments/throughput/growth.py

The policy and its loss are those of `ours.py`, with one micro-batch, and the
second half of each row is its action. `expected` is how much the
multiplications of all matrix products grow: twofold with the rows, a little
more with the tokens, since attention is quadratic in them, and by the share of
the output head with the vocabulary. Attention is slower than its
multiplications say, so long rows may exceed it, up to fourfold. `temp` is what
the compiled gradient needs beside its arguments and results. It should double
with the rows, grow with the square of the tokens at most, and hold no array of
rows x tokens x vocabulary.
"""

import argparse
from collections.abc import Callable
import dataclasses
import os
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from policy import make_policy, small_model
from random_batch import make_micro_batch
from workload import Workload

from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import update


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
  """The sizes of one update."""

  rows: int = 8
  tokens: int = 128
  vocabulary: int = 8192


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument(
    "--tokens", type=int, nargs="+", default=[64, 128, 256, 512]
  )
  parser.add_argument("--rows", type=int, nargs="+", default=[4, 8, 16, 32])
  parser.add_argument(
    "--vocabulary",
    type=int,
    nargs="+",
    default=[4096, 8192, 16384, 32768, 65536],
  )
  parser.add_argument("--remat", nargs="+", default=["none", "full"])
  parser.add_argument("--repeats", type=int, default=5)
  options = parser.parse_args()
  print("| remat | size | seconds | ratio | expected | temp MB | ratio |")
  print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
  for remat in options.remat:
    for name in ("tokens", "rows", "vocabulary"):
      previous = None
      for value in getattr(options, name):
        size = Size(**{name: value})
        seconds, memory = measure(size, remat, options.repeats)
        now = seconds, num_products(size, remat), memory
        ratios = ["", "", ""]
        if previous is not None:
          ratios = [f"{b / a:.2f}" for a, b in zip(previous, now, strict=True)]
        previous = now
        print(
          f"| {remat} | {name} {value} | {seconds:.3f} | {ratios[0]} |"
          f" {ratios[1]} | {memory / 1e6:.1f} | {ratios[2]} |",
          flush=True,
        )


def measure(size: Size, remat: str, repeats: int) -> tuple[float, int]:
  """Returns seconds of an update and bytes of the gradient's own memory."""
  work = Workload(vocab_size=size.vocabulary)
  policy = make_policy(
    small_model(work, remat=remat),
    LossConfig(kl_weight=work.kl_weight, kl_estimator="k3", logprob_chunk=8),
    accumulate=False,
  )
  learner = policy.initial_state()
  micro = make_micro_batch(
    (size.rows, size.tokens),
    num_actions=size.tokens // 2,
    vocab_size=size.vocabulary,
  )
  normalizer = np.asarray(policy.fns.normalizer(micro.batch))
  gradient: Callable[..., Any] = policy.fns.gradient.lower(  # type: ignore[attr-defined]
    learner.params, policy.params, micro, normalizer, None
  ).compile()
  fns = dataclasses.replace(policy.fns, gradient=gradient)
  seconds = []
  for _ in range(1 + repeats):
    started = time.perf_counter()
    learner, _ = update(learner, [micro], fns=fns, ref_params=policy.params)
    seconds.append(time.perf_counter() - started)
  memory = gradient.memory_analysis().temp_size_in_bytes  # type: ignore[attr-defined]
  jax.clear_caches()
  return float(np.median(seconds[1:])), memory


def num_products(size: Size, remat: str) -> float:
  """Counts multiplications of the products in an update."""
  work = Workload()
  queries = work.num_heads * work.head_dim
  keys = work.num_kv_heads * work.head_dim
  layer = 2 * work.model_dim * (queries + keys) + (
    3 * work.model_dim * work.mlp_dim
  )
  attention = 2 * queries * size.tokens
  num_tokens = size.rows * size.tokens
  # Forward, twice that backward, the reference; and what is computed again.
  layers = (4 + (remat == "full")) * work.num_layers * num_tokens
  head = 5 * work.model_dim * size.vocabulary * num_tokens / 2
  return layers * (layer + attention) + head


if __name__ == "__main__":
  main()
