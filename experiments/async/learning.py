"""Does stale data hurt, and which correction helps?

    python experiments/async/learning.py --workdir runs/async_learning

Trains the small policy of flight booking in asynchronous mode, once for every
staleness, correction and seed. All runs of a seed begin with the same warm
start. As many groups run at once as the staleness allows, so that episodes
become as old as they may. What is done is kept: stopped and started again, the
script goes on with the first run that is not in `results.jsonl`.

    python experiments/async/learning.py --report

prints the table and draws the picture of the results so far.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
import pathlib
from typing import Any

from experiments import warm_start

# Changes to the configuration, by dotted key. `docs/algorithms.md` says what
# each does.
CORRECTIONS: Mapping[str, Mapping[str, Any]] = {
  # Clipped around the policy that sampled, whichever version that was.
  "nothing": {},
  # Policy gradients with bounded weights; nothing is clipped around a policy.
  "truncated": {
    "loss.importance": "truncate",
    "loss.importance_upper": 2.0,
  },
  "masked": {
    "loss.importance": "mask",
    "loss.importance_lower": 0.5,
    "loss.importance_upper": 2.0,
  },
  # Clipped around the policy before the step, with bounded weights.
  "decoupled": {
    "learner.recompute_logprobs": True,
    "loss.surrogate": "decoupled",
    "loss.proximal": "recomputed",
  },
}
_ROWS_PER_UPDATE = 32
_NUM_LAST_STEPS = 5
_NUM_COMPILING_STEPS = 2
# What a result has of its training steps: the mean, the largest, each.
_MEANS = (
  "staleness/mean",
  "ess",
  "engine_kl",
  "ratio/mean",
  "clip_fraction/low",
  "clip_fraction/high",
  "importance/masked_fraction",
  "importance/truncated_fraction",
  "logprob_gap/mean",
  "grad_norm",
  "entropy",
  "frac_reward_zero_std",
  "num_updates",
  "groups/stale",
  "groups/failed",
)
_MAXIMA = ("staleness/max", "ratio/max", "logprob_gap/max")
_CURVES = ("success", "staleness/mean", "ess")
# What cannot differ within a folder of results.
_FIXED = ("num_steps", "tasks_per_step", "num_eval_tasks", "eval_every", "tiny")
_COLORS = {name: f"C{index}" for index, name in enumerate(CORRECTIONS)}


def main(argv: Sequence[str] | None = None) -> None:
  options = read_options(argv)
  folder = options.workdir
  path = folder / "results.jsonl"
  if not options.report:
    fixed = {name: getattr(options, name) for name in _FIXED}
    warm_start.check_options(folder, fixed)
    warm_start.keep_compiled(folder / "compiled")
    for seed, staleness, correction in conditions(options):
      if not is_done(path, seed, staleness, correction):
        run_condition(options, seed, staleness, correction)
  results = warm_start.read_results(path)
  if not results:
    raise SystemExit(f"{path} has no results; run without --report first")
  print(f"\n{table(results)}")
  print(f"\n{draw(results, folder / 'curve.png')}")


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    "--workdir", type=pathlib.Path, default=pathlib.Path("runs/async_learning")
  )
  parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
  parser.add_argument(
    "--staleness", type=int, nargs="+", default=[0, 1, 4, 8, 16]
  )
  parser.add_argument(
    "--corrections",
    nargs="+",
    choices=tuple(CORRECTIONS),
    default=list(CORRECTIONS),
  )
  parser.add_argument("--num_steps", type=int, help="32; 2 with --tiny")
  parser.add_argument("--tasks_per_step", type=int, help="8; 2 with --tiny")
  parser.add_argument("--num_eval_tasks", type=int, help="200; 4 with --tiny")
  parser.add_argument("--eval_every", type=int, default=0)
  parser.add_argument(
    "--all_at_zero",
    action="store_true",
    help="staleness 0 with every correction, not with `nothing` alone",
  )
  parser.add_argument("--tiny", action="store_true", help="a toy, for tests")
  parser.add_argument("--report", action="store_true", help="train nothing")
  options = parser.parse_args(argv)
  for name, usual, tiny in (
    ("num_steps", 32, 2),
    ("tasks_per_step", 8, 2),
    ("num_eval_tasks", 200, 4),
  ):
    if getattr(options, name) is None:
      setattr(options, name, tiny if options.tiny else usual)
  return options


def conditions(options: argparse.Namespace) -> Iterator[tuple[int, int, str]]:
  """Yields seed, staleness and correction; a seed is whole before the next."""
  for seed in options.seeds:
    for staleness in options.staleness:
      if staleness == 0 and not options.all_at_zero:
        yield seed, 0, "nothing"
        continue
      for correction in options.corrections:
        yield seed, staleness, correction


def is_done(
  path: pathlib.Path, seed: int, staleness: int, correction: str
) -> bool:
  return any(
    (r["seed"], r["staleness"], r["correction"])
    == (seed, staleness, correction)
    for r in warm_start.read_results(path)
  )


def make_config(
  options: argparse.Namespace, seed: int, staleness: int, correction: str
) -> Any:
  """Returns the configuration of a run; staleness 0 is synchronous."""
  group_size = 4 if options.tiny else 8
  num_groups = (staleness + 1) * options.tasks_per_step
  rows = options.tasks_per_step * group_size
  changes = {
    "seed": seed,
    "rollout.tasks_per_step": options.tasks_per_step,
    "rollout.group_size": group_size,
    "rollout.mode": "async" if staleness else "sync",
    "rollout.max_staleness": staleness,
    "rollout.max_concurrent_groups": num_groups,
    # Episodes share the device with many others; none may end for that.
    "rollout.episode_timeout_seconds": 3600.0,
    "rollout.group_timeout_seconds": 7200.0,
    "learner.num_steps": options.num_steps,
    "learner.minibatches_per_step": max(1, rows // _ROWS_PER_UPDATE),
    "evaluation.num_tasks": options.num_eval_tasks,
    "evaluation.every": options.eval_every,
    "checkpoint.every": options.num_steps,
    "store.max_gigabytes": 0.0,
    **warm_start.many_slots(num_groups * group_size),
    **CORRECTIONS[correction],
  }
  return warm_start.make_config(tiny=options.tiny, changes=changes)


def run_condition(
  options: argparse.Namespace, seed: int, staleness: int, correction: str
) -> None:
  """Trains, and adds the result."""
  folder = options.workdir / f"seed_{seed}"
  config = make_config(options, seed, staleness, correction)
  name = f"staleness_{staleness}_{correction}"
  print(f"\n=== {folder / name}", flush=True)
  warm_start.make_warm_start(config, folder / "warm_start")
  records = warm_start.train_from(folder / "warm_start", config, folder / name)
  result = {
    "seed": seed,
    "staleness": staleness,
    "correction": correction,
    **summarize(records),
    "peak_megabytes": warm_start.peak_megabytes(),
  }
  warm_start.add_result(options.workdir / "results.jsonl", result)
  print(
    f"=== pass@1 {result['pass@1/before']:.3f} to {result['pass@1/after']:.3f},"
    f" age {result['staleness/mean']:.2f},"
    f" {result['seconds_per_step']:.2f} s a step,"
    f" peak memory {result['peak_megabytes']:.0f} MB",
    flush=True,
  )


def summarize(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Makes a result of a run's metrics."""
  evals = [r for r in records if r["phase"] == "eval"]
  steps = [r for r in records if r["phase"] == "train"]
  success = [r["success"] for r in steps]
  timed = steps[_NUM_COMPILING_STEPS:] or steps
  return {
    "pass@1/before": evals[0]["pass@1"],
    "pass@1/after": evals[-1]["pass@1"],
    "pass@1/best": max(r["pass@1"] for r in evals),
    "failed": warm_start.failed_of([*evals, *steps]),
    "success/last": sum(success[-_NUM_LAST_STEPS:])
    / len(success[-_NUM_LAST_STEPS:]),
    **{name: warm_start.mean_of(steps, name) for name in _MEANS},
    **{name: warm_start.max_of(steps, name) for name in _MAXIMA},
    "clipped": _mean_sum(steps, "clip_fraction/low", "clip_fraction/high"),
    "corrected": _mean_sum(
      steps, "importance/masked_fraction", "importance/truncated_fraction"
    ),
    "seconds_per_step": warm_start.mean_of(timed, "timing_s/step"),
    "curves": {name: [r.get(name) for r in steps] for name in _CURVES},
  }


def _mean_sum(steps: Sequence[Mapping[str, Any]], *names: str) -> float | None:
  """Returns the mean over steps of a sum of shares, None without updates."""
  means = [warm_start.mean_of(steps, name) for name in names]
  return None if None in means else sum(means)


# What is shown.


def groups_of(
  results: Sequence[Mapping[str, Any]],
) -> dict[tuple[int, str], list[Mapping[str, Any]]]:
  """Returns the results of all seeds by staleness and correction, in order."""
  names = list(CORRECTIONS)
  keys = {(r["staleness"], r["correction"]) for r in results}
  return {
    key: [r for r in results if (r["staleness"], r["correction"]) == key]
    for key in sorted(keys, key=lambda key: (key[0], names.index(key[1])))
  }


def table(results: Sequence[Mapping[str, Any]]) -> str:
  """Returns the results as Markdown, a row per staleness and correction."""
  rows = [
    [
      str(staleness),
      correction,
      str(len(found)),
      describe(found, "pass@1/before"),
      describe(found, "pass@1/after"),
      describe(found, "success/last"),
      describe(found, "staleness/mean", digits=2, bounds=False),
      describe(found, "staleness/max", digits=0, bounds=False),
      describe(found, "ess"),
      describe(found, "clipped", digits=4, bounds=False),
      describe(found, "corrected", digits=4, bounds=False),
      describe(found, "seconds_per_step", digits=2, bounds=False),
    ]
    for (staleness, correction), found in groups_of(results).items()
  ]
  header = (
    "staleness",
    "correction",
    "seeds",
    "pass@1 before",
    "pass@1 after",
    f"success, last {_NUM_LAST_STEPS} steps",
    "mean age",
    "oldest",
    "ess",
    "clipped",
    "cut or masked",
    "seconds a step",
  )
  note = warm_start.failures_note(results)
  return warm_start.markdown(header, rows) + note


def describe(
  results: Sequence[Mapping[str, Any]],
  name: str,
  *,
  digits: int = 3,
  bounds: bool = True,
) -> str:
  """Returns the mean over seeds, with the lowest and the highest."""
  values = [r[name] for r in results if r[name] is not None]
  if not values:
    return "-"
  text = f"{sum(values) / len(values):.{digits}f}"
  if bounds and len(values) > 1:
    text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
  return text


def draw(
  results: Sequence[Mapping[str, Any]], path: pathlib.Path
) -> pathlib.Path:
  """Draws success over steps: a panel per staleness, a line per correction."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure
  from matplotlib.ticker import MaxNLocator

  groups = groups_of(results)
  panels = sorted({staleness for staleness, _ in groups})
  columns = min(3, len(panels))
  lines = -(-len(panels) // columns)
  figure = Figure(
    figsize=(4.0 * columns, 2.8 * lines), layout="constrained", dpi=120
  )
  FigureCanvasAgg(figure)
  axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
  for axis, staleness in zip(axes, panels, strict=False):
    for (key, correction), found in groups.items():
      if key == staleness:
        _draw_line(axis, correction, [r["curves"]["success"] for r in found])
    axis.set_title(f"staleness {staleness}", fontsize=10)
    axis.set_xlabel("step")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
  for unused in axes[len(panels) :]:
    unused.set_axis_off()
  axes[0].set_ylabel("success")
  figure.savefig(path)
  return path


def _draw_line(
  axis: Any, correction: str, curves: Sequence[Sequence[float]]
) -> None:
  """Draws the mean over seeds, and a band from the lowest to the highest."""
  columns = list(zip(*curves, strict=True))
  steps = range(len(columns))
  color = _COLORS[correction]
  means = [sum(column) / len(column) for column in columns]
  axis.plot(steps, means, color=color, label=correction, linewidth=1.2)
  if len(curves) > 1:
    low, high = [min(c) for c in columns], [max(c) for c in columns]
    axis.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)


if __name__ == "__main__":
  main()
