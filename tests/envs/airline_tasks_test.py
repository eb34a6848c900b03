"""Tests of the airline's tasks: generated ones, and those of tau2-bench."""

import json

import pytest

from arl_jax.envs.airline_gold import gold_of
from arl_jax.envs.airline_requests import read_request
from arl_jax.envs.airline_tasks import (
  KINDS,
  SPLITS,
  TaskSource,
  split_of,
)
from arl_jax.envs.airline_tau import tau_tasks
from tests.envs import airline_package

DATA = airline_package.load()
SOURCE = TaskSource(DATA)


def test_splits_share_no_customer_and_no_reservation():
  seen = {}
  for split in SPLITS:
    requests = [
      read_request(task.prompt)
      for task in SOURCE.tasks(600, seed=3, split=split)
    ]
    assert {split_of(request.user_id) for request in requests} == {split}
    seen[split] = {request.user_id for request in requests} | {
      request.reservation_id for request in requests if request.reservation_id
    }
    assert len(seen[split]) > 100
  assert not seen["train"] & seen["heldout"]
  assert not seen["train"] & seen["warmup"]
  assert not seen["warmup"] & seen["heldout"]


def test_tasks_are_the_same_again_and_hold_what_is_to_be_copied():
  tasks = SOURCE.tasks(300, seed=0, split="train")
  assert tasks == SOURCE.tasks(300, seed=0, split="train")
  assert tasks != SOURCE.tasks(300, seed=1, split="train")
  assert len({task.task_id for task in tasks}) == 300
  for task in tasks:
    request = read_request(task.prompt)
    assert request.write() == task.prompt
    assert request.kind in KINDS[task.level]
    json.dumps(dict(task.hidden))
    for call in gold_of(task).calls:
      if call.name == "book_reservation":
        assert str(call.arguments["user_id"]) in task.prompt
        (payment,) = call.arguments["payment_methods"]
        assert payment["payment_id"] in task.prompt
      else:
        copied = [value for value in call.arguments.values() if value]
        assert all(str(value) in task.prompt for value in copied)


def test_a_drill_has_more_conditions_that_do_not_hold():
  def share_declined(drill):
    tasks = TaskSource(DATA, levels=(2,)).tasks(
      400, seed=0, split="warmup", drill=drill
    )
    asked = [t for t in tasks if read_request(t.prompt).kind == "cancel_if"]
    return sum(len(gold_of(t).calls) == 1 for t in asked) / len(asked)

  assert share_declined(True) > share_declined(False) + 0.1


def test_levels_and_sentences_are_checked():
  with pytest.raises(ValueError, match=r"levels is \(1, 4\)"):
    TaskSource(DATA, levels=(1, 4))
  with pytest.raises(ValueError, match="'hello' is no request"):
    read_request("hello")


def test_tau_tasks_keep_the_split_of_the_package():
  train, test, base = (
    {task.task_id for task in tau_tasks(DATA, split=split)}
    for split in ("train", "test", "base")
  )
  assert (len(train), len(test)) == (30, 20)
  assert not train & test
  assert train | test == base
  with pytest.raises(ValueError, match="split is 'dev'"):
    tau_tasks(DATA, split="dev")


def test_a_scripted_prompt_holds_the_reason_alone():
  (shown, *_), (hidden, *_) = (
    tau_tasks(DATA, split="train", user=user) for user in ("prompt", "scripted")
  )
  assert "emma_kim_9957" in shown.prompt
  assert "emma_kim_9957" not in hidden.prompt
  assert hidden.prompt.startswith("I want to cancel reservation EHGLP3.")
  script = gold_of(hidden).script
  assert script is not None
  assert script.facts == ("I am Emma Kim.", "My user id is emma_kim_9957.")
