"""Episodes per second while some tools take very long: sync and async.

    python experiments/async/throughput.py --workdir runs/async_throughput

Trains the small policy of flight booking with a tool whose latency has a heavy
tail: lognormal, cut off at `--longest`. A latency is drawn from the task, the
member of the group and the turn. The learning rate is next to nothing, so that
the policy stays what the warm start made it, and all modes play the same
episodes with the same latencies.

The ideal keeps the device busy or every tool running, whichever takes longer:

    ideal = 1 / max(model seconds per episode,
                    tool seconds per episode / episodes in flight)

Model seconds hold decoding and the update, which share the device. They are
measured without latency, in the mode that needs fewer of them.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
import pathlib
from typing import Any

import numpy as np
from slow_tools import Latency, slow_tools

from experiments import warm_start

_SYNC = "sync"
# Of which the faster one says how long an episode needs the device.
_MODES_WITHOUT_LATENCY = (_SYNC, "1")
_MAX_CONCURRENT_STEPS = 4
_NUM_COMPILING_STEPS = 2
_FIXED = (
  "num_steps",
  "tasks_per_step",
  "max_concurrent_groups",
  "warmup_steps",
  "median",
  "sigma",
  "longest",
  "seed",
  "tiny",
)


def main(argv: Sequence[str] | None = None) -> None:
  options = read_options(argv)
  folder = options.workdir
  fixed = {name: getattr(options, name) for name in _FIXED}
  warm_start.check_options(folder, fixed)
  warm_start.keep_compiled(folder / "compiled")
  path = folder / "results.jsonl"
  for run, mode, has_latency in conditions(options):
    results = warm_start.read_results(path)
    if not any(
      (r["run"], r["mode"], r["latency"]) == (run, mode, has_latency)
      for r in results
    ):
      result = measure(options, run, mode, has_latency)
      warm_start.add_result(path, result)
  results = warm_start.read_results(path)
  print(f"\n{describe_latencies(results)}")
  model_seconds = device_seconds(results)
  print(f"model seconds per episode: {model_seconds:.4f}")
  print(f"\n{table(results, model_seconds)}")


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    "--workdir",
    type=pathlib.Path,
    default=pathlib.Path("runs/async_throughput"),
  )
  parser.add_argument(
    "--modes",
    nargs="+",
    type=_mode,
    default=[_SYNC, "0", "1", "2", "4", "8"],
    help="sync, or the staleness of an asynchronous run",
  )
  parser.add_argument("--num_steps", type=int, default=12, help="timed ones")
  parser.add_argument("--runs", type=int, default=1)
  parser.add_argument("--tasks_per_step", type=int, help="8; 2 with --tiny")
  parser.add_argument(
    "--max_concurrent_groups",
    type=int,
    help="(staleness + 1) * tasks_per_step, at most 4 * tasks_per_step",
  )
  parser.add_argument("--warmup_steps", type=int, help="150; 4 with --tiny")
  parser.add_argument("--median", type=float, default=0.15)
  parser.add_argument("--sigma", type=float, default=1.5)
  parser.add_argument("--longest", type=float, default=20.0)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--tiny", action="store_true", help="a toy, for tests")
  options = parser.parse_args(argv)
  if options.tasks_per_step is None:
    options.tasks_per_step = 2 if options.tiny else 8
  if options.warmup_steps is None:
    options.warmup_steps = 4 if options.tiny else 150
  if options.num_steps < 1:
    parser.error(f"--num_steps is {options.num_steps}; expected 1 or more")
  return options


def _mode(text: str) -> str:
  if text != _SYNC and not text.isdecimal():
    raise argparse.ArgumentTypeError(
      f"{text!r} is neither sync nor a staleness such as 4"
    )
  return text


def conditions(options: argparse.Namespace) -> Iterator[tuple[int, str, bool]]:
  """Yields run, mode, and whether tools take their time."""
  for run in range(options.runs):
    for mode in _MODES_WITHOUT_LATENCY:
      yield run, mode, False
    for mode in options.modes:
      yield run, mode, True


# What is measured.


def num_concurrent_groups(options: argparse.Namespace, mode: str) -> int:
  """Returns the groups that run at once; never more than a batch in sync."""
  batch_size = options.tasks_per_step
  if mode == _SYNC:
    return batch_size
  if options.max_concurrent_groups is not None:
    return options.max_concurrent_groups
  return min(_staleness(mode) + 1, _MAX_CONCURRENT_STEPS) * batch_size


def timed_steps(options: argparse.Namespace, mode: str) -> slice:
  """Returns the steps during which as many episodes begin as end.

  The run goes on for as many steps more as the staleness: a run that is about
  to end begins no more episodes, and its last steps are not like the others.
  """
  first = _NUM_COMPILING_STEPS + _staleness(mode)
  return slice(first, first + options.num_steps)


def _staleness(mode: str) -> int:
  return 0 if mode == _SYNC else int(mode)


def make_config(options: argparse.Namespace, mode: str) -> Any:
  """Returns the configuration of a run."""
  group_size = 4 if options.tiny else 8
  modes = {*options.modes, *_MODES_WITHOUT_LATENCY}
  # As many slots in every mode, so that all of them run the same programs.
  num_slots = group_size * max(num_concurrent_groups(options, m) for m in modes)
  # Waiting for a tool is not being late, however many of them there are.
  seconds = 3600.0 + 100 * options.longest
  num_steps = timed_steps(options, mode).stop + _staleness(mode)
  changes = {
    "seed": options.seed,
    "warmup.num_steps": options.warmup_steps,
    "rollout.tasks_per_step": options.tasks_per_step,
    "rollout.group_size": group_size,
    "rollout.mode": "sync" if mode == _SYNC else "async",
    "rollout.max_staleness": _staleness(mode),
    "rollout.max_concurrent_groups": num_concurrent_groups(options, mode),
    "rollout.step_timeout_seconds": 60.0 + options.longest,
    "rollout.episode_timeout_seconds": seconds,
    "rollout.group_timeout_seconds": 2 * seconds,
    "learner.num_steps": num_steps,
    "learner.minibatches_per_step": 1 if options.tiny else 2,
    # One length, so that nothing compiles in the middle of a run.
    "learner.packed_lengths": (400,),
    "optimizer.learning_rate": 1e-9,
    "evaluation.num_tasks": 1,
    "checkpoint.every": num_steps,
    "store.max_gigabytes": 0.0,
    **warm_start.many_slots(num_slots),
  }
  return warm_start.make_config(tiny=options.tiny, changes=changes)


def measure(
  options: argparse.Namespace, run: int, mode: str, has_latency: bool
) -> dict[str, Any]:
  """Trains, and says how fast that was."""
  config = make_config(options, mode)
  start = options.workdir / "warm_start"
  warm_start.make_warm_start(config, start)
  latency = Latency(
    median=options.median if has_latency else 0.0,
    sigma=options.sigma,
    longest=options.longest,
  )
  name = f"run_{run}_{mode}{'' if has_latency else '_without_latency'}"
  print(f"\n=== {options.workdir / name}", flush=True)
  with slow_tools(latency) as drawn:
    records = warm_start.train_from(start, config, options.workdir / name)
  rollout = config.rollout
  result = {
    "run": run,
    "mode": mode,
    "latency": has_latency,
    "in_flight": num_concurrent_groups(options, mode) * rollout.group_size,
    **summarize(
      records,
      drawn,
      timed=timed_steps(options, mode),
      episodes_per_step=rollout.tasks_per_step * rollout.group_size,
    ),
  }
  print(f"=== {result['episodes_per_second']:.2f} episodes/s", flush=True)
  return result


def summarize(
  records: Sequence[Mapping[str, Any]],
  drawn: Sequence[float],
  *,
  timed: slice,
  episodes_per_step: int,
) -> dict[str, Any]:
  """Makes a result of a run's metrics.

  Args:
    records: what the run wrote.
    drawn: seconds of every tool call of its training.
    timed: the steps whose time counts.
    episodes_per_step: those that a step is trained on.
  """
  all_steps = [r for r in records if r["phase"] == "train"]
  steps = all_steps[timed]
  seconds = [r["timing_s/step"] for r in steps]
  wall = sum(seconds)
  num_episodes = len(all_steps) * episodes_per_step
  return {
    "episodes_per_second": len(steps) * episodes_per_step / wall,
    "seconds_per_step/mean": wall / len(steps),
    "seconds_per_step/max": max(seconds),
    "rollout_share": sum(r["timing_s/rollout"] for r in steps) / wall,
    "learn_share": sum(r["timing_s/learn"] for r in steps) / wall,
    "staleness/mean": warm_start.mean_of(steps, "staleness/mean"),
    "staleness/max": warm_start.max_of(steps, "staleness/max"),
    "num_turns": warm_start.mean_of(steps, "num_turns/mean"),
    "num_updates": warm_start.mean_of(steps, "num_updates"),
    "groups/stale": sum(r["groups/stale"] for r in steps),
    "tool_seconds_per_episode": sum(drawn) / num_episodes,
    "drawn": [round(x, 4) for x in drawn],
  }


def device_seconds(results: Sequence[Mapping[str, Any]]) -> float:
  """Returns the model seconds of an episode: those of the fastest mode."""
  rates = [r["episodes_per_second"] for r in results if not r["latency"]]
  return 1 / max(rates)


def ideal_rate(result: Mapping[str, Any], model_seconds: float) -> float:
  """Returns episodes per second with the device or all tools always busy."""
  waiting = result["tool_seconds_per_episode"] / result["in_flight"]
  return 1 / max(model_seconds, waiting)


# What is shown.


def describe_latencies(results: Sequence[Mapping[str, Any]]) -> str:
  """Says what the tools took, over all modes."""
  drawn = [x for r in results if r["latency"] for x in r["drawn"]]
  if not drawn:
    return "no tool was called"
  middle, high = np.percentile(drawn, [50, 99])
  return (
    f"tool seconds: mean {np.mean(drawn):.2f}, p50 {middle:.2f}, p99"
    f" {high:.2f}, longest {max(drawn):.2f} of {len(drawn)} calls"
  )


def table(results: Sequence[Mapping[str, Any]], model_seconds: float) -> str:
  """Returns the means over runs as Markdown, a row per mode."""
  slow = [r for r in results if r["latency"]]
  rows = []
  for mode in dict.fromkeys(r["mode"] for r in slow):
    found = [r for r in slow if r["mode"] == mode]
    rate = np.mean([r["episodes_per_second"] for r in found])
    ideal = np.mean([ideal_rate(r, model_seconds) for r in found])

    def mean(name: str, digits: int, found=found) -> str:
      return f"{np.mean([r[name] for r in found]):.{digits}f}"

    rows.append(
      [
        mode if mode == _SYNC else f"async, {mode}",
        str(found[0]["in_flight"]),
        f"{rate:.2f}",
        f"{ideal:.2f}",
        f"{rate / ideal:.2f}",
        mean("seconds_per_step/mean", 2),
        f"{max(r['seconds_per_step/max'] for r in found):.2f}",
        mean("rollout_share", 2),
        mean("learn_share", 2),
        mean("staleness/mean", 2),
        mean("groups/stale", 1),
      ]
    )
  header = (
    "mode, staleness",
    "episodes in flight",
    "episodes/s",
    "ideal",
    "share of it",
    "seconds a step",
    "longest step",
    "waits for episodes",
    "learns",
    "mean age",
    "stale groups",
  )
  return warm_start.markdown(header, rows)


if __name__ == "__main__":
  main()
