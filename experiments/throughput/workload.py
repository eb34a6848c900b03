"""The work that both programs do: one GRPO step of a small policy.

A Qwen3 with random weights answers 4 prompts 8 times each. In `plain` mode an
answer is 64 tokens. In `agentic` mode it is three turns of 16 tokens, and an
environment answers each turn but the last with 8 tokens. The reward is the
share of sampled ids in the lower half of the vocabulary. The update is one
AdamW step of GRPO with a KL penalty to a frozen reference.
"""

import argparse
import collections
from collections.abc import Sequence
import dataclasses
import json
import os
import resource
import time

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
  """Sizes of the work; the same numbers drive both programs."""

  mode: str = "plain"
  vocab_size: int = 8192
  num_layers: int = 4
  model_dim: int = 256
  mlp_dim: int = 768
  num_heads: int = 8
  num_kv_heads: int = 4
  head_dim: int = 32
  num_prompts: int = 4
  group_size: int = 8
  prompt_tokens: int = 48
  padded_prompt_tokens: int = 64
  response_tokens: int = 64
  num_turns: int = 3
  turn_tokens: int = 16
  observation_tokens: int = 8
  kl_weight: float = 0.04
  learning_rate: float = 1e-4
  num_steps: int = 8
  num_warmup_steps: int = 2

  @property
  def is_agentic(self) -> bool:
    """True for turns with an environment, False for one answer."""
    return self.mode == "agentic"


def read_arguments(description: str) -> Workload:
  """Reads the workload from the command line."""
  parser = argparse.ArgumentParser(description=description)
  for field in dataclasses.fields(Workload):
    parser.add_argument(
      f"--{field.name}", type=type(field.default), default=field.default
    )
  return Workload(**vars(parser.parse_args()))


def make_prompt(work: Workload, step: int, index: int) -> list[int]:
  """Returns the ids of one prompt of one step."""
  rng = np.random.default_rng([100 + step, index])
  return rng.integers(10, work.vocab_size, work.prompt_tokens).tolist()


def make_observation(work: Workload, turn: int) -> list[int]:
  """Returns the ids that answer a turn."""
  return [11 + (turn * 7 + i) % 500 for i in range(work.observation_tokens)]


def to_text(ids: Sequence[int]) -> str:
  """Writes ids as decimal numbers."""
  return " ".join(str(int(i)) for i in ids)


def to_ids(text: str) -> list[int]:
  """Reads what `to_text` wrote."""
  return [int(word) for word in text.split() if word.isdigit()]


def score(work: Workload, text: str) -> float:
  """Returns the share of ids in the lower half of the vocabulary."""
  ids = to_ids(text)
  return float(np.mean([i < work.vocab_size // 2 for i in ids])) if ids else 0.0


class Meter:
  """Counts compilations and seconds, and prints them as one line of JSON."""

  def __init__(self, work: Workload, name: str):
    import jax

    self._work, self._name = work, name
    self._step = 0
    self._compilations: collections.Counter[int] = collections.Counter()
    self._rows: list[dict[str, float]] = []
    self._started = time.perf_counter(), time.process_time()
    jax.monitoring.register_event_duration_secs_listener(self._on_event)

  def _on_event(self, event: str, seconds: float, **_: object) -> None:
    del seconds
    if event == "/jax/core/compile/backend_compile_duration":
      self._compilations[self._step] += 1

  def start(self) -> None:
    """Begins the first step; what came before is set-up."""
    self._started = time.perf_counter(), time.process_time()

  def end_step(self, **facts: float) -> None:
    """Ends a step and begins the next."""
    now = time.perf_counter(), time.process_time()
    wall, cpu = (b - a for a, b in zip(self._started, now, strict=True))
    self._rows.append({"wall": wall, "cpu": cpu, **facts})
    self._started = now
    self._step += 1

  def report(self, **facts: object) -> None:
    """Prints the line that `compare.py` reads."""
    hot = self._rows[self._work.num_warmup_steps :]
    means = {
      name: float(np.mean([row[name] for row in hot])) for name in hot[0]
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    after_warmup = sum(
      count
      for step, count in self._compilations.items()
      if step >= self._work.num_warmup_steps
    )
    line = {
      "name": self._name,
      "mode": self._work.mode,
      "vocab_size": self._work.vocab_size,
      "cpu_seconds": means.pop("cpu"),
      "wall_seconds": means.pop("wall"),
      "first_step_seconds": self._rows[0]["wall"],
      "compilations": sum(self._compilations.values()),
      "compilations_after_warmup": after_warmup,
      "peak_mb": peak / 1024,
      **means,
      **facts,
    }
    print("RESULT " + json.dumps(line), flush=True)
    os._exit(0)  # threads of either program may still wait for work
