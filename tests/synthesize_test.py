"""Tests of the command that writes episodes to imitate."""

import asyncio
from collections.abc import Awaitable, Callable
import contextlib
import importlib.util
import os
import re
import signal
import types

import pytest

from arl_jax import train
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.run.imitation import prepare_batches, synthetic_row
from arl_jax.run.parts import RunParts, assemble
from arl_jax.run.settings import read_settings
from arl_jax.synthesis.demonstrations import expert_transcripts
from arl_jax.synthesis.episode_dataset import open_episodes
from arl_jax.synthesis.episode_file import load_episodes
from arl_jax.synthesis.flight_experts import ExpertMix
from arl_jax.synthesis.replay import verify
from arl_jax.synthesize import Options, main, synthesize
from tests import toy_runs
from tests.actors import fakes

CONFIG = "--config=configs/flight_booking.py:runlocal"


@pytest.fixture(autouse=True, scope="module")
def small_tokenizer():
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr("arl_jax.run.parts._NUM_TOKENIZER_EPISODES", 150)
    yield


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


def test_what_was_written_can_be_trained_on(tmp_path, capsys, caplog):
  path = tmp_path / "file.jsonl"
  options = ("--method=recovery", "--number=60")
  _, shown, _ = run(capsys, f"--out={path}", *options)
  assert "longer than config.rollout.max_length, 224 tokens" in caplog.text
  caplog.clear()
  config = toy_runs.make_config(warmup__episodes=str(path))
  settings = read_settings(config)
  parts = assemble(settings)
  limit = settings.rollout.max_length

  def length(episode):
    return len(
      synthetic_row(episode, chat=parts.chat, tokenizer=parts.policy.tokenizer)
    )

  batches = prepare_batches(
    settings.warmup,
    parts.suite,
    chat=parts.chat,
    tokenizer=parts.policy.tokenizer,
    max_length=limit,
    max_observation_chars=settings.rollout.max_observation_chars,
    step_timeout_seconds=settings.rollout.step_timeout_seconds,
    seed=0,
  )
  assert max(map(len, next(batches))) <= limit
  # The warm start leaves none of them out, and says so otherwise.
  assert not caplog.text
  all_of_them = tmp_path / "all.jsonl"
  run(capsys, f"--out={all_of_them}", *options, "--filters=false")
  long = [
    episode
    for episode in load_episodes(all_of_them)
    if length(episode) > limit and episode.num_calls <= 8
  ]
  assert len(long) > 5
  assert re.search(rf"too_many_tokens +{len(long)}\n", shown)


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
    (["--out=README.md"], "--out is README.md, a file that is there"),
    (["--out=README.md/a.jsonl"], "can be written in .*README.md; name"),
    (["--out=README.md/data"], "can be written in .*README.md; name|'arl-jax"),
    (["--out=a.json"], "expected a file that ends in .jsonl, or the folder"),
    (["--out=a.jsonl", "--num_samples=2"], "without --workdir no policy"),
    (["--out=a.jsonl", "--max_per_task=2"], "that is for rejection"),
    (
      ["--out=a.jsonl", "--mix", "--config.environment.levels=(1,2)"],
      r"config.environment.levels is \(1, 2\); name 3 levels or more",
    ),
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


def test_a_file_that_is_there_is_not_replaced(tmp_path, capsys):
  path = tmp_path / "file.jsonl"
  path.write_text("mine")
  code, _, shown = run(capsys, f"--out={path}", "--number=2")
  assert code == 2
  assert f"--out is {path}, a file that is there already; delete it" in shown
  assert path.read_text() == "mine"


def test_an_interrupt_leaves_nothing_and_says_so(tmp_path, capsys, monkeypatch):
  def interrupt(*args, **kwargs):
    raise KeyboardInterrupt

  monkeypatch.setattr("arl_jax.run.synthesizers.make_experts", interrupt)
  path = tmp_path / "file.jsonl"
  code, _, shown = run(capsys, f"--out={path}")
  assert code == 130
  assert shown.split("\n")[1:] == [
    f"nothing was written to {path}",
    "interrupted",
    "",
  ]
  assert not list(tmp_path.iterdir())


class Reciter:
  """A policy that plays an expert's actions: a careful one's as member 0.

  Member 1 is careless. Sessions are named `synthesis/ORDINAL/MEMBER`.
  """

  # Awaited with the session before each action.
  on_generate: Callable[[str], Awaitable[None]] | None = None
  # Said instead.
  always = ""

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
    if self.on_generate is not None:
      await self.on_generate(session)
    text = self.always or next(self._actions[session])
    ids = self._tokenizer.encode(text)
    return fakes.stopped([*ids, self._tokenizer.stop_ids[0]])

  def end_session(self, session):
    pass


@pytest.fixture(name="config", scope="module")
def make_config():
  return toy_runs.make_config(
    rollout__max_turns=12,
    rollout__max_tokens_per_turn=99,
    rollout__max_length=400,
    policy__vocab_size=700,
    environment__num_train_tasks=30,
    environment__reward_weights={"success": 1.0, "turns": -0.125},
  )


@pytest.fixture(name="parts", scope="module")
def make_parts(config):
  return assemble(read_settings(config))


@pytest.fixture(name="checkpoint")
def fake_checkpoint(parts, monkeypatch, tmp_path):
  """A run whose policy is a reciter of 30 of its tasks."""
  tasks = parts.suite.train_tasks(0)
  parts.policy.tokenizer.save(tmp_path / "run" / "tokenizer")

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
      workdir=str(tmp_path / "run"),
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


def test_the_first_interrupt_keeps_what_a_policy_has_played(
  config, checkpoint, tmp_path, monkeypatch, capsys
):
  async def get_stuck(session):
    if session == "synthesis/10/0":
      os.kill(os.getpid(), signal.SIGINT)
    if int(session.split("/")[1]) >= 10:
      await asyncio.Event().wait()

  monkeypatch.setattr(Reciter, "on_generate", staticmethod(get_stuck))
  path = tmp_path / "file.jsonl"
  options = Options(
    out=str(path),
    method="rejection",
    workdir=str(tmp_path / "run"),
    number=30,
    num_samples=2,
  )
  counts = synthesize(config, options)
  assert "once more to stop at once" in capsys.readouterr().out
  assert counts["rejection"]["played"] < 60
  episodes = load_episodes(path)
  assert 0 < len(episodes) == counts["filters"]["kept"] <= 10


@pytest.mark.parametrize(
  ("method", "said"),
  [
    (
      "rejection",
      "none of the episodes that the policy of {run} played succeeded"
      " (rejection: 6 played, 6 rejected). Train it for longer, or give it more"
      " tries with --num_samples or --number.",
    ),
    (
      "hindsight",
      "no failure achieved what another request asks for (failures: 6 played,"
      " 3 same_actions, 3 kept; hindsight: 3 given, 3 achieved_nothing). Play"
      " more with --number, or take the failures of another policy with"
      " --workdir.",
    ),
  ],
)
def test_that_a_policy_solves_nothing_is_said_in_a_line(
  method, said, checkpoint, tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(Reciter, "always", "I do not know.")
  run_folder = tmp_path / "run"
  path = tmp_path / "file.jsonl"
  code, _, shown = run(
    capsys,
    f"--method={method}",
    f"--out={path}",
    f"--workdir={run_folder}",
    "--number=3",
    "--num_samples=2",
  )
  assert code == 2
  said = said.format(run=run_folder)
  assert shown == f"error: nothing was written to {path}: {said}\n"
  assert not path.exists()
