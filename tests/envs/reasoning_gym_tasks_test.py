import asyncio
import importlib.util
import random
import string

import pytest

from arl_jax.envs import reasoning_gym_tasks
from arl_jax.envs.check import check_environment
from arl_jax.envs.environment_checks import CheckStatus
from arl_jax.envs.reasoning_gym_tasks import (
  DATASETS,
  ReasoningEnv,
  ReasoningJudge,
  gold_answer,
  reasoning_tasks,
  score_answer,
)

if importlib.util.find_spec("reasoning_gym") is None:
  pytest.skip("needs pip install 'arl-jax[reasoning]'", allow_module_level=True)


def play(task, action):
  async def main():
    environment = ReasoningEnv()
    await environment.reset(task, seed=0)
    assert (await environment.step(action)).terminated
    return await environment.score()

  return asyncio.run(main())


@pytest.mark.parametrize("name", DATASETS)
def test_gold_scores_one_and_garbage_nothing(name):
  rng = random.Random(name)
  tasks = reasoning_tasks(name, 6, seed=1)
  others = reasoning_tasks(name, 6, seed=2, split="heldout")
  for task, other in zip(tasks, others, strict=True):
    gold = gold_answer(task)
    for action in (f"I think\n<answer>{gold}</answer>", gold):
      found = play(task, action)
      assert found == {"success": 1.0, "score": 1.0, "answered": 1.0}
    for garbage in (
      "",
      "".join(rng.choices(string.ascii_lowercase, k=12)),
      " ".join(rng.choices(("stone", "blue", "maybe", "under"), k=4)),
      gold * 5000,
    ):
      if garbage != gold:
        assert score_answer(task, garbage) == 0.0, garbage
    for garbage in ("0", "1", "x", "[]"):
      assert score_answer(task, garbage) in (0.0, 1.0)
    if gold_answer(other) != gold:
      assert 0.0 <= score_answer(task, gold_answer(other)) <= 1.0
  wrong = [
    score_answer(task, gold_answer(other))
    for task in tasks
    for other in others
    if gold_answer(other) != gold_answer(task)
  ]
  assert wrong
  assert sum(one == 1.0 for one in wrong) <= 0.2 * len(wrong)


def test_part_of_the_score_is_above_the_floor():
  (task,) = reasoning_tasks("countdown", 1, seed=3)
  metadata = task.hidden["entry"]["metadata"]
  assert task.hidden["floor"] == 0.05
  numbers = " + ".join(map(str, metadata["numbers"]))
  assert score_answer(task, numbers) in (0.0, 1.0)
  assert score_answer(task, gold_answer(task)) == 1.0
  (task,) = reasoning_tasks("mini_sudoku", 1, seed=3)
  gold = gold_answer(task)
  near = ("1" if gold[0] != "1" else "2") + gold[1:]
  assert 0.0 < score_answer(task, near) < 1.0
  assert play(task, near)["success"] == 0.0


@pytest.mark.parametrize(
  "answer",
  [
    "__import__('os').mkdir('{}')",
    "open('{}', 'w')",
    "9 ** 9 ** 9 ** 9",
    "9 // 0",
    "(" * 201,
  ],
)
def test_an_answer_is_not_run_as_code(answer, tmp_path):
  (task,) = reasoning_tasks("countdown", 1, seed=0)
  path = tmp_path / "made"
  assert score_answer(task, answer.format(path)) == 0.0
  assert not path.exists()


def test_splits_share_no_seeds_and_seeds_draw_other_tasks():
  drawn = {
    (split, seed): [
      task.seed for task in reasoning_tasks("gcd", 50, seed=seed, split=split)
    ]
    for split in ("train", "heldout")
    for seed in (0, 1)
  }
  assert len({one for seeds in drawn.values() for one in seeds}) == 200
  train = [
    one for (split, _), s in drawn.items() if split == "train" for one in s
  ]
  heldout = set().union(*(s for (k, _), s in drawn.items() if k == "heldout"))
  assert max(train) < min(heldout)
  again = reasoning_tasks("gcd", 50, seed=1)
  assert again == reasoning_tasks("gcd", 50, seed=1)
  assert [task.seed for task in again] == drawn["train", 1]


def test_options_change_the_problems():
  options = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
  (task,) = reasoning_tasks("chain_sum", 1, seed=0, options=options)
  assert task.prompt.count(" + ") + task.prompt.count(" - ") == 1
  assert score_answer(task, gold_answer(task)) == 1.0


def test_judge_takes_the_answer_alone():
  (task,) = reasoning_tasks("chain_sum", 1, seed=0)
  judge = ReasoningJudge()
  for answer, expected in ((gold_answer(task), 1.0), ("words", 0.0)):
    found = asyncio.run(judge.judge(task, answer))
    assert found == {"success": expected, "score": expected}


def test_environment_passes_its_check():
  tasks = reasoning_tasks("chain_sum", 2, seed=0)
  results = check_environment(
    ReasoningEnv,
    tasks,
    gold_actions=lambda task: [f"<answer>{gold_answer(task)}</answer>"],
  )
  assert [one for one in results if one.status != CheckStatus.OK] == []


def test_last_answer_counts_and_one_action_ends_it():
  (task,) = reasoning_tasks("chain_sum", 1, seed=0)
  gold = gold_answer(task)
  found = play(task, f"<answer>no</answer> <answer>{gold}</answer>")
  assert found["success"] == 1.0
  assert play(task, "") == {"success": 0.0, "score": 0.0, "answered": 0.0}

  async def twice():
    environment = ReasoningEnv(show_usage=False)
    assert len(await environment.reset(task, seed=0)) == 1
    await environment.step("")
    await environment.step("")

  with pytest.raises(RuntimeError, match="one action"):
    asyncio.run(twice())


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"name": "puzzle24"}, "name is 'puzzle24'; expected one of aiw"),
    ({"split": "test"}, "split is 'test'"),
    ({"options": {"size_of": 3}}, "expected what chain_sum takes"),
    ({"options": {"min_terms": -1}}, "expected what chain_sum takes"),
  ],
)
def test_wrong_arguments_are_named(arguments, message):
  arguments = {"name": "chain_sum", **arguments}
  with pytest.raises(ValueError, match=message):
    reasoning_tasks(arguments.pop("name"), 1, seed=0, **arguments)


def test_missing_package_is_named(monkeypatch):
  monkeypatch.setitem(__import__("sys").modules, "reasoning_gym", None)
  with pytest.raises(ModuleNotFoundError, match=r"arl-jax\[reasoning\]"):
    reasoning_gym_tasks.reasoning_tasks("gcd", 1, seed=0)
