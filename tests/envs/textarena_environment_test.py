"""Tests of the games of TextArena: chance, opponents, rewards."""

import asyncio
from collections.abc import Sequence
import importlib
import importlib.util
import random

import pytest

from arl_jax.envs import check, textarena_environment
from arl_jax.envs.textarena_environment import (
  TextArenaEnv,
  gold_actions,
  make_task,
  random_listed_move,
)
from arl_jax.episode import Task

HAS_TEXTARENA = importlib.util.find_spec("textarena") is not None
needs_textarena = pytest.mark.skipif(
  not HAS_TEXTARENA, reason=textarena_environment.INSTALL
)


async def _play(task: Task, actions: Sequence[str], seed: int = 0, **options):
  """Returns the score and all that was shown."""
  environment = TextArenaEnv(**options)
  shown = [m.content for m in await environment.reset(task, seed=seed)]
  for action in actions:
    result = await environment.step(action)
    shown += [message.content for message in result.observations]
    if result.terminated:
      break
  return await environment.score(), shown


def _score(task: Task, actions: Sequence[str], **options):
  return asyncio.run(_play(task, actions, **options))[0]


@pytest.mark.parametrize(
  ("observation", "moves"),
  [
    ("Board\n\nAvailable Moves: '[0]', '[4]'", {"[0]", "[4]"}),
    ("Valid: [1]\nMoved.\nYour available actions are: '[bet]'", {"[bet]"}),
  ],
)
def test_random_opponent_takes_the_moves_that_are_listed_last(
  observation, moves
):
  generator = random.Random(0)
  found = {random_listed_move(observation, generator) for _ in range(50)}
  assert found == moves


@pytest.mark.parametrize("text", ["Board: [1] [2]", "Available moves: none"])
def test_random_opponent_needs_a_list_of_moves(text):
  with pytest.raises(ValueError, match="does not list the possible moves"):
    random_listed_move(text, random.Random(0))


def test_tasks_say_who_plays():
  task = make_task("Nim-v0", num_players=2, player=1, options={"piles": [1]})
  assert task.task_id == "Nim-v0 piles=[1] seed=0 player=1"
  with pytest.raises(ValueError, match="num_players is 3"):
    make_task("Nim-v0", num_players=3)
  with pytest.raises(ValueError, match="player is 1"):
    make_task("Nim-v0", player=1)


def test_missing_package_is_named_with_how_to_install_it(monkeypatch):
  def refuse(name):
    raise ModuleNotFoundError(name="textarena")

  monkeypatch.setattr(importlib, "import_module", refuse)
  with pytest.raises(ModuleNotFoundError, match="pip install textarena"):
    _score(make_task("Nim-v0"), [])


@needs_textarena
def test_solutions_win_and_others_do_not():
  for task in textarena_environment.example_tasks():
    actions = gold_actions(task)
    assert _score(task, actions) == {
      "success": 1.0,
      "reward": 1.0,
      "bad_reward": 0.0,
    }
    assert _score(task, actions[:-1])["success"] == 0
    assert _score(task, ["nonsense", *actions[:-1]])["success"] == 0


@needs_textarena
def test_wrong_moves_get_less_than_1():
  guess = make_task("GuessTheNumber-v0", seed=1)
  hidden = int(gold_actions(guess)[-1].strip("[]"))
  wrong = [f"[{n}]" for n in range(1, 21) if n != hidden]
  assert 0 < _score(guess, wrong)["reward"] < 1
  tower = make_task("TowerOfHanoi-v0")
  swapped = [a[0] + a[3] + a[2] + a[1] + a[4] for a in gold_actions(tower)]
  assert _score(tower, swapped)["reward"] < 1


@needs_textarena
def test_reward_that_is_a_text_counts_as_nothing():
  task = make_task("Countdown-v0")
  assert _score(task, ["no move", "again no move"]) == {
    "success": 0.0,
    "reward": 0.0,
    "bad_reward": 1.0,
  }


@needs_textarena
def test_only_news_is_shown_and_no_action_of_ones_own():
  task = make_task("TowerOfHanoi-v0")
  _, shown = asyncio.run(_play(task, gold_actions(task)[:2]))
  assert "You are playing Tower of Hanoi" in shown[0]
  assert all("You are playing" not in text for text in shown[1:])
  assert all("[A C]" not in text for text in shown[1:])
  assert shown[1].startswith("You moved disk 1 from A to C.")


def _lowest_free(observation: str, generator: random.Random) -> str:
  del generator
  return observation.rpartition("Available Moves: '")[2].split("'")[0]


@needs_textarena
def test_scripted_opponent_plays_the_other_side():
  first = make_task("TicTacToe-v0", num_players=2)
  # The opponent takes 0, 1, then 3.
  winning = ["[2]", "[4]", "[6]"]
  score, shown = asyncio.run(_play(first, winning, opponent=_lowest_free))
  assert score["reward"] == score["success"] == 1
  assert "Player 1: [0]" in shown[1]
  assert "Player 0: [2]" not in shown[1]
  losing = ["[4]", "[3]", "[8]"]  # the opponent takes 0, 1 and 2
  assert _score(first, losing, opponent=_lowest_free)["reward"] == -1
  second = make_task("TicTacToe-v0", num_players=2, player=1)
  score, shown = asyncio.run(
    _play(second, ["[2]", "[4]", "[6]"], opponent=_lowest_free)
  )
  assert "Player 0: [0]" in shown[0]
  assert score["success"] == 1


@needs_textarena
def test_opponents_chance_comes_from_the_episode_and_the_games_from_the_task():
  poker = make_task("KuhnPoker-v0", num_players=2, seed=3)
  actions = ["[check]", "[call]", "[bet]", "[fold]"] * 6

  def shown(task: Task, seed: int):
    return asyncio.run(_play(task, actions, seed=seed))

  cards = [
    shown(make_task("KuhnPoker-v0", num_players=2, seed=s), 0)[1][0]
    for s in range(12)
  ]
  assert len(set(cards)) > 2
  games = [shown(poker, seed) for seed in range(12)]
  assert games == [shown(poker, seed) for seed in range(12)]
  assert len({str(game) for game in games}) > 2


@needs_textarena
def test_episodes_at_once_draw_alone_and_leave_the_global_generator_alone():
  """Blackjack deals with Python's global generator in every step."""
  tasks = [make_task("Blackjack-v0", seed=seed) for seed in range(8)]
  actions = ["[hit]", "[stand]"] * 12
  alone = [asyncio.run(_play(task, actions)) for task in tasks]
  assert len({str(game) for game in alone}) == len(tasks)

  async def play_all():
    return await asyncio.gather(*(_play(task, actions) for task in tasks))

  random.seed(7)
  before = random.getstate()
  assert asyncio.run(play_all()) == alone
  assert random.getstate() == before


@needs_textarena
def test_what_cannot_be_played_is_named():
  with pytest.raises(ValueError, match="'Chesss-v0'"):
    _score(make_task("Chesss-v0"), [])
  with pytest.raises(ValueError, match="Nim has no solver"):
    gold_actions(make_task("Nim-v0"))
  environment = TextArenaEnv()
  with pytest.raises(RuntimeError, match="reset"):
    asyncio.run(environment.step("[1]"))

  async def go_on():
    task = make_task("TowerOfHanoi-v0", options={"num_disks": 1})
    await environment.reset(task, seed=0)
    assert (await environment.step("[A C]")).terminated
    await environment.step("[A C]")

  with pytest.raises(RuntimeError, match="the game is over"):
    asyncio.run(go_on())


@needs_textarena
def test_opponent_that_makes_no_valid_move_loses():
  task = make_task("TicTacToe-v0", num_players=2)
  score = _score(task, ["[0]"], opponent=lambda text, generator: "pass")
  assert score["success"] == 1


@needs_textarena
def test_check_command_holds_all_checks(capsys):
  name = "arl_jax.envs.textarena_environment:TextArenaEnv"
  assert check.main([name]) == 0
  assert "success is 1 on 8 tasks" in capsys.readouterr().out
