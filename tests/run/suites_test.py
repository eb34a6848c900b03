"""Tests of finding an environment by its name."""

import dataclasses
import traceback

import pytest

from arl_jax import config as config_lib
from arl_jax.run import suites
from arl_jax.run.settings import read_settings
from arl_jax.run.suites import SUITES, SuiteKind, find_suite
from tests import toy_runs


def test_a_suite_of_ones_own_is_found_by_module_and_attribute(
  tmp_path, monkeypatch
):
  (tmp_path / "my_desk.py").write_text(
    "import dataclasses\n"
    "from arl_jax.run.suites import SuiteKind\n"
    "@dataclasses.dataclass(frozen=True)\n"
    "class Mine:\n"
    "  name: str\n"
    "  reward_weights: dict[str, float]\n"
    "  num_desks: int = 1\n"
    "  def problems(self):\n"
    "    if self.num_desks < 1:\n"
    "      yield 'a desk is needed'\n"
    "DESK = SuiteKind(Mine, lambda settings: settings)\n"
    "other = 3\n"
  )
  monkeypatch.syspath_prepend(tmp_path)
  kind = find_suite("my_desk:DESK")
  config = toy_runs.make_config()
  with config.unlocked():
    config.environment = {
      "name": "my_desk:DESK",
      "reward_weights": {"success": 1.0},
      "num_desks": 2,
    }
  environment = read_settings(config).environment
  assert isinstance(environment, kind.settings)
  assert environment.num_desks == 2
  with pytest.raises(ValueError, match="other in my_desk is 3; expected"):
    find_suite("my_desk:other")


@pytest.mark.parametrize(
  ("name", "words"),
  [
    ("flight_bookin", "is 'flight_bookin'; expected flight_booking, "),
    ("nowhere:DESK", "there is no module nowhere; is its folder on PYTHONPATH"),
    ("json:DESK", "DESK in json is None; expected a SuiteKind"),
    (":", "is ':'; expected"),
  ],
)
def test_an_unknown_name_is_refused_with_those_there_are(name, words):
  config = toy_runs.make_config()
  config.environment.name = name
  with pytest.raises(config_lib.ConfigError, match="environment.name") as e:
    read_settings(config)
  assert words in str(e.value)


def test_the_function_of_an_environment_that_failed_is_said_last(monkeypatch):
  kind = SUITES["flight_booking"]
  settings = kind.settings()

  def fail(*unused):
    raise RuntimeError("no data")

  def last_line(call, *arguments):
    with pytest.raises((RuntimeError, TypeError)) as caught:
      call(*arguments)
    return "".join(traceback.format_exception(caught.value)).splitlines()[-1]

  def use(make):
    changed = SuiteKind(kind.settings, make)
    monkeypatch.setattr(suites, "SUITES", {settings.name: changed})

  # The last of them is what somebody writes who has nothing to show.
  broken = {"train_tasks": fail, "heldout_tasks": fail, "demonstrate": None}
  use(lambda found: dataclasses.replace(kind.make(found), **broken))
  made = suites.make_suite(settings)
  for name, arguments in (
    ("train_tasks", (0,)),
    ("heldout_tasks", (1, 0)),
    ("demonstrate", (1, 0, 1.0, False)),
  ):
    assert last_line(getattr(made, name), *arguments) == (
      "config.environment, whose name is 'flight_booking': its function"
      f" {name} failed, as shown above."
    )
  use(fail)
  assert "its function make failed" in last_line(suites.make_suite, settings)
  use(lambda found: None)
  with pytest.raises(config_lib.ConfigError, match="make returned None; expec"):
    suites.make_suite(settings)


@pytest.mark.parametrize("name", sorted(SUITES))
def test_a_key_of_another_environment_is_not_known(name):
  config = toy_runs.make_config()
  with config.unlocked():
    config.environment = {"name": name, "num_wheels": 4}
  with pytest.raises(config_lib.ConfigError, match="environment.num_wheels is"):
    read_settings(config)


@pytest.mark.parametrize("name", ["flight_booking", "code"])
def test_a_reward_of_any_episode_joins_those_of_the_environment(name):
  kind = find_suite(name)
  weights = {"success": 1.0, "three_axes": 0.5, "turns": -0.01}
  suite = kind.make(kind.settings(reward_weights=weights))
  assert set(suite.reward_fns) == {"three_axes"}
  with pytest.raises(ValueError, match=r"names \['speed'\]; the environment"):
    kind.make(kind.settings(reward_weights={"speed": 1.0}))
