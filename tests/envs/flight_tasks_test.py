"""Tests of the task generator."""

import collections

import pytest

from arl_jax.envs import flight_json, flight_world
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.flight_expert import Habits, play_expert
from arl_jax.envs.flight_tasks import (
  LEVELS,
  SPLITS,
  generate_tasks,
  make_task,
  split_seed,
)
from arl_jax.envs.inline import run_inline

TASKS = generate_tasks(200, seed=0, split="heldout")


def play(task, **habits):
  return run_inline(
    play_expert(FlightBookingEnv(), task, habits=Habits(**habits))
  )


def test_the_careful_expert_always_succeeds():
  episodes = [play(task) for task in TASKS]
  assert all(episode.success for episode in episodes)
  assert max(len(episode.turns) for episode in episodes) <= 12


def test_tasks_are_fixed_by_their_seed():
  assert generate_tasks(8, seed=3, split="train") == generate_tasks(
    8, seed=3, split="train"
  )
  assert make_task(5, level=3) != make_task(8, level=3)


def test_no_two_splits_share_a_seed():
  seeds = {
    split: {
      split_seed(index, seed=seed, split=split)
      for seed in range(3)
      for index in (0, 1, 2, 2**20 - 1)
    }
    for split in SPLITS
  }
  assert all(len(found) == 12 for found in seeds.values())
  # Whatever the seed and index, the remainder tells the split.
  remainders = [{seed % 3 for seed in seeds[split]} for split in SPLITS]
  assert remainders == [{0}, {1}, {2}]
  assert {task.seed for task in TASKS} <= {
    split_seed(index, seed=0, split="heldout") for index in range(200)
  }


def test_levels_are_mixed_evenly_and_ids_are_unique():
  counts = collections.Counter(task.level for task in TASKS)
  assert counts == dict.fromkeys(LEVELS, 50)
  assert len({task.task_id for task in TASKS}) == 200


def test_every_case_exists():
  cases = collections.Counter(task.hidden["case"] for task in TASKS)
  assert (
    min(
      cases[name]
      for name in (
        "plain",
        "sold_out",
        "sold_between",
        "price_moved",
        "nothing_fits",
      )
    )
    >= 5
  )


def test_similar_names_exist_from_level_three():
  for task in TASKS:
    world, request = flight_json.read_hidden(task.hidden)
    first = request.passenger.split()[0]
    twins = [name for name in world.passengers if name.startswith(f"{first} ")]
    assert len(twins) == (2 if task.level >= 3 else 1)


def test_cases_are_what_they_say():
  for task in TASKS:
    world, request = flight_json.read_hidden(task.hidden)
    bests = []
    for turn in range(9):
      market = flight_world.market_at(world, turn)
      fitting = flight_world.fitting_flights(world, request, market=market)
      bests.append(fitting[0].number if fitting else None)
    case = task.hidden["case"]
    if case == "nothing_fits":
      assert bests[0] is None
    if case == "plain":
      assert len(set(bests)) == 1
    if case in ("sold_between", "price_moved"):
      assert len(set(bests)) > 1


def test_a_market_that_must_not_move_does_not():
  for task in generate_tasks(20, seed=1, split="train", moves=False):
    assert task.hidden["world"]["events"] == []


def test_the_easier_world():
  tasks = generate_tasks(
    20,
    seed=0,
    split="train",
    levels=(1, 2),
    num_flights=3,
    kinds=("cheapest",),
    moves=False,
  )
  for task in tasks:
    world, request = flight_json.read_hidden(task.hidden)
    assert request.kind == "cheapest"
    matching = [
      flight
      for flight in world.flights
      if (flight.origin, flight.date) == (request.origin, request.dates[0])
      and flight.destination == request.destination
    ]
    assert len(matching) == 3


def test_drilled_worlds_sell_out_more():
  def sold_out(drill):
    return sum(
      fare[1] == 0
      for task in generate_tasks(60, seed=0, split="warmup", drill=drill)
      for flight in task.hidden["world"]["flights"]
      for fare in flight["fares"].values()
    )

  assert sold_out(drill=True) > 1.5 * sold_out(drill=False)


@pytest.mark.parametrize(
  ("options", "problem"),
  [
    ({"level": 5}, "level is 5"),
    ({"level": 1, "num_flights": 1}, "num_flights is 1; expected 2 to 8"),
    ({"level": 1, "kinds": ("nicest",)}, "expected some of"),
    ({"level": 1, "kinds": ()}, "expected some of"),
  ],
)
def test_bad_options_are_explained(options, problem):
  with pytest.raises(ValueError, match=problem):
    make_task(0, **options)


def test_bad_splits_are_explained():
  with pytest.raises(ValueError, match="split is 'test'"):
    split_seed(0, seed=0, split="test")
  with pytest.raises(ValueError, match="index is 1048576"):
    split_seed(2**20, seed=0, split="train")
  with pytest.raises(ValueError, match="levels is empty"):
    generate_tasks(1, seed=0, split="train", levels=())
