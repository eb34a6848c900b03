"""Tests of the studies of recipes."""

import argparse
import pathlib
import runpy

import pytest

from arl_jax.run import config_rules
from arl_jax.run.settings import read_settings
from experiments import ablation, warm_start

ROOT = pathlib.Path(__file__).parents[2] / "experiments"
STUDIES = {
  name: runpy.run_path(str(ROOT / name / "study.py"))["STUDY"]
  for name in ("search", "code")
}
CONDITIONS = [
  (name, condition)
  for name, study in STUDIES.items()
  for condition in study.conditions
]


def options(**changes):
  given = {"tiny": False, "num_steps": 5, "num_eval_tasks": 8, "eval_every": 2}
  return argparse.Namespace(**(given | changes))


@pytest.mark.parametrize(("name", "condition"), CONDITIONS)
def test_a_condition_is_a_configuration_that_can_work(name, condition):
  study = STUDIES[name]
  for tiny in (False, True):
    config = ablation.make_config(study, options(tiny=tiny), 3, condition)
    settings = read_settings(config)
    config_rules.check(settings)
    assert settings.seed == 3
    assert settings.learner.num_steps == 5
    assert settings.evaluation.every == 2
  for key, value in study.conditions[condition].items():
    section, _, field = key.partition(".")
    assert getattr(getattr(settings, section), field) == value


@pytest.mark.parametrize("name", STUDIES)
def test_conditions_share_what_the_warm_start_depends_on(name):
  study = STUDIES[name]
  configs = [
    ablation.make_config(study, options(), 0, condition).to_dict()
    for condition in study.conditions
  ]
  for config in configs:
    config["environment"].pop("reward_weights")
  for section in ("policy", "environment", "warmup"):
    assert all(config[section] == configs[0][section] for config in configs)


def result(seed, condition, after):
  return {
    "seed": seed,
    "condition": condition,
    "before": {"pass@1": 0.5, "num_turns/mean": 2.0},
    "after": {"pass@1": after, "num_turns/mean": 3.0},
    "during": {"entropy": 0.25},
    "held_out": [[0, 0.5], [5, after]],
    "seconds_per_step": 1.5,
  }


def test_the_table_has_means_and_bounds_over_seeds(tmp_path):
  study = ablation.Study(
    doc="",
    file="code.py",
    workdir="",
    num_steps=5,
    conditions={"with": {}, "without": {}, "never run": {}},
    before={"turns": "num_turns/mean"},
    during={"entropy": "entropy"},
  )
  results = [
    result(0, "without", 0.25),
    result(0, "with", 0.75),
    result(1, "with", 0.875),
  ]
  lines = ablation.table(study, results).splitlines()
  assert lines[2] == (
    "| with | 2 | 0.500 (0.500 to 0.500) | 0.812 (0.750 to 0.875)"
    " | 2.000 → 3.000 | 0.250 | 1.500 |"
  )
  assert lines[3].startswith("| without | 1 | 0.500 | 0.250 | 2.000 → 3.000 |")
  assert len(lines) == 4
  path = ablation.draw(study, results, tmp_path / "curve.png")
  assert path.stat().st_size > 1000
  results[0]["failed"] = 0.125
  assert ablation.table(study, results).endswith(
    "In 1 of 3 runs episodes failed with an error, up to 0.125 of a step or an"
    " evaluation; they count as not solved."
  )


@pytest.mark.slow
@pytest.mark.usefixtures("jax_config")
def test_a_study_trains_every_condition_and_goes_on(tmp_path):
  study = STUDIES["code"]
  arguments = ["--workdir", str(tmp_path), "--tiny", "--seeds", "0"]
  conditions = ["recipe", "composite reward"]
  ablation.run(study, [*arguments, "--conditions", "recipe"])
  ablation.run(study, [*arguments, "--conditions", *conditions])
  results = warm_start.read_results(tmp_path / "results.jsonl")
  assert [r["condition"] for r in results] == conditions
  # Both began with the same weights.
  assert len({r["before"]["pass@1"] for r in results}) == 1
  assert len({tuple(r["before"].items()) for r in results}) == 1
  assert all(len(r["reward"]) == 2 for r in results)
  with pytest.raises(SystemExit, match="--num_steps 2, now 3"):
    ablation.run(study, [*arguments, "--num_steps", "3"])
