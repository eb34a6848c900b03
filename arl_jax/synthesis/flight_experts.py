"""A mix of careful and careless flight booking experts.

A policy warm-started on the mix books often enough for reinforcement to have
something to reward, and badly enough for a better strategy to be found.
"""

from collections.abc import Sequence
import dataclasses
import random

from arl_jax.envs.flight_expert import CAREFUL, Habits

# Six equal slots; a slot that comes thrice weighs thrice.
_UNSORTED = Habits(sorts=False)
CARELESS_SLOTS: tuple[Habits, ...] = (
  _UNSORTED,
  _UNSORTED,
  _UNSORTED,
  Habits(sorts=False, filters=False),
  Habits(checks=False, retries=False),
  Habits(sorts=False, checks=False, retries=False),
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ExpertMix:
  """How often each expert is drawn.

  Attributes:
    careful: share of episodes of the careful expert, in [0, 1].
    careless_slots: habits that share the rest evenly.
  """

  careful: float = 0.25
  careless_slots: Sequence[Habits] = CARELESS_SLOTS

  def __post_init__(self) -> None:
    if not 0.0 <= self.careful <= 1.0:
      raise ValueError(f"careful is {self.careful}; expected 0 to 1")
    if self.careful < 1.0 and not self.careless_slots:
      raise ValueError(
        f"careless_slots is empty while careful is {self.careful}; give slots"
        " or set careful to 1"
      )

  def draw(self, *, seed: int, index: int) -> Habits:
    """The expert of episode `index` of a run with this seed."""
    rng = random.Random(f"expert/{seed}/{index}")
    if rng.random() < self.careful:
      return CAREFUL
    return rng.choice(self.careless_slots)
