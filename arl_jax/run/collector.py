"""Where a run's groups come from, with the engine that samples them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from arl_jax.actors import seeds
from arl_jax.actors.failures import FailureBudget
from arl_jax.actors.ledger import TaskLedger
from arl_jax.actors.produce import Replacements, produce_groups
from arl_jax.actors.queue import GroupQueue
from arl_jax.actors.staleness import StalenessGate
from arl_jax.actors.tasks import TaskSource
from arl_jax.bridge.engine import Engine
from arl_jax.episode import Group
from arl_jax.evaluate import Evaluation, evaluate_policy
from arl_jax.run.oversampling import Oversampling
from arl_jax.run.parts import RunParts

Cursor = Mapping[str, Any]


class Collector(Protocol):
  """What the learner sees of the actors.

  Use as `async with collector`, measure if it is due, then `start` it.
  """

  async def __aenter__(self) -> Self: ...

  async def __aexit__(self, *exc: object) -> None: ...

  async def measure(self) -> Evaluation | None:
    """Evaluates the weights that were published last; None if it cannot."""
    ...

  def start(self) -> None:
    """Lets groups be sampled from now on."""
    ...

  async def next_batch(self) -> tuple[Group, ...]:
    """Waits for the groups of a step; a cancelled call loses none."""
    ...

  def close(self, groups: Sequence[Group]) -> None:
    """Says that groups were trained on."""
    ...

  def publish(self, weights: Any, version: int) -> None:
    """Hands over new weights; None where they have not changed."""
    ...

  def set_version(self, version: int) -> None:
    """Admits the groups that may start at this version."""
    ...

  def cursor(self) -> Cursor:
    """Returns what a resume has to know of the stream of tasks."""
    ...

  def waiting(self) -> tuple[Group, ...]:
    """Returns the groups that are finished and not trained on."""
    ...

  def metrics(self) -> dict[str, float]:
    """Returns what happened since the last call."""
    ...

  def components(self) -> dict[str, Callable[[], str]]:
    """Returns a line on each component, for a watchdog."""
    ...


class Actors:
  """Samples with the engine, as fast as the gate allows."""

  def __init__(
    self,
    parts: RunParts,
    params: Any,
    source: TaskSource,
    *,
    version: int,
    cursor: Cursor,
    waiting: Sequence[Group] = (),
  ):
    """Prepares engine, gate and queue.

    Args:
      parts: of the run.
      params: weights of the learner.
      source: the stream of tasks.
      version: of the weights.
      cursor: where the stream stands.
      waiting: groups that were finished before a resume.
    """
    settings, rollout = parts.settings, parts.settings.rollout
    batch_size = rollout.tasks_per_step
    max_staleness = rollout.max_staleness
    if settings.debug.mode == "rollout_only":
      max_staleness = settings.learner.num_steps  # weights never change
    self._parts, self._source = parts, source
    self._engine: Engine = parts.engine(params, version=version)
    self._ledger = TaskLedger(**cursor)
    for group in waiting:
      self._ledger.adopt(group.ordinal)
    self._gate = StalenessGate(
      batch_size=batch_size,
      max_concurrent=rollout.max_concurrent_groups or batch_size,
      max_staleness=max_staleness,
      # The last batch waits for whoever is late, so that what was trained on
      # in the end does not depend on who was.
      max_accepted=settings.learner.num_steps * batch_size,
    )
    self._gate.resume(version, waiting=len(waiting))
    self._queue = GroupQueue(
      self._gate,
      max_groups=(rollout.max_staleness + 1) * batch_size,
      on_stale=lambda group: self._ledger.give_back(group.ordinal),
    )
    self._queue.restore(waiting)
    self._oversampling = Oversampling(rollout.group_size, seed=settings.seed)
    self._replacements = Replacements(rollout.max_replaced_groups)
    self._budget = FailureBudget(settings.failures.max_in_a_row)
    self._producer: asyncio.Task[Any] | None = None
    self._measuring = False
    self._counted: dict[str, float] = {}
    # Nothing is in flight between two steps of synchronous training, so one
    # that is cut short is done again as it would have been.
    self._repeats_steps = rollout.max_staleness == 0
    self._between_steps = self._ledger.snapshot()

  async def __aenter__(self) -> Self:
    await self._engine.__aenter__()
    return self

  async def __aexit__(self, *exc: object) -> None:
    if self._producer is not None:
      self._producer.cancel()
      await asyncio.wait([self._producer])
    await self._engine.__aexit__(*exc)

  async def measure(self) -> Evaluation:
    """Evaluates on held-out tasks, beside the training and not through it."""
    self._measuring = True
    try:
      return await measure_policy(self._parts, self._engine)
    finally:
      self._measuring = False

  def start(self) -> None:
    """Starts the workers."""
    rollout = self._parts.settings.rollout
    actor = self._parts.actor(
      self._engine,
      name="train",
      seed=self._parts.settings.seed,
      temperature=rollout.temperature,
    )
    self._producer = asyncio.create_task(
      produce_groups(
        actor,
        self._source,
        self._gate,
        self._queue,
        self._ledger,
        group_size=rollout.group_size + rollout.num_extra_members,
        group_timeout_seconds=rollout.group_timeout_seconds,
        choose=self._oversampling.choose,
        replacements=self._replacements,
        budget=self._budget,
      ),
      name="producer",
    )

  async def next_batch(self) -> tuple[Group, ...]:
    """Waits for the groups of a step."""
    return await self._queue.get_batch(self._gate.batch_size)

  def close(self, groups: Sequence[Group]) -> None:
    """Says that groups were trained on."""
    for group in groups:
      self._ledger.close(group.ordinal)
    self._between_steps = self._ledger.snapshot()

  def publish(self, weights: Any, version: int) -> None:
    """Lets the engine change weights before its next chunk."""
    if weights is not None:
      self._engine.set_params(weights, version)

  def set_version(self, version: int) -> None:
    """Admits the groups that may start at this version."""
    self._gate.set_version(version)

  def cursor(self) -> Cursor:
    """Returns the open ordinals and the next one."""
    if self._repeats_steps:
      return self._between_steps
    return self._ledger.snapshot()

  def waiting(self) -> tuple[Group, ...]:
    """Returns the finished groups, none where the step is done again."""
    return () if self._repeats_steps else self._queue.waiting

  def metrics(self) -> dict[str, float]:
    """Counts groups by what became of them since the last call."""
    totals = {
      "groups/failed": self._gate.failed,
      "groups/replaced": self._replacements.total,
      "groups/stale": self._queue.num_stale,
      "episodes/failed": self._budget.num_failed,
      "episodes/left_out": self._oversampling.num_left_out,
      "episodes/successes_left_out": self._oversampling.num_successes_left_out,
    }
    new = {k: float(v - self._counted.get(k, 0)) for k, v in totals.items()}
    self._counted = dict(totals)
    return new | {
      "groups/waiting": float(len(self._queue.waiting)),
      "groups/running": float(self._gate.running),
    }

  def components(self) -> dict[str, Callable[[], str]]:
    """Returns the lines of engine and actors."""
    return {"engine": self._engine.status, "actors": self._status}

  def _status(self) -> str:
    gate = self._gate
    beside = "an evaluation runs, " if self._measuring else ""
    return (
      f"{beside}{gate.running} groups running, {len(self._queue)} waiting, "
      f"{gate.accepted} accepted, {gate.rejected} rejected, {gate.failed} "
      f"failed at version {gate.version}"
    )


async def measure_policy(parts: RunParts, engine: Engine) -> Evaluation:
  """Evaluates an engine's weights on the held-out tasks of a run."""
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
    parts.heldout_tasks(),
    samples_per_task=settings.samples_per_task,
    max_concurrent=parts.settings.engine.num_slots,
    timeout_seconds=parts.settings.rollout.group_timeout_seconds,
  )
  engine.forget()
  return evaluation
