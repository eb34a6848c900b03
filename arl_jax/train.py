"""Trains an agent: sample groups, learn from them, publish, repeat."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
import contextlib
import functools
import logging
import pathlib
from typing import Any

from arl_jax import config as config_lib
from arl_jax.actors import seeds
from arl_jax.actors.produce import produce_groups
from arl_jax.actors.queue import GroupQueue
from arl_jax.actors.staleness import StalenessGate
from arl_jax.actors.tasks import TaskSource
from arl_jax.bridge.engine import Engine
from arl_jax.evaluate import Evaluation, evaluate_policy
from arl_jax.learner.checkpoint import CheckpointStore, has_checkpoint
from arl_jax.reporting.episode_metrics import group_metrics
from arl_jax.reporting.metrics import MetricWriter
from arl_jax.reporting.phase_clock import PhaseClock
from arl_jax.reporting.progress import ProgressBar
from arl_jax.run import config_rules
from arl_jax.run import workdir as workdir_lib
from arl_jax.run.device_turns import take_turns
from arl_jax.run.learner_step import learn
from arl_jax.run.parts import RunParts, assemble
from arl_jax.run.report import report_run
from arl_jax.run.settings import read_settings
from arl_jax.run.stop_signal import StopSignal
from arl_jax.run.warmup import run_warmup
from arl_jax.types import LearnerState

# All runs are measured on the same held-out tasks, whatever their seed.
_HELDOUT_SEED = 0
_LOGGER = logging.getLogger(__name__)
_NO_SIGNAL = (
  "step %d: no episode has an advantage, so nothing was learned; if this goes"
  " on, tasks are too easy or too hard, or the rewards never differ"
)


def train(
  config: config_lib.Section,
  workdir: str,
  *,
  devices: Sequence[Any] | None = None,
) -> dict[str, float]:
  """Trains, or goes on with the run that `workdir` holds.

  Args:
    config: the whole configuration.
    workdir: folder for all that the run writes.
    devices: those to use; all that JAX sees by default.

  Returns:
    The metrics of the last evaluation; none if the run was stopped.

  Raises:
    ConfigError: if the configuration cannot work, or `workdir` is of another.
  """
  settings = read_settings(config)
  config_rules.check(settings)
  folder = pathlib.Path(workdir)
  checkpoints, tokenizer = str(folder / "checkpoints"), folder / "tokenizer"
  with workdir_lib.lock_workdir(folder), StopSignal() as stop:
    resuming = has_checkpoint(checkpoints)
    if resuming:
      workdir_lib.check_workdir(config, workdir)
    parts = assemble(
      settings,
      saved_tokenizer=tokenizer if resuming else None,
      devices=devices,
    )
    source = TaskSource(
      parts.suite.train_tasks(settings.seed), seed=settings.seed
    )
    # Whatever the user got wrong has been found by now: the run begins.
    if not resuming:
      workdir_lib.claim_workdir(config, workdir)
      parts.policy.tokenizer.save(tokenizer)
    with (
      CheckpointStore(checkpoints, keep=settings.checkpoint.keep) as store,
      MetricWriter(folder, resume_step=store.latest_step()) as writer,
    ):
      evaluation = asyncio.run(_train(parts, source, store, writer, stop))
  if evaluation is None:
    return {}
  number = settings.output.num_episodes_as_text
  return report_run(folder, evaluation, num_episodes=number)


async def evaluate_checkpoint(
  config: config_lib.Section,
  workdir: str,
  *,
  devices: Sequence[Any] | None = None,
) -> Evaluation:
  """Evaluates the newest checkpoint of a run on held-out tasks.

  Args:
    config: the run's configuration.
    workdir: the run's folder.
    devices: those to use; all that JAX sees by default.

  Raises:
    ValueError: if there is no checkpoint, or it is not of this configuration.
  """
  with open_checkpoint(config, workdir, devices=devices) as opened:
    parts, state, extras = opened
    async with parts.engine(state.params, version=extras["version"]) as engine:
      return await _evaluate(parts, engine)


@contextlib.contextmanager
def open_checkpoint(
  config: config_lib.Section,
  workdir: str,
  *,
  devices: Sequence[Any] | None = None,
) -> Iterator[tuple[RunParts, LearnerState, dict[str, Any]]]:
  """Opens the newest checkpoint of a run.

  Args:
    config: the run's configuration.
    workdir: the run's folder.
    devices: those to use; all that JAX sees by default.

  Yields:
    The run's parts, the learner's state, and what the checkpoint holds besides.

  Raises:
    ValueError: if there is no checkpoint, or it is not of this configuration.
  """
  settings = read_settings(config)
  config_rules.check(settings)
  folder = pathlib.Path(workdir)
  with CheckpointStore(str(folder / "checkpoints"), create=False) as store:
    store.read_extras(None)  # a missing checkpoint fails before any compile
    workdir_lib.check_workdir(config, workdir)
    parts = assemble(
      settings, saved_tokenizer=folder / "tokenizer", devices=devices
    )
    state, extras = store.restore(None, parts.abstract_state())
    yield parts, state, extras


async def _train(
  parts: RunParts,
  source: TaskSource,
  store: CheckpointStore,
  writer: MetricWriter,
  stop: StopSignal,
) -> Evaluation | None:
  """Runs to the last step, or until a stop; then the result is None."""
  settings, rollout = parts.settings, parts.settings.rollout
  num_steps = settings.learner.num_steps

  # ------------------------------------------------ warm start, or resume
  if store.latest_step() is None:
    params = _warm_up(parts, writer, stop)
    if stop.requested:
      print("stopped in the warm start; the same command begins it again")
      return None
    state = parts.state(params)
    version, next_ordinal = 0, 0
    store.save(0, state, _extras(version, next_ordinal))
  else:
    state, extras = store.restore(None, parts.abstract_state())
    version, next_ordinal = extras["version"], extras["next_ordinal"]
  reference = _initial_reference(parts, state, store)

  # -------------------------------------------------- actors and learner
  fns = take_turns(parts.update_fns(), parts.device)
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
  actor = parts.actor(
    engine, name="train", seed=settings.seed, temperature=rollout.temperature
  )
  produce = functools.partial(
    produce_groups,
    actor,
    source,
    gate,
    queue,
    group_size=rollout.group_size,
    start=next_ordinal,
  )
  on_device = functools.partial(
    asyncio.get_running_loop().run_in_executor, parts.device
  )

  async def measure() -> Evaluation:
    evaluation = await _evaluate(parts, engine)
    writer.write(version, evaluation.metrics, phase="eval")
    return evaluation

  def save() -> None:
    extras = _extras(version, next_ordinal)
    store.save(version, state, extras, ref_params=reference)

  # ---------------------------------------------------------------- loop
  warned = False
  if version >= num_steps:
    print(f"all {num_steps} steps are done; measuring once more")
  bar = ProgressBar("train", total=num_steps, initial=version)
  async with engine:
    if version == 0 or _is_due(version, settings.evaluation.every):
      await measure()
    async with _background(produce()):
      while version < num_steps and not stop.requested:
        # Sample: the actors have been at it since the last version.
        clock = PhaseClock()
        groups = await queue.get_batch(rollout.tasks_per_step)
        clock.lap("rollout")

        # Learn.
        state, metrics = await asyncio.to_thread(
          learn, parts, fns, state, reference, groups, version
        )
        if not metrics["num_updates"] and not warned:
          _LOGGER.warning(_NO_SIGNAL, version)
          warned = True
        metrics |= group_metrics(groups, version=version)
        next_ordinal = max(group.ordinal for group in groups) + 1
        version += 1
        clock.lap("learn")

        # Publish.
        weights = await on_device(parts.publish, state.params)
        engine.set_params(weights, version)
        if _is_due(version, settings.learner.reference_reset_every):
          reference = reference and parts.copy(state.params)
        clock.lap("publish")

        # Save.
        last = version == num_steps or stop.requested
        if last or _is_due(version, settings.checkpoint.every):
          save()
        clock.lap("checkpoint")
        metrics |= clock.metrics(metrics["tokens/sampled"])
        writer.write(version - 1, metrics, phase="train")
        bar.advance(metrics)

        # Measure.
        if not last and _is_due(version, settings.evaluation.every):
          await measure()
        # Only now may the next episodes start: in sync mode nothing else runs
        # while the policy is measured.
        gate.set_version(version)
    bar.close()
    if store.latest_step() != version:  # stopped while it was measured
      save()
    store.wait()
    if stop.requested:
      print(f"stopped at step {version}; the same command goes on")
      return None
    return await measure()


def _extras(version: int, next_ordinal: int) -> dict[str, int]:
  """What a checkpoint holds besides arrays."""
  return {"version": version, "next_ordinal": next_ordinal}


def _warm_up(parts: RunParts, writer: MetricWriter, stop: StopSignal) -> Any:
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
      stop=lambda: stop.requested,
    )


def _initial_reference(
  parts: RunParts, state: LearnerState, store: CheckpointStore
) -> Any:
  """Returns the reference policy, None where the loss needs none."""
  if not parts.settings.loss.kl_weight:
    return None
  if store.latest_step() != 0:
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


def _is_due(version: int, every: int) -> bool:
  return every > 0 and version % every == 0


@contextlib.asynccontextmanager
async def _background(work: Coroutine[Any, Any, Any]):
  """Runs a coroutine beside a block, and ends it with the block."""
  task = asyncio.create_task(work)
  try:
    yield
  finally:
    task.cancel()
    await asyncio.wait([task])
