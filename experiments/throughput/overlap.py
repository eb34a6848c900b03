"""Episodes per second while tools take their time, against the ideal.

    python experiments/throughput/overlap.py --latencies 0 0.1 0.5 2

Each episode has three turns and waits for a tool after the first two. The
ideal keeps the device busy or every tool running, whichever takes longer:

    ideal = 1 / max(model seconds per episode,
                    tool seconds per episode / episodes in flight)

Model seconds hold decoding and the update, which share the device. They are
measured without latency, in the mode that needs fewer of them. `sync` samples a
batch, then learns from it; `async` samples while it learns.
"""

import argparse
import asyncio
import collections
from collections.abc import Callable
from concurrent import futures
import dataclasses
import functools
import json
import os
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from compare import describe
import numpy as np
from ours import Numbers, Scale
from policy import RandomPolicy, make_policy, small_model
import workload
from workload import Workload

from arl_jax.actors.failures import FailureBudget
from arl_jax.actors.ledger import TaskLedger
from arl_jax.actors.policy import SamplingParams
from arl_jax.actors.pool import Actor
from arl_jax.actors.produce import produce_groups
from arl_jax.actors.queue import GroupQueue
from arl_jax.actors.rollout import Limits
from arl_jax.actors.staleness import StalenessGate
from arl_jax.actors.tasks import TaskSource
from arl_jax.bridge import batching, pieces
from arl_jax.bridge.engine import Engine
from arl_jax.bridge.engine_config import EngineConfig
from arl_jax.envs.environment import StepResult
from arl_jax.episode import Group, Task
from arl_jax.learner.credit import AdvantageConfig, compute_advantages
from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import update
from arl_jax.run.device_turns import take_turns
from arl_jax.types import LearnerState

_MICRO_BATCH_ROWS = 16
_BUSY = ("engine_share", "learn_share", "publish_share")


def main() -> None:
  options = read_options()
  work = Workload(mode="agentic")
  loss = LossConfig(
    kl_weight=work.kl_weight, kl_estimator="k3", logprob_chunk=8
  )
  setup = Setup(
    work=work,
    options=options,
    policy=make_policy(small_model(work), loss),
    device=DeviceThread(),
  )
  asyncio.run(make_engine(setup).warm_up())
  asyncio.run(measure(setup, "sync", 0.0, seconds=1.0))  # compiles the update
  rows: dict[tuple[float, str], list[dict[str, float]]] = {}
  model_seconds = []
  for _ in range(options.runs):
    rates = {}
    for latency in sorted({0.0, *options.latencies}):
      for mode in options.modes:
        facts = asyncio.run(
          measure(setup, mode, latency, seconds=options.seconds)
        )
        rates[latency, mode] = facts["episodes_per_second"]
        rows.setdefault((latency, mode), []).append(facts)
        line = {"mode": mode, "latency": latency, **facts}
        print("RESULT " + json.dumps(line), flush=True)
    model_seconds.append(1 / max(rates[0.0, mode] for mode in options.modes))
    for (latency, mode), rate in rates.items():
      waiting = (setup.work.num_turns - 1) * latency / options.concurrency
      ideal = 1 / max(model_seconds[-1], waiting)
      rows[latency, mode][-1] |= {"ideal": ideal, "share": rate / ideal}
  print(f"model seconds per episode: {describe(model_seconds, 4)}")
  print_table(rows)


def read_options() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--latencies", type=float, nargs="+", default=[0.5])
  parser.add_argument("--modes", nargs="+", default=["sync", "async"])
  parser.add_argument("--runs", type=int, default=1)
  parser.add_argument("--seconds", type=float, default=20.0)
  parser.add_argument("--groups_per_step", type=int, default=8)
  parser.add_argument("--concurrency", type=int, default=256)
  parser.add_argument("--max_staleness", type=int, default=4)
  parser.add_argument("--on_new_weights", default="refresh")
  return parser.parse_args()


# The tool, and the thread of the device.


class SlowTool(Scale):
  """Waits before it answers; the last turn has no answer."""

  def __init__(self, work: Workload, seconds: float):
    super().__init__(work)
    self._seconds = seconds

  async def step(self, action: str) -> StepResult:
    result = await super().step(action)
    if not result.terminated:
      await asyncio.sleep(self._seconds)
    return result


class DeviceThread(futures.ThreadPoolExecutor):
  """The one thread of the device, which counts what it does by function."""

  def __init__(self):
    super().__init__(1, "device")
    self.counts: collections.Counter[str] = collections.Counter()

  def submit(self, fn, /, *args, **kwargs):
    return super().submit(self._timed, fn, *args, **kwargs)

  def _timed(self, fn, *args, **kwargs):
    started = time.perf_counter()
    try:
      return fn(*args, **kwargs)
    finally:
      name = fn.__name__
      self.counts[f"{name}_seconds"] += time.perf_counter() - started
      self.counts[f"{name}_calls"] += 1

  async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(self, fn, *args)


# What is measured.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
  """What all measurements share."""

  work: Workload
  options: argparse.Namespace
  policy: RandomPolicy
  device: DeviceThread

  @property
  def length(self) -> int:
    """Tokens of a whole row."""
    work = self.work
    answers = (work.num_turns - 1) * work.observation_tokens
    return work.prompt_tokens + work.num_turns * work.turn_tokens + answers


def learn(
  setup: Setup, learner: LearnerState, groups: tuple[Group, ...]
) -> LearnerState:
  """Takes one update on whole groups, the device in turns with the engine."""
  num_rows = len(groups) * setup.work.group_size
  batch = batching.collate_groups(
    groups,
    num_rows=num_rows,
    length=setup.length,
    num_turns=setup.work.num_turns,
  )
  advantages = compute_advantages(batch, config=AdvantageConfig())
  micros = [
    MicroBatch(
      piece.batch,
      scored=pieces.scored_columns(piece.batch.action_mask),
      **piece.per_token,
    )
    for piece in pieces.micro_batches(
      batch,
      np.arange(num_rows),
      micro_batch_rows=_MICRO_BATCH_ROWS,
      per_token={"advantages": np.asarray(advantages)},
    )
  ]
  fns = take_turns(setup.policy.fns, setup.device)
  learner, _ = update(learner, micros, fns=fns, ref_params=setup.policy.params)
  return learner


async def measure(
  setup: Setup, mode: str, latency: float, *, seconds: float
) -> dict[str, float]:
  """Trains for some seconds, and says how many episodes each second had."""
  options, device = setup.options, setup.device
  learner = await device.run(setup.policy.initial_state)
  engine = make_engine(setup)
  batch_size, group_size = options.groups_per_step, setup.work.group_size
  is_async = mode == "async"
  gate = StalenessGate(
    batch_size=batch_size,
    max_concurrent=(
      options.concurrency // group_size if is_async else batch_size
    ),
    max_staleness=options.max_staleness if is_async else 0,
  )
  ledger = TaskLedger()
  queue = GroupQueue(
    gate,
    max_groups=(gate.max_staleness + 1) * batch_size,
    on_stale=lambda group: ledger.give_back(group.ordinal),
  )
  # The clock starts when as many episodes are in flight as will be.
  num_skipped = 4 if is_async else 2
  ends: list[float] = []
  before: collections.Counter[str] = collections.Counter()
  async with engine:
    producer = asyncio.create_task(
      produce_groups(
        make_actor(setup, engine, latency),
        TaskSource(make_tasks(setup.work), seed=0),
        gate,
        queue,
        ledger,
        group_size=group_size,
        budget=FailureBudget(0),
      )
    )
    version = 0
    while len(ends) < 3 or ends[-1] - ends[0] < seconds:
      groups = await queue.get_batch(batch_size)
      learner = await asyncio.to_thread(learn, setup, learner, groups)
      for group in groups:
        ledger.close(group.ordinal)
      version += 1
      params = await device.run(setup.policy.publish, learner.params)
      engine.set_params(params, version)
      gate.set_version(version)
      if version >= num_skipped:
        ends.append(time.perf_counter())
      if version == num_skipped:
        before = count(engine, device)
    producer.cancel()
    await asyncio.wait([producer])
  counts = count(engine, device)
  counts.subtract(before)
  steps, wall = len(ends) - 1, ends[-1] - ends[0]
  episodes = steps * batch_size * group_size
  rounds = counts["step_calls"]
  return {
    "episodes_per_second": episodes / wall,
    "engine_share": counts["step_seconds"] / wall,
    "learn_share": counts["work_seconds"] / wall,
    "publish_share": counts["publish_seconds"] / wall,
    "cpu_cores": counts["cpu_seconds"] / wall,
    "engine_ms_per_episode": 1e3 * counts["step_seconds"] / episodes,
    "learn_ms_per_episode": 1e3 * counts["work_seconds"] / episodes,
    "prefilled_per_episode": counts["prefilled_tokens"] / episodes,
    "rounds_per_update": rounds / steps,
    "tokens_per_round": counts["sampled_tokens"] / rounds,
    "stale_groups": queue.num_stale,
    "updates": steps,
  }


def count(engine: Engine, device: DeviceThread) -> collections.Counter[str]:
  totals = dataclasses.asdict(engine.stats)
  totals["cpu_seconds"] = time.process_time()
  return device.counts + collections.Counter(totals)


def make_engine(setup: Setup) -> Engine:
  return Engine(
    setup.policy.model,
    setup.policy.publish(setup.policy.params),
    EngineConfig(
      num_slots=setup.options.concurrency,
      max_length=setup.length,
      chunk_size=setup.work.turn_tokens,
      decode_rows=(8, 16, 32, 64, 128, 256, 512),
      prefill_rows=(8, 16, 32),
      prefill_lengths=(16, 32, 64),
      on_new_weights=setup.options.on_new_weights,
    ),
    executor=setup.device,
  )


def make_actor(setup: Setup, engine: Engine, latency: float) -> Actor:
  work = setup.work
  return Actor(
    policy=engine,
    make_environment=functools.partial(SlowTool, work, latency),
    chat=Numbers(),  # type: ignore[arg-type]
    limits=Limits(
      max_turns=work.num_turns,
      max_tokens_per_turn=work.turn_tokens,
      max_length=setup.length,
    ),
    sampling=SamplingParams(),
    reward_weights={"success": 1.0},
  )


def make_tasks(work: Workload) -> list[Task]:
  prompts = [workload.make_prompt(work, 0, i) for i in range(4096)]
  return [
    Task(task_id=str(i), prompt=workload.to_text(prompt))
    for i, prompt in enumerate(prompts)
  ]


# The table.


def print_table(
  rows: dict[tuple[float, str], list[dict[str, float]]],
) -> None:
  print("| tool seconds | mode | episodes/s | ideal | share | device busy |")
  print("| ---: | --- | ---: | ---: | ---: | ---: |")
  for (latency, mode), runs in sorted(rows.items()):
    columns = [
      describe([facts["episodes_per_second"] for facts in runs], 1),
      describe([facts["ideal"] for facts in runs], 1),
      describe([facts["share"] for facts in runs], 2),
      describe([sum(facts[name] for name in _BUSY) for facts in runs], 2),
    ]
    print(f"| {latency:g} | {mode} | {' | '.join(columns)} |")


if __name__ == "__main__":
  main()
