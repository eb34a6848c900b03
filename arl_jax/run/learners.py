"""The learner of a run, and one that only takes its time."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from arl_jax.envs.off_loop import call_off_loop
from arl_jax.episode import Group
from arl_jax.run.device_turns import take_turns
from arl_jax.run.learner_step import learn
from arl_jax.run.parts import RunParts
from arl_jax.types import LearnerState

Advantages = Sequence[npt.NDArray[np.float32]]


class Learner(Protocol):
  """Whatever turns groups into new weights."""

  @property
  def state(self) -> LearnerState | None:
    """What a checkpoint holds; None where there is nothing to save."""
    ...

  @property
  def reference(self) -> Any:
    """Parameters of the reference policy, None where unused."""
    ...

  async def learn(
    self, groups: Sequence[Group], version: int
  ) -> tuple[dict[str, float], Advantages | None]:
    """Takes one step.

    Args:
      groups: the episodes to learn from.
      version: of the weights before the step.

    Returns:
      Metrics, and the advantages `[T]` of every row where there are any.
    """
    ...

  async def publish(self) -> Any:
    """Returns a copy of the weights for the engine; None if unchanged."""
    ...

  def reset_reference(self) -> None:
    """Makes the current policy the reference, if there is one."""
    ...

  def status(self) -> str:
    """One line that changes while the learner gets on."""
    ...


class PolicyLearner:
  """Owns the state; its calls take turns on the device with the engine."""

  def __init__(self, parts: RunParts, state: LearnerState, reference: Any):
    self.state = state
    self.reference = reference
    self._parts = parts
    self._num_calls = 0
    self._doing = "waits for groups"
    self._fns = take_turns(
      parts.update_fns(), parts.device, on_call=self._count_call
    )

  async def learn(
    self, groups: Sequence[Group], version: int
  ) -> tuple[dict[str, float], Advantages | None]:
    """Takes the updates of one step, off the event loop."""
    self._doing = f"learns from step {version}"
    # A daemon thread: whoever stops at once need not wait for an update.
    learned = await call_off_loop(
      learn,
      self._parts,
      self._fns,
      self.state,
      self.reference,
      groups,
      version,
      name="learner",
    )
    self.state = learned.state
    self._doing = "waits for groups"
    return learned.metrics, learned.advantages

  async def publish(self) -> Any:
    """Copies the weights on the device's thread."""
    return await asyncio.get_running_loop().run_in_executor(
      self._parts.device, self._parts.publish, self.state.params
    )

  def reset_reference(self) -> None:
    """Makes the current policy the reference, if there is one."""
    if self.reference is not None:
      self.reference = self._parts.copy(self.state.params)

  def status(self) -> str:
    """Says what it does, and how many calls of the device that took."""
    return f"{self._doing}, {self._num_calls} device calls"

  def _count_call(self) -> None:
    self._num_calls += 1


class SimulatedLearner:
  """Learns nothing, so that actors can be watched and tested alone."""

  state = None
  reference = None

  def __init__(self, parts: RunParts, params: Any):
    debug = parts.settings.debug
    self._parts, self._params = parts, params
    self._seconds = debug.learn_seconds
    self._publishes = debug.mode == "simulated_learner"
    self._num_steps = 0

  async def learn(
    self, groups: Sequence[Group], version: int
  ) -> tuple[dict[str, float], Advantages | None]:
    """Sleeps, if it is to publish; returns what there is to count."""
    del version
    if self._publishes:
      await asyncio.sleep(self._seconds)
    self._num_steps += 1
    episodes = [episode for group in groups for episode in group.episodes]
    sampled = sum(episode.num_action_tokens for episode in episodes)
    rows = [row for episode in episodes for row in episode.rows]
    return {
      "tokens/sampled": sampled,
      "tokens/total": sum(len(row) for row in rows),
    }, None

  async def publish(self) -> Any:
    """Copies the same weights once more, if they are to pass for new ones."""
    if not self._publishes:
      return None
    return await asyncio.get_running_loop().run_in_executor(
      self._parts.device, self._parts.publish, self._params
    )

  def reset_reference(self) -> None:
    """Does nothing: there is no reference."""

  def status(self) -> str:
    """Counts the steps."""
    return f"simulated, {self._num_steps} steps"
