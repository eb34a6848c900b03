"""Tests of the command that writes episodes to imitate."""

import asyncio
import contextlib
import importlib.util
import re
import types

import numpy as np
import pytest

from arl_jax import train
from arl_jax.actors.policy import Completion
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.run.parts import RunParts, assemble
from arl_jax.run.settings import read_settings
from arl_jax.synthesis.demonstrations import expert_transcripts
from arl_jax.synthesis.episode_dataset import open_episodes
from arl_jax.synthesis.episode_file import load_episodes
from arl_jax.synthesis.flight_experts import ExpertMix
from arl_jax.synthesis.replay import verify
from arl_jax.synthesize import Options, main, synthesize
from tests import toy_runs

CONFIG = "--config=configs/flight_booking.py:runlocal"


def run(capsys, *arguments):
  """The exit code, and what was printed."""
  code: object = 0
  try:
    main(["synthesize", CONFIG, *arguments])
  except SystemExit as end:
    code = end.code
  shown = capsys.readouterr()
  return code, shown.out, shown.err


@pytest.mark.parametrize(
  "method", ["experts", "recovery", "hindsight", "graph"]
)
def test_what_a_method_writes_is_verified_and_counted(method, tmp_path, capsys):
  path = tmp_path / "file.jsonl"
  code, shown, _ = run(
    capsys, f"--out={path}", f"--method={method}", "--number=60"
  )
  assert code == 0
  episodes = load_episodes(path)
  kept = [int(n) for n in re.findall(r"^  kept +(\d+)$", shown, re.MULTILINE)]
  assert kept[-1] == len(episodes) > 1
  assert f"written to {path}" in shown
  assert {episode.source for episode in episodes} == {method}
  for episode in episodes:
    assert asyncio.run(verify(episode, FlightBookingEnv))


def test_nothing_is_dropped_without_filters(tmp_path, capsys):
  path = tmp_path / "file.jsonl"
  run(capsys, f"--out={path}", "--number=24", "--filters=false")
  episodes = load_episodes(path)
  assert len(episodes) == 24
  assert {episode.success for episode in episodes} == {True, False}


@pytest.mark.skipif(
  importlib.util.find_spec("tensorflow_datasets") is None,
  reason="pip install 'arl-jax[data]'",
)
def test_a_folder_becomes_a_dataset_of_a_mix(tmp_path, capsys):
  code, shown, _ = run(
    capsys, f"--out={tmp_path / 'data'}", "--number=60", "--mix"
  )
  assert code == 0
  found = open_episodes(tmp_path / "data")
  counts = {
    name: int(number)
    for name, number in re.findall(r"(easy|mid|hard) +(\d+)", shown)
  }
  by_level = [sum(e.task.level == n for e in found) for n in (1, 2, 3, 4)]
  assert counts == {
    "easy": by_level[0],
    "mid": by_level[1] + by_level[2],
    "hard": by_level[3],
  }
  assert abs(counts["mid"] - len(found) / 2) < 1


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ([], "--out is missing"),
    (["--out=a.jsonl", "--number=0"], "--number=0"),
    (["--out=a.jsonl", "--method=magic"], "expected|should be one of"),
    (["--out=a.jsonl", "--method=rejection"], "--workdir is missing"),
    (["--out=a.jsonl", "--workdir=w"], "--method=experts plays no policy"),
    (["--out=README.md"], "--out is README.md, a file"),
    (["--out=a.jsonl", "--nubmer=3"], "nubmer"),
    (
      ["--out=a.jsonl", "--method=rejection", "--workdir=nowhere"],
      "nowhere/checkpoints does not exist",
    ),
  ],
)
def test_mistakes_on_the_command_line_are_said(arguments, message, capsys):
  code, _, shown = run(capsys, *arguments)
  assert code == 2
  assert shown.startswith("error: ")
  assert re.search(message, shown)


class Reciter:
  """A policy that plays an expert's actions: a careful one's as member 0.

  Member 1 is careless. Sessions are named `synthesis/ORDINAL/MEMBER`.
  """

  def __init__(self, tokenizer, tasks):
    self._tokenizer = tokenizer
    self._actions = {}
    for ordinal, task in enumerate(tasks):
      for member, careful in enumerate((1.0, 0.0)):
        (episode,) = expert_transcripts(
          [task], mix=ExpertMix(careful=careful), seed=ordinal
        )
        actions = iter([turn.action for turn in episode.turns])
        self._actions[f"synthesis/{ordinal}/{member}"] = actions

  async def __aenter__(self):
    return self

  async def __aexit__(self, *exc):
    pass

  async def generate(self, token_ids, *, sampling, session):
    ids = self._tokenizer.encode(next(self._actions[session]))
    ids.append(self._tokenizer.stop_ids[0])
    return Completion(
      token_ids=np.asarray(ids, np.int32),
      logprobs=np.zeros(len(ids), np.float32),
      policy_versions=np.zeros(len(ids), np.int32),
      finish_reason="stop",
    )

  def end_session(self, session):
    pass


@pytest.fixture(name="config", scope="module")
def make_config():
  return toy_runs.make_config(
    rollout__max_turns=12,
    rollout__max_tokens_per_turn=99,
    rollout__max_length=400,
    policy__vocab_size=700,
    environment__reward_weights={"success": 1.0, "turns": -0.125},
  )


@pytest.fixture(name="checkpoint")
def fake_checkpoint(config, monkeypatch):
  """A run whose policy is a reciter of 30 of its tasks."""
  monkeypatch.setattr("arl_jax.run.parts._NUM_TOKENIZER_EPISODES", 150)
  parts = assemble(read_settings(config))
  tasks = parts.suite.train_tasks(0)[:30]

  @contextlib.contextmanager
  def open_checkpoint(config, workdir):
    yield parts, types.SimpleNamespace(params=None), {"version": 0}

  monkeypatch.setattr(train, "open_checkpoint", open_checkpoint)
  monkeypatch.setattr(
    RunParts,
    "engine",
    lambda self, params, version: Reciter(parts.policy.tokenizer, tasks),
  )


def test_a_policys_successes_are_kept_and_its_failures_relabelled(
  config, checkpoint, tmp_path
):
  found = {}
  for method in ("rejection", "hindsight"):
    options = Options(
      out=str(tmp_path / f"{method}.jsonl"),
      method=method,
      workdir="run",
      number=30,
      num_samples=2,
      max_per_task=2 if method == "rejection" else 1,
      filters=False,
    )
    counts = synthesize(config, options)
    episodes = load_episodes(options.out)
    assert len(episodes) == counts[method]["kept"]
    for episode in episodes:
      assert episode.source == method
      assert episode.reward == 1.0 - 0.125 * len(episode.turns)
      assert asyncio.run(verify(episode, FlightBookingEnv))
    found[method] = counts, episodes
  (counts, episodes), (failed, relabelled) = found.values()
  assert counts["rejection"]["played"] == 60
  assert len({episode.task.task_id for episode in episodes}) == 30
  # What one of them leaves is what the other takes.
  num_failed = counts["rejection"]["rejected"]
  assert num_failed == failed["failures"]["kept"] > 5
  assert failed["hindsight"]["given"] == num_failed
  assert 0 < len(relabelled) < num_failed
