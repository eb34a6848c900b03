"""Tests of keeping a folder to one configuration."""

import json

from ml_collections import config_dict
import pytest

from arl_jax import config as config_lib
from arl_jax.run import workdir


def _config(**changes) -> config_dict.ConfigDict:
  config = config_dict.ConfigDict(
    {
      "seed": 0,
      "loss": {"clip_low": 0.2, "logprob_chunk": 128},
      "warmup": {"optimizer": {"betas": (0.9, 0.95)}},
      "learner": {"num_steps": 20, "minibatches_per_step": 4},
      "rollout": {"group_size": 8, "step_timeout_seconds": 1.0},
    }
  )
  config.update_from_flattened_dict(changes)
  return config


def test_fingerprint_holds_what_a_resume_shares():
  assert json.loads(workdir.fingerprint(_config())) == {
    "seed": 0,
    "loss.clip_low": 0.2,
    "warmup.optimizer.betas": [0.9, 0.95],
    "learner.minibatches_per_step": 4,
    "rollout.group_size": 8,
  }


def _keep_all(terms, config):
  return terms.batch.row_mask


def test_a_function_is_known_by_its_name():
  config = config_dict.ConfigDict(
    {"filters": {"after_advantages": ("truncation", _keep_all)}}
  )
  ((_, names),) = json.loads(workdir.fingerprint(config)).items()
  assert names == ["truncation", f"{__name__}._keep_all"]


def test_same_folder_takes_the_same_configuration_again(tmp_path):
  workdir.claim_workdir(_config(), tmp_path)
  longer = {"learner.num_steps": 40, "rollout.step_timeout_seconds": 9.0}
  workdir.check_workdir(_config(**longer), tmp_path)


def test_other_configuration_is_refused_with_the_keys_that_differ(tmp_path):
  workdir.claim_workdir(_config(), tmp_path)
  other = _config(**{"loss.clip_low": 0.3, "seed": 1})
  del other.warmup
  with pytest.raises(config_lib.ConfigError) as caught:
    workdir.check_workdir(other, tmp_path)
  message = str(caught.value)
  assert "loss.clip_low: 0.2 there, 0.3 here" in message
  assert "seed: 0 there, 1 here" in message
  assert "warmup.optimizer.betas: [0.9, 0.95] there, not set here" in message


def test_long_lists_of_differences_are_cut(tmp_path):
  ours = config_dict.ConfigDict({"loss": {f"k{i}": i for i in range(8)}})
  theirs = config_dict.ConfigDict({"loss": {f"k{i}": -1 for i in range(8)}})
  workdir.claim_workdir(theirs, tmp_path)
  with pytest.raises(config_lib.ConfigError, match=r"\(and 3 more\)"):
    workdir.check_workdir(ours, tmp_path)


@pytest.mark.parametrize("text", ["{broken", "[1]"])
def test_unreadable_fingerprint_is_named(tmp_path, text):
  (tmp_path / "fingerprint.json").write_text(text)
  with pytest.raises(config_lib.ConfigError, match=r"fingerprint\.json cannot"):
    workdir.check_workdir(_config(), tmp_path)


def test_a_folder_that_can_be_made_is_not_made(tmp_path):
  workdir.check_writable(tmp_path)
  workdir.check_writable(tmp_path / "new" / "run")
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ("name", "cause"),
  [
    ("file", "Not a directory"),
    ("file/run", "Not a directory"),
    ("dangling", "No such file"),
    ("a" * 300, "name too long"),
    ("/proc/run", "/proc: No such file"),
  ],
)
def test_a_folder_that_cannot_be_written_is_refused(tmp_path, name, cause):
  (tmp_path / "file").write_text("")
  (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
  with pytest.raises(config_lib.ConfigError, match="^--workdir is ") as caught:
    workdir.check_writable(tmp_path / name)
  assert cause in str(caught.value)


def test_a_look_writes_nothing(tmp_path):
  workdir.check_workdir(_config(), tmp_path)
  assert not list(tmp_path.iterdir())


def test_a_folder_has_one_run_at_a_time(tmp_path):
  with workdir.lock_workdir(tmp_path):
    with pytest.raises(config_lib.ConfigError, match="in use by process"):
      with workdir.lock_workdir(tmp_path):
        raise AssertionError("two runs hold the folder")
  with workdir.lock_workdir(tmp_path):
    assert (tmp_path / ".lock").read_text().isdigit()
