"""Trains one configuration with and without its parts, and compares.

A study names a configuration and its conditions. All conditions of a seed begin
with the same warm start. What is done is kept: stopped and started again, a
study goes on with the first run that is not in `results.jsonl`.
"""

import argparse
from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from experiments import warm_start

# Of the held-out tasks, before and after.
_PASS = "pass@1"
_NUM_COMPILING_STEPS = 2
_NUM_LAST_STEPS = 5
# What cannot differ within a folder of results.
_FIXED = ("num_steps", "num_eval_tasks", "eval_every", "tiny")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
  """What is compared.

  Attributes:
    doc: what the script does, for its help.
    file: which of `configs/` is trained.
    workdir: where results go by default.
    conditions: for each name, changes to the configuration by dotted key.
    num_steps: learner steps of a run.
    before: metrics of the evaluation that are shown before and after.
    during: metrics of training steps whose mean over the last steps is shown.
  """

  doc: str
  file: str
  workdir: str
  conditions: Mapping[str, Mapping[str, Any]]
  num_steps: int
  before: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
  during: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])


def run(study: Study, argv: Sequence[str] | None = None) -> None:
  """Runs what is left of a study, then prints its table and draws it."""
  options = read_options(study, argv)
  folder: pathlib.Path = options.workdir
  path = folder / "results.jsonl"
  if not options.report:
    fixed = {name: getattr(options, name) for name in _FIXED}
    warm_start.check_options(folder, fixed)
    warm_start.keep_compiled(folder / "compiled")
    for seed in options.seeds:
      for name in options.conditions:
        done = {
          (r["seed"], r["condition"]) for r in warm_start.read_results(path)
        }
        if (seed, name) not in done:
          run_condition(study, options, seed, name)
  results = warm_start.read_results(path)
  if not results:
    raise SystemExit(f"{path} has no results; run without --report first")
  print(f"\n{table(study, results)}")
  print(f"\n{draw(study, results, folder / 'curve.png')}")


def read_options(
  study: Study, argv: Sequence[str] | None = None
) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=study.doc, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    "--workdir", type=pathlib.Path, default=pathlib.Path(study.workdir)
  )
  parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
  parser.add_argument(
    "--conditions",
    nargs="+",
    choices=tuple(study.conditions),
    default=list(study.conditions),
  )
  parser.add_argument(
    "--num_steps", type=int, help=f"{study.num_steps}; 2 with --tiny"
  )
  parser.add_argument("--num_eval_tasks", type=int, help="200; 4 with --tiny")
  parser.add_argument("--eval_every", type=int, help="10; 0 with --tiny")
  parser.add_argument("--tiny", action="store_true", help="a toy, for tests")
  parser.add_argument("--report", action="store_true", help="train nothing")
  options = parser.parse_args(argv)
  for name, usual, tiny in (
    ("num_steps", study.num_steps, 2),
    ("num_eval_tasks", 200, 4),
    ("eval_every", 10, 0),
  ):
    if getattr(options, name) is None:
      setattr(options, name, tiny if options.tiny else usual)
  return options


def make_config(
  study: Study, options: argparse.Namespace, seed: int, name: str
) -> Any:
  """Returns the configuration of a run."""
  changes = {
    "seed": seed,
    "learner.num_steps": options.num_steps,
    "evaluation.num_tasks": options.num_eval_tasks,
    "evaluation.every": options.eval_every,
    "checkpoint.every": options.num_steps,
    "store.max_gigabytes": 0.0,
    **study.conditions[name],
  }
  return warm_start.make_config(
    tiny=options.tiny, changes=changes, file=study.file
  )


def run_condition(
  study: Study, options: argparse.Namespace, seed: int, name: str
) -> None:
  """Trains, and adds the result."""
  folder = options.workdir / f"seed_{seed}"
  print(f"\n=== {folder / name}", flush=True)
  warm_start.make_warm_start(
    make_config(study, options, seed, next(iter(study.conditions))),
    folder / "warm_start",
  )
  config = make_config(study, options, seed, name)
  records = warm_start.train_from(folder / "warm_start", config, folder / name)
  result = {"seed": seed, "condition": name, **summarize(study, records)}
  warm_start.add_result(options.workdir / "results.jsonl", result)
  before, after = (result[when][_PASS] for when in ("before", "after"))
  print(f"=== {_PASS} {before:.3f} to {after:.3f}", flush=True)


def summarize(
  study: Study, records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
  """Makes a result of a run's metrics."""
  evals = [r for r in records if r["phase"] == "eval"]
  steps = [r for r in records if r["phase"] == "train"]
  kept = (_PASS, f"{_PASS}/low", f"{_PASS}/high", *study.before.values())
  levels = [name for name in evals[-1] if name.startswith("success/level_")]
  last = steps[-_NUM_LAST_STEPS:]
  return {
    "before": {name: evals[0].get(name) for name in (*kept, *levels)},
    "after": {name: evals[-1].get(name) for name in (*kept, *levels)},
    "during": {
      name: warm_start.mean_of(last, name) for name in study.during.values()
    },
    "held_out": [[r["step"], r[_PASS]] for r in evals],
    "success": [r["success"] for r in steps],
    "reward": [r["reward/mean"] for r in steps],
    "failed": warm_start.failed_of([*evals, *steps]),
    "seconds_per_step": warm_start.mean_of(
      steps[_NUM_COMPILING_STEPS:] or steps, "timing_s/step"
    ),
  }


def _by_condition(
  study: Study, results: Sequence[Mapping[str, Any]]
) -> dict[str, list[Mapping[str, Any]]]:
  found = {
    name: [r for r in results if r["condition"] == name]
    for name in study.conditions
  }
  return {name: runs for name, runs in found.items() if runs}


def table(study: Study, results: Sequence[Mapping[str, Any]]) -> str:
  """Returns the results as Markdown, a row per condition."""
  rows = []
  for name, runs in _by_condition(study, results).items():
    rows.append(
      [
        name,
        str(len(runs)),
        _describe([r["before"][_PASS] for r in runs]),
        _describe([r["after"][_PASS] for r in runs]),
        *(
          " → ".join(
            _describe([r[when][metric] for r in runs], bounds=False)
            for when in ("before", "after")
          )
          for metric in study.before.values()
        ),
        *(
          _describe([r["during"][metric] for r in runs], bounds=False)
          for metric in study.during.values()
        ),
        _describe([r["seconds_per_step"] for r in runs], bounds=False),
      ]
    )
  header = (
    "condition",
    "seeds",
    f"{_PASS} before",
    f"{_PASS} after",
    *study.before,
    *study.during,
    "seconds a step",
  )
  note = warm_start.failures_note(results)
  return warm_start.markdown(header, rows) + note


def _describe(values: Sequence[float | None], *, bounds: bool = True) -> str:
  """Returns the mean over seeds, with the lowest and the highest."""
  found = [value for value in values if value is not None]
  if not found:
    return "-"
  text = f"{sum(found) / len(found):.3f}"
  if bounds and len(found) > 1:
    text += f" ({min(found):.3f} to {max(found):.3f})"
  return text


def draw(
  study: Study, results: Sequence[Mapping[str, Any]], path: pathlib.Path
) -> pathlib.Path:
  """Draws the held-out curve: a mean over seeds, a band from low to high."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(6.4, 3.8), layout="constrained", dpi=120)
  FigureCanvasAgg(figure)
  axis = figure.subplots()
  for index, (name, runs) in enumerate(_by_condition(study, results).items()):
    curves = [r["held_out"] for r in runs]
    steps = [step for step, _ in curves[0]]
    heights = [[y for _, y in curve] for curve in curves]
    columns = list(zip(*heights, strict=True))
    means = [sum(column) / len(column) for column in columns]
    axis.plot(steps, means, color=f"C{index}", label=name, linewidth=1.4)
    if len(runs) > 1:
      low, high = [min(c) for c in columns], [max(c) for c in columns]
      axis.fill_between(steps, low, high, color=f"C{index}", alpha=0.15)
  axis.set_xlabel("step")
  axis.set_ylabel(f"{_PASS}, held-out tasks")
  axis.set_ylim(0, 1)
  axis.grid(alpha=0.3)
  axis.legend(fontsize=8)
  figure.savefig(path)
  return path
