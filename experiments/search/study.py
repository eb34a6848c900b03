"""Does the small policy learn to search, and what is the mask worth?

    python experiments/search/study.py --workdir runs/search_study

Trains configs/search.py with three seeds, and again with the policy loss on
what was retrieved as well as on what the policy wrote: the mask of Search-R1,
on and off. `--report` prints the table and draws the curve of what is done.
"""

from experiments import ablation

STUDY = ablation.Study(
  doc=__doc__ or "",
  file="search.py",
  workdir="runs/search_study",
  num_steps=40,
  conditions={
    "retrieved tokens masked": {},
    "retrieved tokens trained on": {
      "learner.recompute_logprobs": True,
      "learner.train_on_observations": True,
    },
  },
  before={
    "turns": "num_turns/mean",
    "episodes with a tool error": "tools/episodes_with_error",
    "truncated": "truncated_fraction",
  },
  during={"entropy": "entropy", "kl of engine": "engine_kl"},
)

if __name__ == "__main__":
  ablation.run(STUDY)
