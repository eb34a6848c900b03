"""Trains an agent: sample groups, learn from them, publish, repeat."""

import asyncio
from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import functools
import pathlib
import signal
import time
from typing import Any

import jax
import numpy as np

from arl_jax import config as config_lib
from arl_jax import config_rules, plots, transcripts
from arl_jax import workdir as workdir_lib
from arl_jax.actors import seeds
from arl_jax.actors.produce import produce_groups
from arl_jax.actors.queue import GroupQueue
from arl_jax.actors.staleness import StalenessGate
from arl_jax.actors.tasks import TaskSource
from arl_jax.bridge import batching
from arl_jax.bridge.engine import Engine
from arl_jax.episode import Group
from arl_jax.episode_metrics import group_metrics
from arl_jax.evaluate import Evaluation, evaluate_policy, format_evaluation
from arl_jax.learner import sharding
from arl_jax.learner.checkpoint import CheckpointStore
from arl_jax.learner.credit import compute_advantages
from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.update import UpdateFns, update
from arl_jax.metrics import MetricWriter, read_metrics
from arl_jax.progress import ProgressBar
from arl_jax.run_parts import RunParts, assemble
from arl_jax.settings import read_settings
from arl_jax.types import LearnerState
from arl_jax.warmup import run_warmup

# All runs are measured on the same held-out tasks, whatever their seed.
_HELDOUT_SEED = 0


def train(config: config_lib.Section, workdir: str) -> dict[str, float]:
  """Trains, or goes on with the run that `workdir` holds.

  Args:
    config: the whole configuration.
    workdir: folder for all that the run writes.

  Returns:
    The metrics of the last evaluation.

  Raises:
    ConfigError: if the configuration cannot work, or `workdir` is of another.
  """
  config_rules.check(config)
  settings = read_settings(config)
  workdir_lib.check_workdir(config, workdir, create=True)
  folder = pathlib.Path(workdir)
  parts = assemble(settings, folder)
  with CheckpointStore(
    str(folder / "checkpoints"), keep=settings.checkpoint.keep
  ) as store:
    return asyncio.run(_train(parts, store, folder))


async def evaluate_checkpoint(
  config: config_lib.Section, workdir: str
) -> Evaluation:
  """Evaluates the newest checkpoint of a run on held-out tasks.

  Raises:
    ValueError: if there is no checkpoint, or it is not of this configuration.
  """
  config_rules.check(config)
  settings = read_settings(config)
  folder = pathlib.Path(workdir)
  with CheckpointStore(str(folder / "checkpoints"), create=False) as store:
    store.read_extras(None)  # a missing checkpoint fails before any compile
    workdir_lib.check_workdir(config, workdir)
    parts = assemble(settings, folder)
    state, extras = store.restore(None, parts.abstract_state())
    engine = parts.engine(state.params, version=extras["version"])
    async with engine:
      return await _evaluate(parts, engine)


async def _train(
  parts: RunParts, store: CheckpointStore, folder: pathlib.Path
) -> dict[str, float]:
  settings = parts.settings
  rollout, learner = settings.rollout, settings.learner

  # ----------------------------------------------- warm start, or go on
  resuming = store.latest_step() is not None
  if resuming:
    state, extras = store.restore(None, parts.abstract_state())
  else:
    state, extras = None, {"version": 0, "next_ordinal": 0}
  version: int = extras["version"]
  writer = MetricWriter(folder, resume_step=version if resuming else None)
  if state is None:
    state = parts.state(_warm_up(parts, writer))
    store.save(0, state, extras)
  reference = _initial_reference(parts, state, store, resuming)

  # ------------------------------------------------- actors and learner
  fns = parts.update_fns()
  engine = parts.engine(state.params, version=version)
  gate = StalenessGate(
    batch_size=rollout.tasks_per_step,
    max_concurrent=rollout.max_concurrent_groups or rollout.tasks_per_step,
    max_staleness=rollout.max_staleness,
  )
  gate.resume(version)
  queue = GroupQueue(
    gate, max_groups=(rollout.max_staleness + 1) * rollout.tasks_per_step
  )
  producer = produce_groups(
    parts.actor(
      engine,
      name="train",
      seed=settings.seed,
      temperature=rollout.temperature,
    ),
    TaskSource(parts.suite.train_tasks(settings.seed), seed=settings.seed),
    gate,
    queue,
    group_size=rollout.group_size,
    start=extras["next_ordinal"],
  )
  on_device = functools.partial(
    asyncio.get_running_loop().run_in_executor, parts.device
  )

  async def measure(version: int) -> Evaluation:
    evaluation = await _evaluate(parts, engine)
    writer.write(version, evaluation.metrics, phase="eval")
    return evaluation

  # --------------------------------------------------------------- loop
  evaluation, stop = None, _StopSignal()
  async with engine:
    if version == 0 or _is_due(version, settings.evaluation.every):
      evaluation = await measure(version)
    async with _background(producer):
      with (
        stop,
        ProgressBar("train", total=learner.num_steps, initial=version) as bar,
      ):
        while version < learner.num_steps and not stop.requested:
          clock = _Clock()
          groups = await queue.get_batch(rollout.tasks_per_step)
          clock.lap("rollout")
          state, metrics = await on_device(
            _learn, parts, fns, state, reference, groups, version
          )
          clock.lap("learn")
          metrics |= group_metrics(groups, version=version)
          version += 1
          engine.set_params(
            await on_device(parts.publish, state.params), version
          )
          if _is_due(version, learner.reference_reset_every):
            reference = reference and parts.copy(state.params)
          clock.lap("publish")

          extras = {
            "version": version,
            "next_ordinal": max(group.ordinal for group in groups) + 1,
          }
          last = version == learner.num_steps or stop.requested
          if last or _is_due(version, settings.checkpoint.every):
            store.save(version, state, extras, ref_params=reference)
            clock.lap("checkpoint")
          metrics |= clock.metrics(metrics["tokens/sampled"])
          writer.write(version - 1, metrics, phase="train")
          bar.advance(metrics)
          if not last and _is_due(version, settings.evaluation.every):
            evaluation = await measure(version)
          # Only now may the next episodes start: in sync mode nothing else runs
          # while the policy is measured.
          gate.set_version(version)
    store.wait()
    if stop.requested and version < learner.num_steps:
      print(f"stopped after step {version}; run again to go on")
    else:
      evaluation = await measure(version)

  # ------------------------------------------------------------- report
  writer.close()
  return _report(parts, folder, evaluation)


def _learn(
  parts: RunParts,
  fns: UpdateFns,
  state: LearnerState,
  reference: Any,
  groups: Sequence[Group],
  version: int,
) -> tuple[LearnerState, dict[str, float]]:
  """Takes one step's updates; runs on the device thread."""
  rollout, learner = parts.settings.rollout, parts.settings.learner
  batch = batching.collate_groups(
    groups,
    num_rows=rollout.tasks_per_step * rollout.group_size,
    length=rollout.max_length,
    num_turns=rollout.max_turns,
  )
  advantages = np.asarray(
    compute_advantages(batch, config=parts.settings.advantage)
  )
  live = np.asarray(batch.row_mask)
  if learner.drop_zero_variance:
    live = live & (advantages != 0).any(axis=1)
  minibatches = batching.split_minibatches(
    live,
    num_minibatches=learner.minibatches_per_step,
    min_rows=learner.min_minibatch_rows,
    seed=seeds.mix_seed(parts.settings.seed, version),
  )
  all_metrics = []
  for rows in minibatches:
    micros = [
      MicroBatch(
        jax.device_put(micro, sharding.batch_shardings(parts.mesh, micro)),
        advantage,
        scored=batching.scored_columns(micro.action_mask),
      )
      for micro, advantage in batching.micro_batches(
        batch,
        advantages,
        rows,
        micro_batch_rows=learner.micro_batch_rows,
        lengths=learner.length_buckets,
      )
    ]
    state, metrics = update(state, micros, fns=fns, ref_params=reference)
    all_metrics.append(metrics)
  return state, _merge(all_metrics) | {
    "num_updates": len(minibatches),
    "rows/trained": int(live.sum()),
    "tokens/sampled": int(batch.action_mask.sum()),
    "tokens/total": int((batch.segment_ids > 0).sum()),
  }


def _merge(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
  """Joins the metrics of a step's updates."""
  merged: dict[str, float] = {}
  for name in updates[0] if updates else ():
    values = [metrics[name] for metrics in updates]
    if name.startswith("logprob_gap/"):
      # Before the first update both sides hold the same weights.
      merged[name] = values[0]
    elif name.endswith("/max"):
      merged[name] = max(values)
    elif name in ("tokens", "skipped_updates"):
      merged[name] = sum(values)
    else:
      merged[name] = sum(values) / len(values)
  return merged


def _warm_up(parts: RunParts, writer: MetricWriter) -> Any:
  settings = parts.settings
  if not settings.warmup.num_steps:
    return parts.policy.params
  with ProgressBar("warm-up", total=settings.warmup.num_steps) as bar:

    def on_step(step: int, metrics: dict[str, float]) -> None:
      writer.write(step, metrics, phase="warmup")
      bar.advance(metrics)

    return run_warmup(
      parts.policy.params,
      settings=settings.warmup,
      suite=parts.suite,
      chat=parts.chat,
      tokenizer=parts.policy.tokenizer,
      model=parts.model,
      shardings=parts.shardings,
      mesh=parts.mesh,
      max_length=settings.rollout.max_length,
      seed=settings.seed,
      on_step=on_step,
    )


def _initial_reference(
  parts: RunParts, state: LearnerState, store: CheckpointStore, resuming: bool
) -> Any:
  """Returns the reference policy, None where the loss needs none."""
  if not parts.settings.loss.kl_weight:
    return None
  if resuming and store.latest_step() != 0:
    return store.restore_reference(None, parts.abstract_state().params)
  return parts.copy(state.params)


async def _evaluate(parts: RunParts, engine: Engine) -> Evaluation:
  settings = parts.settings.evaluation
  # Nothing that is cached before or after may tell two runs apart.
  engine.forget()
  evaluation = await evaluate_policy(
    parts.actor(
      engine,
      name="eval",
      seed=seeds.mix_seed(parts.settings.seed, -1),
      temperature=settings.temperature,
    ),
    parts.suite.heldout_tasks(settings.num_tasks, _HELDOUT_SEED),
    samples_per_task=settings.samples_per_task,
    max_concurrent=parts.settings.engine.num_slots,
  )
  engine.forget()
  return evaluation


def _report(
  parts: RunParts, folder: pathlib.Path, evaluation: Evaluation | None
) -> dict[str, float]:
  """Prints the outcome and writes what there is to look at."""
  records = read_metrics(folder / "metrics.jsonl")
  measured = [r for r in records if r.get("phase") == "eval"]
  for label, record in zip(
    ("before", "after"),
    [measured[0], measured[-1]] if measured else [],
    strict=False,
  ):
    print(f"\n{label}, step {record['step']}, held-out tasks")
    print(format_evaluation(record))
  curve = plots.write_learning_curve(
    [r for r in records if r.get("phase") != "warmup"],
    folder / "learning_curve.png",
    series=(
      "success",
      "pass@1",
      "num_turns/mean",
      "frac_reward_zero_std",
      "entropy",
      "grad_norm",
    ),
    title=folder.name,
  )
  print(f"\nlearning curve  {curve}")
  if evaluation is None:
    return {}
  number = parts.settings.output.num_episodes_as_text
  text = transcripts.write_episodes(
    evaluation.episodes[:number], folder / "episodes.txt"
  )
  print(f"episodes        {text}")
  return evaluation.metrics


def _is_due(version: int, every: int) -> bool:
  return every > 0 and version % every == 0


@dataclasses.dataclass
class _Clock:
  """Seconds of each phase of a step."""

  started: float = dataclasses.field(default_factory=time.perf_counter)
  laps: dict[str, float] = dataclasses.field(default_factory=dict)

  def lap(self, name: str) -> None:
    spent = time.perf_counter() - self.started - sum(self.laps.values())
    self.laps[name] = spent

  def metrics(self, num_tokens: float) -> dict[str, float]:
    total = sum(self.laps.values())
    return {
      **{f"timing_s/{name}": spent for name, spent in self.laps.items()},
      "timing_s/step": total,
      "perf/tokens_per_second": num_tokens / total,
    }


class _StopSignal:
  """Turns the first SIGINT or SIGTERM into a stop after the current step."""

  def __init__(self) -> None:
    self.requested = False

  def __enter__(self) -> "_StopSignal":
    for number in (signal.SIGINT, signal.SIGTERM):
      # Outside the main thread nobody may handle signals.
      with contextlib.suppress(ValueError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(number, self._stop)
    return self

  def __exit__(self, *unused: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
      with contextlib.suppress(ValueError, RuntimeError):
        asyncio.get_running_loop().remove_signal_handler(number)

  def _stop(self) -> None:
    self.requested = True
    print("\nstopping after this step; once more to stop at once")
    self.__exit__()


@contextlib.asynccontextmanager
async def _background(work):
  """Runs a coroutine beside a block, and ends it with the block."""
  task = asyncio.create_task(work)
  try:
    yield
  finally:
    task.cancel()
    await asyncio.wait([task])
