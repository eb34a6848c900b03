"""Prints the table of finished runs: `python table.py RUN_FOLDER ...`."""

import json
import pathlib
import sys

COLUMNS = (
  ("num_turns/mean", "turns", "{:.2f}"),
  ("tools/episodes_with_error", "episodes with a tool error", "{:.3f}"),
  ("truncated_fraction", "truncated", "{:.3f}"),
)


def read_run(folder: pathlib.Path) -> tuple[list[dict], list[dict]]:
  """Returns the evaluations and the training steps of a run."""
  lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
  records = [json.loads(line) for line in lines]
  by_phase = {
    phase: [record for record in records if record["phase"] == phase]
    for phase in ("eval", "train")
  }
  return by_phase["eval"], by_phase["train"]


def describe(evaluation: dict) -> str:
  """Returns pass@1 with its 95 % interval."""
  low, high = evaluation["pass@1/low"], evaluation["pass@1/high"]
  return f"{evaluation['pass@1']:.3f} [{low:.3f}, {high:.3f}]"


def main(folders: list[str]) -> None:
  """Prints one row for each run."""
  levels: list[str] = []
  rows: list[list[str]] = []
  for name in folders:
    evaluations, steps = read_run(pathlib.Path(name))
    before, after = evaluations[0], evaluations[-1]
    levels = sorted(key for key in after if key.startswith("success/level_"))
    rows.append(
      [
        pathlib.Path(name).name,
        describe(before),
        describe(after),
        str(len(steps)),
        " / ".join(f"{after[level]:.2f}" for level in levels),
        *(
          f"{form.format(before[key])} → {form.format(after[key])}"
          for key, _, form in COLUMNS
        ),
        f"{sum(step['timing_s/step'] for step in steps):.0f}",
      ]
    )
  header = ["run", "after warm start", "after GRPO", "steps"]
  header.append(f"by level ({len(levels)})")
  header += [label for _, label, _ in COLUMNS] + ["seconds of GRPO"]
  print("| " + " | ".join(header) + " |")
  print("|" + " --- |" * len(header))
  for row in rows:
    print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
  main(sys.argv[1:])
