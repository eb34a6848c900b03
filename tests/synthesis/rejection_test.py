"""Tests of rejection sampling."""

import asyncio

import pytest

from arl_jax.episode import Episode, EpisodeStatus, Message, Task, Turn
from arl_jax.synthesis.rejection import rejection_sample

TASKS = [Task(task_id=name, prompt=name) for name in "abc"]
# By task and member: what the policy says. "+" succeeds, "!" does not finish.
SAID = {
  "a": ["x+", "y", "x+", "z+", "w+"],
  "b": ["x", "y", "z", "!", "!"],
  "c": ["!", "!", "!", "!", "!"],
}


async def play(task, ordinal, member):
  assert TASKS[ordinal] is task
  await asyncio.sleep(0)
  text = SAID[task.task_id][member]
  failed = text == "!"
  return Episode(
    task=task,
    member=member,
    status=EpisodeStatus.FAILED if failed else EpisodeStatus.TERMINATED,
    rows=(),
    prompt=(Message(role="user", content=task.prompt),),
    turns=(Turn(action=text, finish_reason="stop"),),
    reward_components={"success": float(text.endswith("+"))},
  )


def sample(**options):
  return asyncio.run(rejection_sample(play, TASKS, num_samples=5, **options))


def test_the_first_different_successes_are_kept_and_all_are_counted():
  result = sample(max_per_task=2)
  assert [e.actions for e in result.episodes] == [("x+",), ("z+",)]
  assert result.counts == {
    "played": 15,
    "unfinished": 7,
    "rejected": 4,
    "same_actions": 1,
    "surplus": 1,
    "kept": 2,
  }
  assert result.success_rates == {"a": 0.8, "b": 0.0}
  first = result.episodes[0]
  assert first.source == "rejection"
  assert first.turns[0].observations[0].content == "a"


def test_a_verifier_of_ones_own_decides():
  result = sample(accept=lambda e: e.turns[0].action == "y", max_per_task=9)
  assert [e.task.task_id for e in result.episodes] == ["a", "b"]
  assert [e.success for e in result.episodes] == [False, False]


def test_no_more_than_the_bound_run_at_once():
  running, most = 0, 0

  async def watch(task, ordinal, member):
    nonlocal running, most
    running += 1
    most = max(most, running)
    episode = await play(task, ordinal, member)
    running -= 1
    return episode

  asyncio.run(rejection_sample(watch, TASKS, num_samples=5, max_concurrent=4))
  assert most == 4


def test_what_was_played_by_a_stop_is_kept():
  stop = asyncio.Event()
  played = []

  async def get_stuck(task, ordinal, member):
    if task.task_id == "b" or member > 2:
      await asyncio.Event().wait()
    episode = await play(task, ordinal, member)
    played.append(episode)
    if len(played) == 6:
      stop.set()
    return episode

  async def work():
    return await rejection_sample(
      get_stuck, TASKS, num_samples=5, max_per_task=9, stop=stop.wait
    )

  result = asyncio.run(asyncio.wait_for(work(), 30))
  assert [e.actions for e in result.episodes] == [("x+",)]
  assert result.counts["played"] == 6
  assert result.counts["unfinished"] == 3
  assert result.success_rates == {"a": 2 / 3}


def test_what_playing_raises_ends_it():
  async def fail(task, ordinal, member):
    if task.task_id == "b":
      raise RuntimeError("broken")
    await asyncio.Event().wait()
    return await play(task, ordinal, member)

  async def work():
    await rejection_sample(
      fail, TASKS, num_samples=1, stop=asyncio.Event().wait
    )

  with pytest.raises(ExceptionGroup, match="unhandled errors") as found:
    asyncio.run(asyncio.wait_for(work(), 30))
  assert "broken" in str(found.value.exceptions[0])


def test_bad_arguments_are_named():
  with pytest.raises(ValueError, match="max_per_task is 0"):
    sample(max_per_task=0)
  with pytest.raises(ValueError, match="two tasks share a task_id"):
    asyncio.run(rejection_sample(play, TASKS * 2, num_samples=1))
