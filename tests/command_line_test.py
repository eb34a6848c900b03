"""Tests of the messages that a mistake on the command line ends in."""

import errno

import numpy as np
import pytest

from arl_jax import command_line
from arl_jax import config as config_lib
from arl_jax.reporting import statistics

CONFIG = "--config=configs/flight_booking.py"


def _parse(*arguments: str) -> command_line.Arguments:
  return command_line.parse(["test", *arguments])


def test_overrides_reach_the_configuration():
  arguments = _parse(
    CONFIG + ":runlocal",
    "--workdir=w",
    "--config.loss.clip_high=1",
    "--config.learner.length_buckets=(8, 16)",
    "--config.environment.show_tools",
  )
  assert arguments.workdir == "w"
  assert arguments.config.loss.clip_high == 1.0
  assert arguments.config.learner.length_buckets == (8, 16)
  assert arguments.config.environment.show_tools is True
  assert arguments.config.learner.num_steps == 2  # the variant's
  assert not arguments.distributed


def test_decay_follows_the_number_of_warmup_steps():
  config = _parse(CONFIG, "--workdir=w", "--config.warmup.num_steps=7").config
  assert config.warmup.optimizer.total_steps == 7


def test_parsing_twice_does_not_remember():
  _parse(CONFIG, "--workdir=w", "--config.seed=3")
  assert _parse(CONFIG, "--workdir=w").config.seed == 0


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ([CONFIG], "--workdir is missing"),
    (["--workdir=w"], "--config is missing"),
    ([CONFIG, "--wrkdir=w"], "Did you mean: workdir"),
    ([CONFIG, "--workdir=w", "stray"], "'stray' is not understood"),
    (["--config=nope.py", "--workdir=w"], "there is no file nope.py"),
    (
      ["--config=nope.py", "--workdir=w", "--config.seed=1"],
      "there is no file nope.py",
    ),
    (
      ["--config=README.md", "--workdir=w"],
      "README.md cannot be loaded as a configuration",
    ),
    ([CONFIG + ":smol", "--workdir=w"], "expected one of smollm2, runlocal"),
    ([CONFIG, "--config.seed"], "Missing value for flag --config.seed"),
    (["--config.seed=1", CONFIG], "before a value for --config"),
    (
      [CONFIG, "--config.loss.clip_hgh=1"],
      "--config.loss.clip_hgh is not a known key. Did you mean clip_high?",
    ),
    ([CONFIG, "--config.los.clip_high=1"], "Did you mean loss?"),
    ([CONFIG, "--config.seed.x=1"], "--config.seed is a value (0)"),
    (
      [CONFIG, "--config.learner.num_steps=2.5"],
      "--config.learner.num_steps is '2.5'; expected an int, as 30 is.",
    ),
    (
      [CONFIG, "--config.loss.clip_high=x"],
      "--config.loss.clip_high is 'x'; expected a number, as 0.28 is.",
    ),
    (
      [CONFIG, "--config.environment.moves=maybe"],
      "is 'maybe'; expected true or false, as True is.",
    ),
    ([CONFIG, "--config.loss=3"], "--config.loss is a section; override one"),
  ],
)
def test_mistake_ends_as_one_message(arguments, message, capsys):
  def command(_: command_line.Arguments) -> None:
    raise AssertionError("a mistake must not reach the command")

  with pytest.raises(SystemExit) as caught:
    command_line.run(command, ["test", *arguments])
  assert caught.value.code == 2
  shown = capsys.readouterr().err
  assert shown.startswith("error: ")
  assert message in shown
  assert "Traceback" not in shown


def test_bug_in_a_configuration_keeps_its_traceback(tmp_path):
  path = tmp_path / "broken.py"
  path.write_text("def get_config():\n  return [].missing\n")
  with pytest.raises(AttributeError, match="missing"):
    _parse(f"--config={path}", "--workdir=w")


def test_users_errors_are_told_from_bugs():
  def caught(function, *arguments):
    try:
      function(*arguments)
    except Exception as error:
      return error
    raise AssertionError("it did not fail")

  ours = caught(statistics.wilson_interval, 3, 2)
  theirs = caught(np.zeros, -1)
  full = OSError(errno.ENOSPC, "No space left on device", "x.json")
  find = command_line.user_error
  assert find(config_lib.ConfigError("typo")) == "typo"
  assert find(ours) == "successes is 3; expected 0 to n, which is 2."
  assert find(ExceptionGroup("one", [ours])) == find(ours)
  advice = "free space on the disk of --workdir, then run it again"
  assert find(full) == f"No space left on device: x.json; {advice}"
  # One of ours has said all that already.
  said = OSError(errno.ENOSPC, "The disk is full. Free space there")
  assert find(said) == "The disk is full. Free space there"
  assert isinstance(theirs, ValueError)
  assert find(theirs) is None
  assert find(ExceptionGroup("two", [ours, theirs])) is None
  assert find(KeyError("x")) is None


def test_bug_keeps_its_traceback_and_variable_shows_all(monkeypatch):
  arguments = ["test", CONFIG, "--workdir=w"]

  def fail(error: Exception):
    def command(_: command_line.Arguments) -> None:
      raise error

    return command

  with pytest.raises(KeyError):
    command_line.run(fail(KeyError("bug")), arguments)
  monkeypatch.setenv("ARL_JAX_TRACEBACK", "1")
  with pytest.raises(config_lib.ConfigError):
    command_line.run(fail(config_lib.ConfigError("typo")), arguments)


def test_help_lists_the_flags(capsys):
  command_line.run(lambda _: None, ["test", "--help"], description="Trains.")
  shown = capsys.readouterr().out
  assert "Trains." in shown
  assert "--workdir" in shown
