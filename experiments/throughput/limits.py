"""SmolLM2-135M on arl_jax against the limits of the machine, and PyTorch.

    python experiments/throughput/limits.py --torch_python PATH --runs 5

PATH is the Python of a virtual environment that has torch and transformers;
without it PyTorch is left out. The weights are random, all is in float32, and
every part runs in a process of its own, so that its peak of memory is its own.
A decode step is compared with

    limit = max((bytes of weights + bytes of keys and values) / bandwidth,
                FLOPs / rate of the matrix products)

where the products are a layer's at 2048 rows, and prefill and the update with
the FLOPs at the rate of the products at as many rows. FLOPs are those of the
weights and of the attention to all cells that it reads; the update's hold what
it computes again. A limit is the best of its calls, all else the median.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import json
import os
import pathlib
import resource
import sys
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from compare import describe, parse_result, run
import jax
import jax.numpy as jnp
import numpy as np
from policy import make_policy
from random_batch import make_micro_batch

from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import update
from arl_jax.models import decode, kv_cache, transformer
from arl_jax.models.transformer import ModelConfig

MODEL = ModelConfig(
  vocab_size=49152,
  num_layers=30,
  model_dim=576,
  num_heads=9,
  num_kv_heads=3,
  head_dim=64,
  mlp_dim=1536,
  rope_theta=1e5,
  tie_embeddings=True,
)
# The products of a layer, `[rows, a] x [a, b]`, and how many there are.
PRODUCTS = {(576, 576): 2, (576, 192): 2, (576, 1536): 2, (1536, 576): 1}
LAYER_WEIGHTS = sum(a * b * n for (a, b), n in PRODUCTS.items())
BODY_WEIGHTS = MODEL.num_layers * LAYER_WEIGHTS
HEAD_WEIGHTS = MODEL.vocab_size * MODEL.model_dim
# Of the attention of a token to one cell, in all layers.
CELL_FLOPS = 4 * MODEL.num_layers * MODEL.num_heads * MODEL.head_dim
CELL_BYTES = 4 * 2 * MODEL.num_layers * MODEL.num_kv_heads * MODEL.head_dim

SLOTS, CONTEXT, CELLS, STEPS = (1, 8, 32), 200, 256, 16
PREFILL_ROWS = (1, 8)
UPDATE_ROWS, UPDATE_TOKENS, UPDATE_ACTIONS = 8, 256, 128

Result = dict[str, Any]


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument("--part", choices=PARTS, help="measures only this one")
  parser.add_argument("--torch_python")
  parser.add_argument("--runs", type=int, default=5)
  parser.add_argument("--repeats", type=int, default=7)
  options = parser.parse_args()
  if options.part:
    facts = PARTS[options.part](options.repeats)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("RESULT " + json.dumps(facts | {"peak_mb": peak}), flush=True)
    return
  runs = [measure_all(options) for _ in range(options.runs)]
  print(table(runs))


# Parts. Each returns rates, or seconds.


def measure_limits(repeats: int) -> Result:
  # As large as the weights. Either call may be the one that reads faster.
  matrix = jnp.ones((1 << 14, 1 << 13), jnp.float32)
  vector = jnp.ones(1 << 13, jnp.float32)
  reads = [
    least_seconds(functools.partial(jax.jit(fn), *args), repeats)
    for fn, args in ((jnp.matmul, (matrix, vector)), (jnp.sum, (matrix,)))
  ]
  square = jnp.ones((2048, 2048), jnp.float32)
  product = functools.partial(jax.jit(jnp.matmul), square, square)
  return {
    "bandwidth": matrix.nbytes / min(reads),
    "gemm_256": layer_rate(256, repeats),
    "gemm_2048": layer_rate(2048, repeats),
    "gemm_square": 2 * 2048**3 / least_seconds(product, repeats),
  }


def layer_rate(num_rows: int, repeats: int, num_layers: int = 8) -> float:
  """Returns FLOPs a second of the products of some layers in one call."""
  weights = [
    jnp.ones((a, b))
    for _ in range(num_layers)
    for (a, b), count in PRODUCTS.items()
    for _ in range(count)
  ]
  inputs = {a: jnp.ones((num_rows, a)) for a, _ in PRODUCTS}
  products = jax.jit(lambda x, ws: [x[len(w)] @ w for w in ws])
  call = functools.partial(products, inputs, weights)
  seconds = least_seconds(call, repeats)
  return 2 * num_rows * num_layers * LAYER_WEIGHTS / seconds


def least_seconds(call: Callable[[], Any], repeats: int) -> float:
  """Returns the time of the fastest call: a limit is the best that was seen."""
  return min(time_calls(call, 4 * repeats))


def measure_decode(repeats: int) -> Result:
  params = draw_params()
  return {
    "rates": {str(n): decode_rate(params, n, repeats) for n in SLOTS},
  }


def decode_rate(params: Any, num_slots: int, repeats: int) -> float:
  cache = kv_cache.init_cache(MODEL, num_slots=num_slots, max_length=CELLS)
  rows: Any = decode.RowInputs(
    slot_ids=np.arange(num_slots, dtype=np.int32),
    tokens=np.arange(num_slots, dtype=np.int32),
    lengths=np.full(num_slots, CONTEXT, np.int32),
    budgets=np.full(num_slots, STEPS, np.int32),
    seeds=np.arange(num_slots, dtype=np.uint32),
    temperature=np.ones(num_slots, np.float32),
    top_k=np.zeros(num_slots, np.int32),
    top_p=np.ones(num_slots, np.float32),
    stop_ids=np.full((num_slots, 8), -1, np.int32),
  )

  def chunk():
    nonlocal cache
    cache, *outputs = decode.decode_chunk(
      params,
      cache,
      rows,
      config=MODEL,
      num_steps=STEPS,
      kv_length=CELLS,
    )
    return outputs

  return num_slots * STEPS / median_seconds(chunk, repeats)


def measure_prefill(repeats: int) -> Result:
  params = draw_params()
  return {
    "rates": {str(n): prefill_rate(params, n, repeats) for n in PREFILL_ROWS},
  }


def prefill_rate(params: Any, num_rows: int, repeats: int) -> float:
  cache = kv_cache.init_cache(MODEL, num_slots=num_rows, max_length=CELLS)
  tokens: Any = np.ones((num_rows, CELLS), np.int32)
  slot_ids: Any = np.arange(num_rows, dtype=np.int32)
  starts: Any = np.zeros(num_rows, np.int32)

  def extend():
    nonlocal cache
    cache = decode.prefill_extend(
      params,
      cache,
      tokens,
      slot_ids,
      starts,
      starts + CELLS,
      config=MODEL,
      kv_length=CELLS,
    )
    return cache

  return num_rows * CELLS / median_seconds(extend, repeats)


def measure_update(repeats: int) -> Result:
  model = dataclasses.replace(MODEL, remat="full")
  policy = make_policy(model, LossConfig(logprob_chunk=8), accumulate=False)
  fns, learner = policy.fns, policy.initial_state()
  del policy  # nobody reads the initial weights
  micro = make_micro_batch(
    (UPDATE_ROWS, UPDATE_TOKENS),
    num_actions=UPDATE_ACTIONS,
    vocab_size=MODEL.vocab_size,
  )

  def step():
    nonlocal learner
    learner, _ = update(learner, [micro], fns=fns)
    return learner

  return {"seconds": median_seconds(step, repeats)}


def draw_params() -> Any:
  """Draws weights layer by layer, so that none is ever held twice."""
  rng = np.random.default_rng(0)

  def draw(spec: transformer.ParamSpec, skipped: int = 0) -> jax.Array:
    shape = spec.shape[skipped:]
    if spec.stddev is None:
      return jnp.ones(shape)
    return jnp.asarray(0.02 * rng.standard_normal(shape, np.float32))

  specs = transformer.param_specs(MODEL)
  layers = [
    {name: draw(spec, 1) for name, spec in specs["layers"].items()}
    for _ in range(MODEL.num_layers)
  ]
  return {
    "embed": draw(specs["embed"]),
    "layers": tuple(layers),
    "final_norm": draw(specs["final_norm"]),
  }


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
  return float(np.median(time_calls(call, repeats)))


def time_calls(call: Callable[[], Any], repeats: int) -> list[float]:
  jax.block_until_ready(call())  # compiles
  seconds = []
  for _ in range(repeats):
    started = time.perf_counter()
    jax.block_until_ready(call())
    seconds.append(time.perf_counter() - started)
  return seconds


PARTS: dict[str, Callable[[int], Result]] = {
  "limits": measure_limits,
  "decode": measure_decode,
  "prefill": measure_prefill,
  "update": measure_update,
}


# All parts, and the table.


def measure_all(options: argparse.Namespace) -> Mapping[str, Result]:
  """Runs every part once; PyTorch right after ours."""
  results = {}
  for part in PARTS:
    results[part] = measure(
      sys.executable, "limits.py", f"--part={part}", options.repeats
    )
    rows = {"decode": SLOTS, "prefill": PREFILL_ROWS}.get(part)
    if options.torch_python and rows is not None:
      results[f"torch_{part}"] = measure(
        options.torch_python,
        "torch_side.py",
        *(f"--part={part}", "--rows", *map(str, rows)),
        *(f"--context={CONTEXT}", f"--cells={CELLS}", f"--steps={STEPS}"),
        options.repeats,
      )
  return results


def measure(python: str, file: str, *arguments: Any) -> Result:
  *words, repeats = arguments
  path = str(pathlib.Path(__file__).parent / file)
  command = [python, path, *words, f"--repeats={repeats}"]
  environment = os.environ | {
    "OMP_NUM_THREADS": str(os.cpu_count()),
    "OMP_WAIT_POLICY": "passive",
  }
  result = parse_result(run(command, environment))
  print(*words, json.dumps(result), file=sys.stderr, flush=True)
  return result


def table(runs: Sequence[Mapping[str, Result]]) -> str:
  limits = [run["limits"] for run in runs]
  lines = [
    f"| {name} | {describe([x[key] / 1e9 for x in limits], 1)} |"
    for name, key in (
      ("read bandwidth, GB/s", "bandwidth"),
      ("products of a layer at 256 rows, GFLOP/s", "gemm_256"),
      ("products of a layer at 2048 rows, GFLOP/s", "gemm_2048"),
      ("2048 x 2048 x 2048, GFLOP/s", "gemm_square"),
    )
  ]
  lines = ["| limit | measured |", "| --- | --- |", *lines, ""]
  lines += [
    "| part | arl_jax | share of the limit | PyTorch | ratio |",
    "| --- | --- | --- | --- | --- |",
  ]
  for part, sizes, seconds_of in (
    ("decode", SLOTS, decode_limit),
    ("prefill", PREFILL_ROWS, prefill_limit),
  ):
    for n in sizes:
      ours = [run[part]["rates"][str(n)] for run in runs]
      tokens = n if part == "decode" else n * CELLS
      shares = [
        rate * seconds_of(n, limit) / tokens
        for rate, limit in zip(ours, limits, strict=True)
      ]
      lines.append(
        f"| {part}, {n} rows, tokens/s | {describe(ours, 0)} |"
        f" {describe(shares, 2)} | {_torch_columns(runs, part, n, ours)} |"
      )
  seconds = [run["update"]["seconds"] for run in runs]
  shares = [
    update_flops() / s / limit["gemm_2048"]
    for s, limit in zip(seconds, limits, strict=True)
  ]
  lines.append(
    f"| update, seconds | {describe(seconds, 2)} | {describe(shares, 2)} | | |"
  )
  for part in ("decode", "prefill", "update"):
    columns = [
      describe([run[name]["peak_mb"] for run in runs], 0)
      if name in runs[0]
      else ""
      for name in (part, f"torch_{part}")
    ]
    lines.append(f"| {part}, peak MB | {columns[0]} | | {columns[1]} | |")
  return "\n".join(lines)


def _torch_columns(
  runs: Sequence[Mapping[str, Result]],
  part: str,
  n: int,
  ours: Sequence[float],
) -> str:
  if f"torch_{part}" not in runs[0]:
    return " |"
  theirs = [run[f"torch_{part}"]["rates"][str(n)] for run in runs]
  ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
  return f"{describe(theirs, 0)} | {describe(ratios, 2)}"


def decode_limit(num_slots: int, limits: Result) -> float:
  """Returns the fewest seconds of a step in all slots."""
  num_weights = BODY_WEIGHTS + HEAD_WEIGHTS
  num_bytes = 4 * num_weights + num_slots * CELLS * CELL_BYTES
  flops = num_slots * (2 * num_weights + CELLS * CELL_FLOPS)
  return max(num_bytes / limits["bandwidth"], flops / limits["gemm_2048"])


def prefill_limit(num_rows: int, limits: Result) -> float:
  """Returns the fewest seconds of a prefill of all cells."""
  flops = num_rows * CELLS * (2 * BODY_WEIGHTS + CELLS * CELL_FLOPS)
  return flops / limits[f"gemm_{num_rows * CELLS}"]


def update_flops() -> float:
  """Counts forward, twice that backward, and the forward computed again."""
  num_tokens = UPDATE_ROWS * UPDATE_TOKENS
  forward = num_tokens * (2 * BODY_WEIGHTS + UPDATE_TOKENS * CELL_FLOPS)
  forward += UPDATE_ROWS * UPDATE_ACTIONS * 2 * HEAD_WEIGHTS
  return 4 * forward


if __name__ == "__main__":
  main()
