"""The stream of tasks."""

import pytest

from arl_jax.actors.tasks import TaskSource
from arl_jax.episode import Task

TASKS = [Task(task_id=str(i), prompt="") for i in range(7)]


def names(source, ordinals):
  return [source.task_at(ordinal).task_id for ordinal in ordinals]


def test_each_epoch_is_another_permutation():
  source = TaskSource(TASKS, seed=0)
  epochs = [tuple(names(source, range(7 * e, 7 * e + 7))) for e in range(5)]
  assert all(sorted(epoch) == list("0123456") for epoch in epochs)
  assert len(set(epochs)) == 5
  assert epochs[0] != tuple("0123456")


def test_a_restored_cursor_goes_on_exactly_there():
  straight = names(TaskSource(TASKS, seed=3), range(40))
  for cursor in (0, 6, 7, 23):
    resumed = names(TaskSource(TASKS, seed=3), range(cursor, 40))
    assert straight[:cursor] + resumed == straight


def test_any_order_of_questions_has_the_same_answers():
  source = TaskSource(TASKS, seed=3)
  there = names(source, range(30))
  back = names(source, reversed(range(30)))
  assert there == back[::-1]


def test_seeds_give_other_orders():
  assert names(TaskSource(TASKS, seed=0), range(7)) != (
    names(TaskSource(TASKS, seed=1), range(7))
  )


def test_bad_arguments():
  with pytest.raises(ValueError, match="at least one task"):
    TaskSource([], seed=0)
  with pytest.raises(ValueError, match="ordinal is -1"):
    TaskSource(TASKS, seed=0).task_at(-1)
