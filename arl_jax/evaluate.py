"""Measures a policy: `python -m arl_jax.evaluate --config=F --workdir=W`."""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import logging
import math
import pathlib

import numpy as np

from arl_jax import command_line
from arl_jax.actors.pool import Actor, run_tasks
from arl_jax.episode import Episode, Task
from arl_jax.reporting import statistics
from arl_jax.reporting.episode_metrics import episode_metrics

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """What a policy did on a list of tasks.

  Attributes:
    metrics: `pass@1` with the bounds `pass@1/low` and `pass@1/high`, `pass@k`
      for powers of two, `success/level_n`, and the episode metrics.
    episodes: all of them, task by task.
  """

  metrics: dict[str, float]
  episodes: list[Episode]


async def evaluate_policy(
  actor: Actor,
  tasks: Sequence[Task],
  *,
  samples_per_task: int,
  max_concurrent: int,
  timeout_seconds: float = math.inf,
) -> Evaluation:
  """Runs the tasks; an episode that failed counts as not solved.

  Where all failed, nothing was measured.

  Args:
    actor: what the episodes share; its sampling is the evaluation's.
    tasks: held out from training.
    samples_per_task: episodes of each task.
    max_concurrent: episodes that run at the same time.
    timeout_seconds: time for one episode, whatever its limits do.

  Raises:
    RuntimeError: no episode finished; names the first cause.
  """
  episodes = await run_tasks(
    actor,
    tasks,
    max_concurrent=max_concurrent,
    samples_per_task=samples_per_task,
    timeout_seconds=timeout_seconds,
  )
  failed = [episode for episode in episodes if not episode.status.finished]
  if failed and len(failed) == len(episodes):
    raise RuntimeError(
      f"none of the {len(episodes)} episodes of an evaluation finished, so"
      " there is nothing to report; mend the cause. The first, of task"
      f" {failed[0].task.task_id!r}: {failed[0].error}"
    )
  if failed:
    _LOGGER.warning(
      "%d of %d episodes of an evaluation did not finish and count as not"
      " solved; the first, of task %r: %s",
      len(failed),
      len(episodes),
      failed[0].task.task_id,
      failed[0].error,
    )
  return Evaluation(
    metrics=summarize(episodes, samples_per_task=samples_per_task),
    episodes=episodes,
  )


def summarize(
  episodes: Sequence[Episode], *, samples_per_task: int
) -> dict[str, float]:
  """Turns episodes, ordered task by task, into an evaluation's metrics.

  pass@1 is the mean over all episodes. Its 95 % interval is Wilson's, with
  tasks for trials whatever the samples of each: those of one task are not
  independent. With several samples it is wider than it need be, never too
  narrow.
  """
  solved = np.array([e.success for e in episodes], bool)
  by_task = solved.reshape(-1, samples_per_task)
  rates = by_task.mean(axis=1)
  low, high = statistics.wilson_interval(float(rates.sum()), len(rates))
  metrics = {
    "pass@1": float(rates.mean()),
    "pass@1/low": float(low),
    "pass@1/high": float(high),
  }
  k = 2
  while k <= samples_per_task:
    metrics[f"pass@{k}"] = float(
      np.mean(
        [
          statistics.pass_at_k(samples_per_task, int(row.sum()), k)
          for row in by_task
        ]
      )
    )
    k *= 2
  levels = sorted({e.task.level for e in episodes})
  for level in levels:
    chosen = [e.success for e in episodes if e.task.level == level]
    metrics[f"success/level_{level}"] = float(np.mean(chosen))
  return metrics | episode_metrics(episodes)


def warn_of_components(
  episodes: Sequence[Episode], reward_weights: Mapping[str, float]
) -> None:
  """Warns of components that are waited for and that no episode has.

  Args:
    episodes: of any policy; those that did not finish have none.
    reward_weights: of the configuration, by the name of a component.
  """
  finished = [e for e in episodes if e.status.finished and e.turns]
  if not finished:
    return
  found = {name for e in finished for name in e.reward_components}
  shown = ", ".join(sorted(found)) or "none"
  missing = [
    n for n, weight in reward_weights.items() if weight and n not in found
  ]
  if missing:
    _LOGGER.warning(
      "config.environment.reward_weights names %s, but none of the %d episodes"
      " that finished has such a component, so nothing is paid for it; they"
      " have %s. If it is misspelt, correct it there or in the environment",
      ", ".join(missing),
      len(finished),
      shown,
    )
  if "success" not in found:
    _LOGGER.warning(
      "none of the %d episodes that finished has the component success, so"
      " pass@k is 0 and says nothing; they have %s. An environment's score()"
      " has to give success, 0 or 1",
      len(finished),
      shown,
    )


def format_evaluation(metrics: dict[str, float]) -> str:
  """Returns an evaluation as a short table."""
  low, high = metrics["pass@1/low"], metrics["pass@1/high"]
  rows = [("pass@1", f"{metrics['pass@1']:.3f}  [{low:.3f}, {high:.3f}]")]
  rows += [
    (name, f"{value:.3f}")
    for name, value in metrics.items()
    if name.startswith(("pass@", "success/level"))
    and not name.startswith("pass@1")
  ]
  for name, label in (
    ("num_turns/mean", "turns"),
    ("response_length/mean", "sampled tokens"),
    ("tools/failure_fraction", "tool errors"),
    ("tools/episodes_with_error", "episodes with a tool error"),
    ("truncated_fraction", "truncated"),
    ("failed_fraction", "failed"),
  ):
    rows.append((label, f"{metrics[name]:.3f}"))
  width = max(len(label) for label, _ in rows)
  return "\n".join(f"  {label:<{width}}  {value}" for label, value in rows)


def _evaluate(arguments: command_line.Arguments) -> None:
  command_line.connect(arguments)
  # Imported here: train imports this module.
  from arl_jax import train
  from arl_jax.run.guard import run_loop

  evaluation = run_loop(
    train.evaluate_checkpoint(arguments.config, arguments.workdir)
  )
  print(format_evaluation(evaluation.metrics))
  path = pathlib.Path(arguments.workdir) / "evaluation.json"
  path.write_text(
    json.dumps(evaluation.metrics, indent=1) + "\n", encoding="utf-8"
  )
  print(f"\n  written to {path}")


def main() -> None:
  """Runs the command."""
  command_line.run(_evaluate, description=__doc__ or "")


if __name__ == "__main__":
  main()
