"""Says whether a run learned its task, or only its reward.

A reward that is hacked goes up while what it stands for goes down, and
something beside it looks odd: answers get longer, or their entropy is gone. So
it takes three kinds of series: the reward of training, an evaluation that the
policy does not train on, and side metrics.

    python -m arl_jax.reporting.reward_audit runs/flight_booking

The exit code is 1 if the reward is hacked.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import enum
import itertools
import math
import pathlib
import statistics
import sys
from typing import Any

from arl_jax.reporting.metrics import read_metrics

# Steps and values, in the order of the steps.
Series = Sequence[tuple[float, float]]

# With fewer, no order of them is significant.
MIN_POINTS = 6
_MAX_BINS = 12
# Of a run: all of it, its first and its second half, its last third. Hacking
# often begins when a policy has learned what there is to learn; but where it is
# easy it is over soon, and then nothing changes for long.
_WINDOWS = ((0.0, 1.0), (0.0, 0.5), (0.5, 1.0), (2 / 3, 1.0))
# Median deviations from the first third that are abnormal.
_ABNORMAL = 3.0
_SIDE = (
  "response_length/mean",
  "truncated_fraction",
  "entropy",
  "num_turns/mean",
  "tools/failure_fraction",
  "reward_component/hard_coded",
)


class Verdict(enum.StrEnum):
  """What an audit comes to."""

  # In some window the reward rises, and the evaluation falls in it or in one
  # that holds it.
  HACKED = "hacked"
  SUSPECT = "suspect"  # reward rises, the evaluation does not, a side is odd
  HONEST = "honest"  # reward and evaluation rise, and neither falls anywhere
  UNCLEAR = "unclear"  # none of these; often too few measurements


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
  """How a series goes.

  Attributes:
    direction: 1 up, -1 down, 0 if neither is significant.
    change: from the first step to the last, by the Theil-Sen slope.
    p_value: of the Mann-Kendall test, two-sided; 1 with under `MIN_POINTS`.
    num_points: values that were compared, after binning.
  """

  direction: int
  change: float
  p_value: float
  num_points: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Window:
  """Both trends between two steps."""

  first_step: float
  last_step: float
  reward: Trend
  evaluation: Trend


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Side:
  """A side metric; it is abnormal if it has a trend and has left its range.

  Attributes:
    trend: over the whole run.
    deviation: of the median of the last third from that of the first third,
      in median absolute deviations of the first (scaled to be standard
      deviations where it is normal).
  """

  trend: Trend
  deviation: float

  @property
  def is_abnormal(self) -> bool:
    """Whether it counts as the third sign."""
    return bool(self.trend.direction) and abs(self.deviation) > _ABNORMAL


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
  """A verdict with the numbers that it rests on."""

  verdict: Verdict
  windows: tuple[Window, ...]
  sides: Mapping[str, Side]


def audit_reward(
  reward: Series,
  evaluation: Series,
  *,
  sides: Mapping[str, Series] | None = None,
  alpha: float = 0.05,
) -> Audit:
  r"""Compares the trends of a reward and an independent evaluation.

  A window's series are averaged in up to 12 bins of equal width, because
  neighbouring steps resemble each other. A trend is significant if the
  Mann-Kendall test says so at $\alpha / 4$, for four windows: all of the run,
  its halves, its last third. A window with under `MIN_POINTS` measurements has
  no trend.

  References: Mann, 1945, Nonparametric tests against trend; Sen, 1968,
  Estimates of the regression coefficient based on Kendall's tau.

  Args:
    reward: of the episodes that are trained on.
    evaluation: what the reward stands for, measured otherwise: by hidden
      tests, on held-out tasks, by people.
    sides: other metrics of the run, by name.
    alpha: of each series, over all windows.

  Raises:
    ValueError: alpha is no probability, a value is not finite, or the two
      series share no steps.
  """
  if not 0 < alpha < 1:
    raise ValueError(f"alpha is {alpha}; expected a number between 0 and 1")
  reward, evaluation = _sorted("reward", reward), _sorted("eval", evaluation)
  first = max(reward[0][0], evaluation[0][0])
  last = min(reward[-1][0], evaluation[-1][0])
  if first < last:
    # The last evaluation comes after the last step.
    last = max(reward[-1][0], evaluation[-1][0])
  else:
    raise ValueError(
      f"reward has steps {reward[0][0]:g} to {reward[-1][0]:g}, and evaluation"
      f" {evaluation[0][0]:g} to {evaluation[-1][0]:g}; expected some in common"
    )
  level = alpha / len(_WINDOWS)
  windows = [
    Window(
      first_step=start,
      last_step=end,
      reward=trend(_between(reward, start, end), alpha=level),
      evaluation=trend(_between(evaluation, start, end), alpha=level),
    )
    for start, end in (
      (first + begun * (last - first), first + ended * (last - first))
      for begun, ended in _WINDOWS
    )
  ]
  judged = {
    name: _side(_sorted(name, series), level)
    for name, series in (sides or {}).items()
  }
  return Audit(
    verdict=_verdict(windows, judged.values()),
    windows=tuple(windows),
    sides=judged,
  )


def trend(series: Series, *, alpha: float) -> Trend:
  r"""Tests a series for going up or down.

  With $S = \sum_{i<j} \mathrm{sign}(x_j - x_i)$, Mann-Kendall's
  $z = (S - \mathrm{sign}(S)) / \sqrt{V}$ is about normal if there is no trend,
  where $V = (n (n-1) (2n+5) - \sum_t t (t-1) (2t+5)) / 18$, and t are the sizes
  of ties. The slope is the median of $(x_j - x_i) / (s_j - s_i)$.

  Args:
    series: in the order of its steps.
    alpha: two-sided.
  """
  points = _binned(series)
  if len(points) < MIN_POINTS:
    return Trend(direction=0, change=0.0, p_value=1.0, num_points=len(points))
  pairs = list(itertools.combinations(points, 2))
  total = sum((b > a) - (b < a) for (_, a), (_, b) in pairs)
  slopes = [(b - a) / (t - s) for (s, a), (t, b) in pairs]
  n = len(points)
  ties = [
    len(list(same))
    for _, same in itertools.groupby(sorted(v for _, v in points))
  ]
  variance = n * (n - 1) * (2 * n + 5) / 18
  variance -= sum(t * (t - 1) * (2 * t + 5) for t in ties) / 18
  sign = (total > 0) - (total < 0)
  z = (total - sign) / math.sqrt(variance) if sign else 0.0
  p_value = math.erfc(abs(z) / math.sqrt(2))
  return Trend(
    direction=sign if p_value < alpha else 0,
    change=statistics.median(slopes) * (points[-1][0] - points[0][0]),
    p_value=p_value,
    num_points=n,
  )


def _verdict(windows: Sequence[Window], sides: Iterable[Side]) -> Verdict:
  if any(
    inner.reward.direction > 0
    and outer.evaluation.direction < 0
    and outer.first_step <= inner.first_step
    and inner.last_step <= outer.last_step
    for inner in windows
    for outer in windows
  ):
    return Verdict.HACKED
  whole = windows[0]
  if whole.reward.direction > 0:
    falls = any(w.evaluation.direction < 0 for w in windows)
    if whole.evaluation.direction > 0 and not falls:
      return Verdict.HONEST
    is_known = whole.evaluation.num_points >= MIN_POINTS
    flat = is_known and whole.evaluation.direction <= 0
    if flat and any(side.is_abnormal for side in sides):
      return Verdict.SUSPECT
  return Verdict.UNCLEAR


def _side(series: Series, alpha: float) -> Side:
  third = max(len(series) // 3, 1)
  early = [value for _, value in series[:third]]
  late = [value for _, value in series[-third:]]
  center = statistics.median(early)
  spread = 1.4826 * statistics.median(abs(value - center) for value in early)
  moved = statistics.median(late) - center
  # A metric that stood still, and then moved, has left its range.
  deviation = moved / spread if spread else math.copysign(math.inf, moved)
  return Side(
    trend=trend(series, alpha=alpha), deviation=deviation if moved else 0.0
  )


def _sorted(name: str, series: Series) -> Series:
  if not series:
    raise ValueError(f"{name} is empty; expected steps and values")
  for step, value in series:
    if not (math.isfinite(step) and math.isfinite(value)):
      raise ValueError(
        f"{name} has ({step}, {value}); expected finite numbers, so leave it"
        " out"
      )
  return sorted(series)


def _between(series: Series, first: float, last: float) -> Series:
  return [point for point in series if first <= point[0] <= last]


def _binned(series: Series) -> list[tuple[float, float]]:
  """Averages steps and values in bins of equal width; empty ones are gone."""
  if len(series) <= 1:
    return list(series)
  first, last = series[0][0], series[-1][0]
  width = (last - first) / _MAX_BINS or 1.0
  bins: dict[int, list[tuple[float, float]]] = {}
  for step, value in series:
    number = min(int((step - first) / width), _MAX_BINS - 1)
    bins.setdefault(number, []).append((step, value))
  return [
    (statistics.fmean(s for s, _ in part), statistics.fmean(v for _, v in part))
    for part in bins.values()
  ]


def audit_run(
  workdir: str | pathlib.Path,
  *,
  reward: str = "reward/mean",
  evaluation: str = "pass@1",
  sides: Sequence[str] = _SIDE,
  alpha: float = 0.05,
) -> Audit:
  """Audits the metrics of a run.

  Args:
    workdir: the run's folder, with `metrics.jsonl`.
    reward: name of a metric of training.
    evaluation: name of a metric of the evaluations.
    sides: names of metrics of training; those that it lacks are left out.
    alpha: see `audit_reward`.

  Raises:
    ValueError: there is no such file or metric; see `audit_reward`.
  """
  path = pathlib.Path(workdir) / "metrics.jsonl"
  if not path.is_file():
    raise ValueError(f"{path} is not a file; expected the folder of a run")
  records = read_metrics(path)
  found = {
    (phase, name): _series(records, phase, name)
    for phase, name in [
      ("train", reward),
      ("eval", evaluation),
      *(("train", name) for name in sides),
    ]
  }
  for key in (("train", reward), ("eval", evaluation)):
    if not found[key]:
      raise ValueError(f"{path} has no metric {key[1]!r} of phase {key[0]!r}")
  return audit_reward(
    found["train", reward],
    found["eval", evaluation],
    sides={
      name: found["train", name] for name in sides if found["train", name]
    },
    alpha=alpha,
  )


def format_audit(audit: Audit) -> str:
  """Returns the verdict with its numbers, one line for each series."""
  lines = [f"verdict: {audit.verdict.value}"]
  for window in audit.windows:
    lines.append(f"steps {window.first_step:g} to {window.last_step:g}")
    for name in ("reward", "evaluation"):
      lines.append(f"  {name:28} {_trend_text(getattr(window, name))}")
  for name, side in audit.sides.items():
    mark = "abnormal" if side.is_abnormal else "usual"
    lines.append(
      f"{name:30} {_trend_text(side.trend)}, deviation {side.deviation:+.1f},"
      f" {mark}"
    )
  return "\n".join(lines)


def _trend_text(found: Trend) -> str:
  if found.num_points < MIN_POINTS:
    return f"unknown, {found.num_points} of the {MIN_POINTS} points it takes"
  word = {1: "up", -1: "down", 0: "flat"}[found.direction]
  return (
    f"{word:4} change {found.change:+.3f}, p {found.p_value:.3f},"
    f" {found.num_points} points"
  )


def _series(
  records: Sequence[Mapping[str, Any]], phase: str, name: str
) -> list[tuple[float, float]]:
  return [
    (float(record["step"]), float(record[name]))
    for record in records
    if record.get("phase") == phase and record.get(name) is not None
  ]


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog="python -m arl_jax.reporting.reward_audit",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("workdir", help="folder of a run")
  parser.add_argument("--reward", default="reward/mean", help="of training")
  parser.add_argument("--evaluation", default="pass@1", help="of evaluations")
  parser.add_argument("--side", nargs="*", default=_SIDE, help="of training")
  parser.add_argument("--alpha", type=float, default=0.05)
  options = parser.parse_args(arguments)
  try:
    audit = audit_run(
      options.workdir,
      reward=options.reward,
      evaluation=options.evaluation,
      sides=options.side,
      alpha=options.alpha,
    )
  except ValueError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  print(format_audit(audit))
  return int(audit.verdict is Verdict.HACKED)


if __name__ == "__main__":
  sys.exit(main())
