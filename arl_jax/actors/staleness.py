"""Admits new groups only while their tokens can still be fresh enough."""

import asyncio
import enum


class Outcome(enum.StrEnum):
  """What became of a group that was admitted."""

  ACCEPTED = "accepted"  # handed over for training
  REJECTED = "rejected"  # complete, but not to be trained on
  FAILED = "failed"  # broken or cancelled


class StalenessGate:
  """Counts groups, and lets one start when there is room for it.

  With B groups per learner step, version v of the weights, and at most `eta`
  versions between sampling and training, the groups that may exist are

    capacity = min(max_concurrent - running,
                   min((eta + v + 1) * B, max_accepted)
                   - (accepted + running)).

  Always: submitted = running + accepted + rejected + failed.
  `max_staleness=0` is synchronous training: B groups, a step, B groups.
  `max_accepted`, B times the steps of the run, ends it with every admitted
  group trained on: without it, which ones are left over is up to timing.
  Reference: Fu et al., "AReaL: A Large-Scale Asynchronous Reinforcement
  Learning System for Language Reasoning", 2025, section 5.1.
  """

  def __init__(
    self,
    *,
    batch_size: int,
    max_concurrent: int,
    max_staleness: int,
    max_accepted: int | None = None,
  ):
    """Makes a gate at version 0.

    Args:
      batch_size: B, groups of a learner step.
      max_concurrent: groups that run at the same time.
      max_staleness: eta, versions between sampling and training.
      max_accepted: groups of the whole run; None for no end.
    """
    for name, value, least in (
      ("batch_size", batch_size, 1),
      ("max_concurrent", max_concurrent, 1),
      ("max_staleness", max_staleness, 0),
      ("max_accepted", 0 if max_accepted is None else max_accepted, 0),
    ):
      if value < least:
        raise ValueError(f"{name} is {value}; expected {least} or more")
    self.batch_size = batch_size
    self.max_concurrent = max_concurrent
    self.max_staleness = max_staleness
    self.max_accepted = max_accepted
    self.version = 0
    self.submitted = 0
    self.running = 0
    self.accepted = 0
    self.rejected = 0
    self.failed = 0
    self._changed = asyncio.Event()

  @property
  def capacity(self) -> int:
    """Groups that may start now; negative after a limit was tightened."""
    most = (self.max_staleness + self.version + 1) * self.batch_size
    if self.max_accepted is not None:
      most = min(most, self.max_accepted)
    return min(
      self.max_concurrent - self.running,
      most - (self.accepted + self.running),
    )

  async def acquire(self) -> None:
    """Waits for room, and takes it for one group."""
    while self.capacity <= 0:
      self._changed.clear()
      await self._changed.wait()
    self.submitted += 1
    self.running += 1

  def release(self, outcome: Outcome) -> None:
    """Says how a group ended; once for every `acquire`."""
    if not self.running:
      raise RuntimeError(f"release({outcome}) without an acquire before it")
    self.running -= 1
    self._count(outcome, 1)

  def retract(self) -> None:
    """Turns an accepted group into a rejected one, to be replaced.

    A group that grew too old in the queue is not trained on. Without this
    the learner would wait for a group that the gate never admits.
    """
    if not self.accepted:
      raise RuntimeError("retract() without an accepted group")
    self._count(Outcome.ACCEPTED, -1)
    self._count(Outcome.REJECTED, 1)

  def set_version(self, version: int) -> None:
    """Says that the weights are now at `version`."""
    if version < self.version:
      raise ValueError(
        f"version is {version}, but the gate is at {self.version}; versions "
        "only grow"
      )
    self.version = version
    self._changed.set()

  def resume(self, version: int, *, waiting: int = 0) -> None:
    """Continues a run at `version`, as if its groups had been accepted here.

    Without them, all groups of the versions before would be owed at once.

    Args:
      version: of the weights, as many as batches were trained on.
      waiting: groups that were accepted before and are not trained on yet.
    """
    if self.submitted:
      raise RuntimeError("resume() after groups were admitted; call it first")
    if waiting < 0:
      raise ValueError(f"waiting is {waiting}; expected 0 or more")
    self.set_version(version)
    self.submitted = self.accepted = version * self.batch_size + waiting

  def _count(self, outcome: Outcome, change: int) -> None:
    if outcome is Outcome.ACCEPTED:
      self.accepted += change
    elif outcome is Outcome.REJECTED:
      self.rejected += change
    else:
      self.failed += change
    self._changed.set()
