"""Trains an agent: sample groups, learn from them, publish, repeat."""

import asyncio
from collections.abc import Iterator, Sequence
import contextlib
import logging
import pathlib
from typing import Any

from arl_jax import config as config_lib
from arl_jax.actors.tasks import TaskSource
from arl_jax.episode import Row
from arl_jax.evaluate import Evaluation, warn_of_components
from arl_jax.learner.checkpoint import CheckpointStore, has_checkpoint
from arl_jax.reporting.episode_metrics import group_metrics
from arl_jax.reporting.metrics import MetricWriter
from arl_jax.reporting.phase_clock import PhaseClock
from arl_jax.reporting.progress import ProgressBar
from arl_jax.run import config_rules, preflight
from arl_jax.run import workdir as workdir_lib
from arl_jax.run.collector import Actors, Collector, measure_policy
from arl_jax.run.guard import Guard
from arl_jax.run.imitation import prepare_batches
from arl_jax.run.learners import Learner, PolicyLearner, SimulatedLearner
from arl_jax.run.parts import RunParts, assemble
from arl_jax.run.report import report_run
from arl_jax.run.saves import Saves, Start
from arl_jax.run.settings import Settings, read_settings
from arl_jax.run.stop_signal import RunStopped, StopSignal, until_stopped
from arl_jax.run.stored_batches import StoredBatches, check_store
from arl_jax.run.warmup import run_warmup
from arl_jax.types import LearnerState

# Batches of rows to imitate; None where nothing is.
Lessons = Iterator[Sequence[Row]] | None

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
    The metrics of the last evaluation; none if the run was stopped, or
    trained from a store.

  Raises:
    ConfigError: if the configuration cannot work, or `workdir` is of another.
  """
  settings = read_settings(config)
  config_rules.check(settings)
  workdir_lib.check_writable(workdir)
  folder = pathlib.Path(workdir)
  checkpoints, tokenizer = str(folder / "checkpoints"), folder / "tokenizer"
  with StopSignal() as stop, contextlib.ExitStack() as held:
    # A new folder comes into being when nothing is left to be found wrong.
    used = workdir_lib.has_lock(folder)
    if used:
      held.enter_context(workdir_lib.lock_workdir(folder))
    resuming = has_checkpoint(checkpoints)
    if resuming:
      workdir_lib.check_workdir(config, workdir)
    else:
      _check_new(settings, workdir)
    try:
      parts = assemble(
        settings,
        saved_tokenizer=tokenizer if resuming else None,
        devices=devices,
      )
      stop.check()
      source = TaskSource(preflight.find_tasks(parts), seed=settings.seed)
      lessons = None if resuming else _prepare_lessons(parts)
      stop.check()
    except RunStopped:
      print("stopped before the first step; the same command starts again")
      return {}
    # Whatever the user got wrong has been found by now: the run begins.
    if not used:
      held.enter_context(workdir_lib.lock_workdir(folder))
      if has_checkpoint(checkpoints) != resuming:
        raise config_lib.ConfigError(
          f"another process has begun a run in workdir {workdir} meanwhile;"
          " give another --workdir, or the same again to go on with that run"
        )
    if not resuming:
      workdir_lib.claim_workdir(config, workdir)
      parts.policy.tokenizer.save(tokenizer)
    with Saves(folder, settings) as saves:
      start = saves.restore(parts)
      resumed_at = start.version if start is not None else None
      with (
        MetricWriter(folder, resume_step=resumed_at) as writer,
        Guard(settings.failures.watchdog_seconds) as guard,
      ):
        evaluation = guard.run(
          _train(parts, start, source, lessons, saves, writer, stop, guard)
        )
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
      evaluation = await measure_policy(parts, engine)
  weights = parts.settings.environment.reward_weights
  warn_of_components(evaluation.episodes, weights)
  return evaluation


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
    restored = store.restore(None, parts.abstract_state())
    yield parts, restored.state, restored.extras


def _check_new(settings: Settings, workdir: str) -> None:
  """Looks whether a run can begin here, and has the store that it needs."""
  workdir_lib.check_no_trajectories(workdir)
  if not settings.debug.samples:
    check_store(
      settings.debug.store,
      num_steps=settings.learner.num_steps,
      rollout=settings.rollout,
    )


async def _train(
  parts: RunParts,
  start: Start | None,
  source: TaskSource,
  lessons: Lessons,
  saves: Saves,
  writer: MetricWriter,
  stop: StopSignal,
  guard: Guard,
) -> Evaluation | None:
  """Runs to the last step, or until a stop; then the result is None."""
  settings, num_steps = parts.settings, parts.settings.learner.num_steps

  # ------------------------------------------------ warm start, or resume
  if start is None:
    start = _begin(parts, lessons, writer, stop)
    if start is None:
      print("stopped in the warm start; the same command begins it again")
      return None
    if settings.debug.learns:
      saves.save(0, start.state, start.reference, start.cursor, ())
  version = start.version

  # ------------------------------------------------- collector and learner
  collector, learner = _collector(parts, start, source), _learner(parts, start)
  del start  # its arrays are donated

  measured = warned = False

  async def measure() -> Evaluation | None:
    nonlocal measured
    evaluation = await until_stopped(stop, collector.measure())
    if evaluation is not None:
      if not measured:
        weights = settings.environment.reward_weights
        warn_of_components(evaluation.episodes, weights)
      measured = True
      writer.write(version, evaluation.metrics, phase="eval")
    return evaluation

  def save() -> None:
    if learner.state is not None:
      saves.save(
        version,
        learner.state,
        learner.reference,
        collector.cursor(),
        collector.waiting(),
      )

  # ---------------------------------------------------------------- loop
  if version >= num_steps:
    print(f"all {num_steps} steps are done; measuring once more")
  bar = ProgressBar("train", total=num_steps, initial=version)
  guard.watch({"learner": learner.status} | collector.components())
  async with collector:
    if version == 0 or _is_due(version, settings.evaluation.every):
      await measure()
    collector.start()
    while version < num_steps and not stop.requested:
      # Sample: the actors have been at it since the last version.
      clock = PhaseClock()
      groups = await until_stopped(stop, collector.next_batch())
      if groups is None:
        break
      clock.lap("rollout")

      # Learn.
      metrics, advantages = await learner.learn(groups, version)
      collector.close(groups)
      if metrics.get("num_updates") == 0 and not warned:
        _LOGGER.warning(_NO_SIGNAL, version)
        warned = True
      metrics |= group_metrics(groups, version=version) | collector.metrics()
      clock.lap("learn")

      # Store the episodes, then publish the weights.
      await asyncio.to_thread(saves.store, version, groups, advantages)
      version += 1
      collector.publish(await learner.publish(), version)
      if _is_due(version, settings.learner.reference_reset_every):
        learner.reset_reference()
      clock.lap("publish")

      # Save.
      if version == num_steps or saves.is_due(version):
        save()
      clock.lap("checkpoint")
      metrics |= clock.metrics(metrics["tokens/sampled"])
      writer.write(version - 1, metrics, phase="train")
      bar.advance(metrics)

      # Measure.
      if version < num_steps and _is_due(version, settings.evaluation.every):
        await measure()
      # Only now may the next episodes start: in sync mode nothing else runs
      # while the policy is measured.
      collector.set_version(version)
    bar.close()
    if stop.requested:
      save()
      saves.wait()
      again = "the same command goes on"
      if learner.state is None:
        again = f"config.debug.mode {settings.debug.mode} cannot go on"
      print(f"stopped at step {version}; {again}")
      return None
    saves.wait()
    evaluation = await measure()
  if evaluation is None:
    print("not measured; python -m arl_jax.evaluate does that")
  return evaluation


def _begin(
  parts: RunParts, lessons: Lessons, writer: MetricWriter, stop: StopSignal
) -> Start | None:
  """Makes the start of a new run; None if it was stopped meanwhile."""
  params = _warm_up(parts, lessons, writer, stop)
  if stop.requested:
    return None
  state = parts.state(params)
  needs_reference = parts.settings.loss.kl_weight > 0
  return Start(
    state=state,
    reference=parts.copy(state.params) if needs_reference else None,
  )


def _collector(parts: RunParts, start: Start, source: TaskSource) -> Collector:
  debug = parts.settings.debug
  if not debug.samples:
    return StoredBatches(
      debug.store, version=start.version, rollout=parts.settings.rollout
    )
  return Actors(
    parts,
    start.state.params,
    source,
    version=start.version,
    cursor=start.cursor,
    waiting=start.waiting,
  )


def _learner(parts: RunParts, start: Start) -> Learner:
  if not parts.settings.debug.learns:
    return SimulatedLearner(parts, start.state.params)
  return PolicyLearner(parts, start.state, start.reference)


def _prepare_lessons(parts: RunParts) -> Lessons:
  """Prepares what the warm start imitates; None if there is none."""
  settings, rollout = parts.settings, parts.settings.rollout
  if not settings.warmup.num_steps:
    return None
  return prepare_batches(
    settings.warmup,
    parts.suite,
    chat=parts.chat,
    tokenizer=parts.policy.tokenizer,
    max_length=rollout.max_length,
    max_observation_chars=rollout.max_observation_chars,
    step_timeout_seconds=rollout.step_timeout_seconds,
    seed=settings.seed,
  )


def _warm_up(
  parts: RunParts, lessons: Lessons, writer: MetricWriter, stop: StopSignal
) -> Any:
  settings = parts.settings
  if lessons is None:
    return parts.policy.params
  with ProgressBar("warm-up", total=settings.warmup.num_steps) as bar:

    def on_step(step: int, metrics: dict[str, float]) -> None:
      writer.write(step, metrics, phase="warmup")
      bar.advance(metrics)

    return run_warmup(
      parts.policy.params,
      lessons,
      settings=settings.warmup,
      model=parts.model,
      shardings=parts.shardings,
      mesh=parts.mesh,
      max_length=settings.rollout.max_length,
      on_step=on_step,
      stop=lambda: stop.requested,
    )


def _is_due(version: int, every: int) -> bool:
  return every > 0 and version % every == 0
