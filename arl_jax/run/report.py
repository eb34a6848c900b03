"""What a run shows at its end: a table, a curve, episodes to read."""

import pathlib

from arl_jax.evaluate import Evaluation, format_evaluation
from arl_jax.reporting import plots, transcripts
from arl_jax.reporting.metrics import read_metrics

# Metrics that the picture shows, a panel each.
CURVES = (
  "success",
  "num_turns/mean",
  "truncated_fraction",
  "frac_reward_zero_std",
  "entropy",
  "grad_norm",
)


def report_run(
  folder: pathlib.Path,
  evaluation: Evaluation,
  *,
  num_episodes: int,
) -> dict[str, float]:
  """Prints the outcome and writes what there is to look at.

  Args:
    folder: of the run, with its metrics.
    evaluation: the last one.
    num_episodes: how many of its episodes to write as text.

  Returns:
    The metrics of the last evaluation.
  """
  records = read_metrics(folder / "metrics.jsonl")
  measured = [r for r in records if r.get("phase") == "eval"]
  for label, record in zip(
    ("before", "after"),
    [measured[0], measured[-1]] if measured else [],
    strict=False,
  ):
    print(f"\n{label}, step {record['step']}, held-out tasks")
    print(format_evaluation(record))
  curve = plots.write_learning_curve(
    [r for r in records if r.get("phase") != "warmup"],
    folder / "learning_curve.png",
    series=CURVES,
    title=folder.name,
  )
  print(f"\nlearning curve  {curve}")
  text = transcripts.write_episodes(
    evaluation.episodes[:num_episodes], folder / "episodes.txt"
  )
  print(f"episodes        {text}")
  return evaluation.metrics
