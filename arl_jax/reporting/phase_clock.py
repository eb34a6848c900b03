"""Measures how long each phase of a step takes."""

import dataclasses
import time


@dataclasses.dataclass
class PhaseClock:
  """Seconds of each phase of a step."""

  started: float = dataclasses.field(default_factory=time.perf_counter)
  laps: dict[str, float] = dataclasses.field(default_factory=dict)

  def lap(self, name: str) -> None:
    """Ends the phase that ran until now."""
    spent = time.perf_counter() - self.started - sum(self.laps.values())
    self.laps[name] = spent

  def metrics(self, num_tokens: float) -> dict[str, float]:
    """Returns seconds by phase, and sampled tokens per second."""
    total = sum(self.laps.values())
    return {
      **{f"timing_s/{name}": spent for name, spent in self.laps.items()},
      "timing_s/step": total,
      "perf/tokens_per_second": num_tokens / total,
    }
