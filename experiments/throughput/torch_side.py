"""Decoding and prefill of the same shape on PyTorch; started by `limits.py`.

It needs torch and transformers, which arl_jax does not: it runs in a virtual
environment of its own. PyTorch gets all cores, `inference_mode`, and of its two
caches the one that is faster.
"""

import argparse
from collections.abc import Callable
import json
import os
import resource
import time

import numpy as np
import torch
from transformers import (
  DynamicCache,
  LlamaConfig,
  LlamaForCausalLM,
  StaticCache,
)

CONFIG = LlamaConfig(
  vocab_size=49152,
  hidden_size=576,
  intermediate_size=1536,
  num_hidden_layers=30,
  num_attention_heads=9,
  num_key_value_heads=3,
  tie_word_embeddings=True,
  max_position_embeddings=8192,
  rope_theta=1e5,
)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--part", choices=["decode", "prefill"], required=True)
  parser.add_argument("--rows", type=int, nargs="+", required=True)
  parser.add_argument("--context", type=int, default=200)
  parser.add_argument("--cells", type=int, default=256)
  parser.add_argument("--steps", type=int, default=16)
  parser.add_argument("--repeats", type=int, default=5)
  options = parser.parse_args()
  torch.manual_seed(0)
  torch.set_num_threads(os.cpu_count() or 1)
  model = LlamaForCausalLM(CONFIG).eval()
  part = decode if options.part == "decode" else prefill
  with torch.inference_mode():
    rates = {str(rows): part(model, rows, options) for rows in options.rows}
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
  line = {"rates": rates, "peak_mb": peak, "torch": torch.__version__}
  print("RESULT " + json.dumps(line), flush=True)


def decode(
  model: LlamaForCausalLM, num_rows: int, options: argparse.Namespace
) -> float:
  """Returns sampled tokens a second."""
  prompt = torch.randint(0, CONFIG.vocab_size, (num_rows, options.context))
  makers: list[Callable[[], DynamicCache | StaticCache]] = [
    lambda: DynamicCache(config=CONFIG),
    lambda: StaticCache(config=CONFIG, max_cache_len=options.cells),
  ]
  rates = []
  for make in makers:
    seconds = []
    for _ in range(1 + options.repeats):
      cache = make()
      out = model(prompt, past_key_values=cache, logits_to_keep=1)
      tokens = out.logits[:, -1].argmax(-1)[:, None]
      started = time.perf_counter()
      for _ in range(options.steps):
        out = model(tokens, past_key_values=cache)
        shares = torch.softmax(out.logits[:, -1], -1)
        tokens = torch.multinomial(shares, 1)
      seconds.append(time.perf_counter() - started)
    rates.append(num_rows * options.steps / float(np.median(seconds[1:])))
  return max(rates)


def prefill(
  model: LlamaForCausalLM, num_rows: int, options: argparse.Namespace
) -> float:
  """Returns prompt tokens a second; the output head runs for one of a row."""
  tokens = torch.randint(0, CONFIG.vocab_size, (num_rows, options.cells))
  seconds = []
  for _ in range(1 + options.repeats):
    started = time.perf_counter()
    cache = DynamicCache(config=CONFIG)
    model(tokens, past_key_values=cache, logits_to_keep=1)
    seconds.append(time.perf_counter() - started)
  return num_rows * options.cells / float(np.median(seconds[1:]))


if __name__ == "__main__":
  main()
