"""Which parts of the recipe of a code interpreter matter to a small policy?

    python experiments/code/study.py --workdir runs/code_study

Trains configs/code.py with three seeds, and again with one part changed: a
composite reward instead of the binary one, void turns trained on, and
truncated failures trained on. A tenth of the careless experts of the warm
start wins the composite reward without solving anything, so that there is
something to hack. `--report` prints the table and draws the curve of what is
done; `python -m arl_jax.reporting.reward_audit RUN` audits one run.
"""

from arl_jax.rewards.code import COMPOSITE_WEIGHTS
from experiments import ablation

_HACKERS = {"environment.hacker_fraction": 0.1}
_AFTER = "filters.after_advantages"

STUDY = ablation.Study(
  doc=__doc__ or "",
  file="code.py",
  workdir="runs/code_study",
  num_steps=40,
  conditions={
    "recipe": _HACKERS,
    "composite reward": {
      **_HACKERS,
      "environment.reward_weights": dict(COMPOSITE_WEIGHTS),
    },
    "void turns trained on": {
      **_HACKERS,
      _AFTER: ("nonzero_advantages", "truncation"),
    },
    "truncated failures trained on": {
      **_HACKERS,
      _AFTER: ("nonzero_advantages", "void_turns"),
    },
  },
  before={
    "turns": "num_turns/mean",
    "tokens written": "response_length/mean",
    "truncated": "truncated_fraction",
  },
  during={
    "reward": "reward/mean",
    "void": "dropped/void_turns",
    "cut off": "dropped/truncation",
    "entropy": "entropy",
  },
)

if __name__ == "__main__":
  ablation.run(STUDY)
