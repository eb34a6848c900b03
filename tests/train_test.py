"""Whole runs at toy size: resume, devices, modes, and broken folders."""

import asyncio
import json
import os
import signal

import jax
import numpy as np
import pytest

from arl_jax import config as config_lib
from arl_jax import train as train_lib
from arl_jax.evaluate import Evaluation
from arl_jax.export import export_checkpoint
from arl_jax.run import warmup, workdir
from tests.toy_runs import make_config, records, restored, run


def test_six_steps_equal_three_and_a_resume_of_three(tmp_path):
  whole, halves = str(tmp_path / "whole"), str(tmp_path / "halves")
  run(make_config(learner__num_steps=6), whole)
  run(make_config(learner__num_steps=3), halves)
  config = make_config(learner__num_steps=6)
  run(config, halves)
  one, one_extras = restored(config, whole)
  two, two_extras = restored(config, halves)
  assert one_extras == two_extras
  assert one_extras["version"] == 6
  for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
    np.testing.assert_array_equal(a, b)
  curves = [records(folder, "train") for folder in (whole, halves)]
  assert [r["step"] for r in curves[1]] == list(range(6))
  for a, b in zip(*curves, strict=True):
    assert a["reward/mean"] == b["reward/mean"]
    assert a["tokens/sampled"] == b["tokens/sampled"]
    assert a["num_updates"] == 1


def test_engine_and_learner_agree_before_every_update(tmp_path):
  run(make_config(loss__kl_weight=0.01), tmp_path)
  steps = records(tmp_path, "train")
  assert [record["num_updates"] for record in steps] == [1, 1]
  for record in steps:
    assert record["num_turns/mean"] > 1
    assert record["logprob_gap/max"] < 1e-3
    assert record["kl"] >= 0
  (before, after) = records(tmp_path, "eval")
  assert (before["step"], after["step"]) == (0, 2)
  assert (tmp_path / "learning_curve.png").stat().st_size > 1000
  assert "[user]" in (tmp_path / "episodes.txt").read_text()


def test_one_and_four_devices_give_the_same_losses(tmp_path):
  losses = {}
  for number in (1, 4):
    folder = str(tmp_path / str(number))
    run(make_config(), folder, num_devices=number)
    losses[number] = [r["loss"] for r in records(folder, "warmup")]
    config = make_config()
    state, _ = restored(config, folder)
    losses[number].append(float(np.abs(state.params["embed"]).sum()))
  np.testing.assert_allclose(losses[1], losses[4], rtol=1e-4)


def test_async_mode_bounds_staleness(tmp_path):
  config = make_config(
    rollout__mode="async", rollout__max_staleness=1, learner__num_steps=3
  )
  run(config, tmp_path)
  ages = [r["staleness/max"] for r in records(tmp_path, "train")]
  assert len(ages) == 3
  assert max(ages) <= 1


def test_a_workdir_of_another_config_is_refused(tmp_path):
  run(make_config(learner__num_steps=1), tmp_path)
  with pytest.raises(config_lib.ConfigError, match="group_size"):
    run(make_config(rollout__group_size=2), tmp_path)


def test_evaluation_of_a_run(tmp_path):
  config = make_config(learner__num_steps=1, evaluation__samples_per_task=2)
  run(config, tmp_path)
  evaluation = asyncio.run(
    train_lib.evaluate_checkpoint(
      config, str(tmp_path), devices=jax.devices()[:1]
    )
  )
  assert isinstance(evaluation, Evaluation)
  assert {"pass@1", "pass@2", "truncated_fraction"} <= set(evaluation.metrics)
  assert len(evaluation.episodes) == 2 * config.evaluation.num_tasks
  again = records(tmp_path, "eval")[-1]
  assert evaluation.metrics["pass@1"] == again["pass@1"]
  assert (
    evaluation.metrics["response_length/mean"] == again["response_length/mean"]
  )


def test_an_export_trains_on_as_a_hugging_face_folder(tmp_path):
  config = make_config(learner__num_steps=1)
  run(config, tmp_path / "small")
  folder = export_checkpoint(config, str(tmp_path / "small"))
  again = make_config(
    policy__kind="hf",
    policy__path=str(folder),
    warmup__num_steps=0,
    learner__num_steps=1,
  )
  run(again, tmp_path / "hf")
  (before, _), (_, after) = (
    records(tmp_path / name, "eval") for name in ("hf", "small")
  )
  # The same weights and tokenizer, so the same episodes.
  for name in ("response_length/mean", "num_turns/mean", "tools/calls"):
    assert before[name] == after[name]


def test_evaluation_without_a_checkpoint_says_so(tmp_path):
  with pytest.raises(ValueError, match="does not exist"):
    asyncio.run(
      train_lib.evaluate_checkpoint(make_config(), str(tmp_path / "none"))
    )


def test_a_task_file_with_a_bad_line_names_it(tmp_path):
  from arl_jax.envs import flight_task_file, flight_tasks

  path = tmp_path / "tasks.jsonl"
  tasks = flight_tasks.generate_tasks(2, seed=0, split="train")
  flight_task_file.save_tasks(path, tasks)
  path.write_text(path.read_text() + '{"task_id": 3}\n')
  config = make_config(environment__task_file=str(path))
  with pytest.raises(ValueError, match="line 3"):
    run(config, tmp_path / "run")
  # Nothing has begun, so the corrected file may use the same folder.
  assert not (tmp_path / "run").exists()


def test_a_folder_that_another_process_took_meanwhile_is_left_alone(
  tmp_path, monkeypatch
):
  found = iter([False, True])
  monkeypatch.setattr(train_lib, "has_checkpoint", lambda _: next(found))
  config = make_config(environment__num_train_tasks=8)
  with pytest.raises(config_lib.ConfigError, match="another process has begun"):
    run(config, tmp_path)
  assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_folder_in_use_is_refused_before_anything_is_assembled(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(train_lib, "assemble", None)
  with workdir.lock_workdir(tmp_path):
    with pytest.raises(config_lib.ConfigError, match="in use by process"):
      run(make_config(), tmp_path)


def test_a_folder_that_cannot_be_written_is_refused_first(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(train_lib, "assemble", None)
  (tmp_path / "file").write_text("")
  with pytest.raises(config_lib.ConfigError, match="--workdir is .*/file/run'"):
    run(make_config(), tmp_path / "file" / "run")


def test_a_step_without_a_signal_is_said_and_leaves_the_weights(
  tmp_path, caplog
):
  config = make_config(
    environment__reward_weights={"success": 1.0}, learner__num_steps=1
  )
  run(config, tmp_path)
  assert "nothing was learned" in caplog.text
  (record,) = records(tmp_path, "train")
  assert record["num_updates"] == 0
  assert record["frac_reward_zero_std"] == 1.0
  after, _ = restored(config, tmp_path)
  assert int(after.step) == 0


def test_the_metrics_file_is_json_lines(tmp_path):
  run(make_config(learner__num_steps=1), tmp_path)
  for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
    assert isinstance(json.loads(line), dict)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_before_the_first_step_leaves_no_folder(
  number, tmp_path, monkeypatch, capsys
):
  def assemble(*unused, **also_unused):
    os.kill(os.getpid(), number)

  monkeypatch.setattr(train_lib, "assemble", assemble)
  workdir_path = tmp_path / "run"
  assert train_lib.train(make_config(), str(workdir_path)) == {}
  assert "stopped before the first step" in capsys.readouterr().out
  assert not workdir_path.exists()


def test_a_stop_in_the_warm_start_keeps_nothing_and_begins_again(
  tmp_path, monkeypatch, capsys
):
  original = warmup.update_lib.update

  def update(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGINT)
    return original(*args, **kwargs)

  config = make_config(learner__num_steps=1)
  with monkeypatch.context() as patch:
    patch.setattr(warmup.update_lib, "update", update)
    assert run(config, tmp_path) == {}
  assert "stopped in the warm start" in capsys.readouterr().out
  assert len(records(tmp_path, "warmup")) == 1
  run(config, tmp_path)
  assert len(records(tmp_path, "warmup")) == config.warmup.num_steps
  assert len(records(tmp_path, "train")) == 1
