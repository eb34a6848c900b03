"""Tests of calls that run at once, and of answers that are kept."""

import asyncio

import pytest

from arl_jax.envs.tool_batch import ToolCache, run_at_once
from arl_jax.envs.tool_environment import (
  ToolEnvironment,
  answer_tool_calls,
  step_result,
)
from arl_jax.envs.tool_schema import tool_from_function
from arl_jax.envs.tools import RunStatus, ToolError
from arl_jax.episode import Task, ToolCall
from arl_jax.text.tool_calls import render_tool_call


def call(name, **arguments):
  return render_tool_call(
    ToolCall(name=name, arguments=arguments), style="hermes"
  )


def answer(action, tools, **options):
  """Answers an action; a test of waiting ends after a minute at the latest."""

  async def run():
    async with asyncio.timeout(60):
      named = {tool.name: tool for tool in tools}
      return await answer_tool_calls(action, named, style="hermes", **options)

  return asyncio.run(run())


def meeting(number):
  """Returns a tool whose calls wait until `number` of them run."""
  state = {"running": 0, "most": 0, "order": []}
  everyone = asyncio.Event()

  async def meet(who: str) -> str:
    """Waits for the others."""
    state["running"] += 1
    state["most"] = max(state["most"], state["running"])
    state["order"].append(who)
    if state["running"] >= number:
      everyone.set()
    await everyone.wait()
    await asyncio.sleep(0)
    state["running"] -= 1
    return who

  return tool_from_function(meet, timeout_seconds=60.0), state


def test_calls_of_a_turn_run_at_once_and_answer_in_the_order_of_the_text():
  tool, state = meeting(4)
  names = ["a", "b", "c", "d"]
  action = "".join(call("meet", who=name) for name in names)
  results = answer(action, [tool], parallel=True)
  assert [result.text for result in results] == names
  assert state["most"] == 4


def test_answers_keep_the_order_of_the_text_when_the_last_ends_first():
  ended = []
  last = asyncio.Event()

  async def first() -> str:
    """Waits for the last."""
    await last.wait()
    ended.append("first")
    return "1"

  async def second() -> str:
    """Lets the first go on."""
    ended.append("second")
    last.set()
    return "2"

  tools = [tool_from_function(first), tool_from_function(second)]
  results = answer(call("first") + call("second"), tools, parallel=True)
  assert [result.text for result in results] == ["1", "2"]
  assert ended == ["second", "first"]


def test_no_more_than_the_limit_run_at_once():
  tool, state = meeting(2)
  action = "".join(call("meet", who=str(number)) for number in range(6))
  results = answer(action, [tool], parallel=True, max_concurrent=2)
  assert [result.text for result in results] == [*"012345"]
  assert state["most"] == 2


def test_waiting_for_a_place_is_not_counted_as_the_tools_time():
  async def work() -> str:
    """Takes a while."""
    await asyncio.sleep(0.02)
    return "done"

  tool = tool_from_function(work, timeout_seconds=5.0)
  # One after the other they take longer than any one of them may.
  results = answer(call("work") * 5, [tool], parallel=True, max_concurrent=1)
  assert {result.status for result in results} == {"ok"}


@pytest.mark.parametrize("parallel", [True, False])
def test_a_call_that_fails_or_is_late_harms_no_sibling(parallel):
  async def hang() -> str:
    """Never answers (verl#1948)."""
    await asyncio.Event().wait()
    return ""

  async def fail() -> str:
    """Breaks."""
    raise KeyError("row")

  def refuse() -> str:
    """Says no."""
    raise ToolError("no")

  async def leave() -> str:
    """Cancels itself."""
    raise asyncio.CancelledError

  async def fine(n: int) -> int:
    """Answers."""
    await asyncio.sleep(0)
    return n

  tools = [
    tool_from_function(function, timeout_seconds=seconds)
    for function, seconds in [
      (hang, 0.02),
      (fail, 60.0),
      (refuse, 60.0),
      (leave, 60.0),
      (fine, 60.0),
    ]
  ]
  action = "".join(
    [
      call("fine", n=1),
      call("hang"),
      call("fail"),
      "<tool_call>{</tool_call>",
      call("refuse"),
      call("leave"),
      call("fine", n="2"),
      call("gone"),
      call("fine", n=3),
    ]
  )
  results = answer(action, tools, parallel=parallel)
  assert [result.status for result in results] == [
    "ok",
    "timeout",
    "failed",
    "malformed_json",
    "refused",
    "failed",
    "bad_arguments",
    "unknown_tool",
    "ok",
  ]
  assert (results[0].text, results[-1].text) == ("1", "3")


def test_cancelling_a_turn_cancels_all_its_calls():
  cancelled = []

  async def hang(who: str) -> str:
    """Never answers."""
    try:
      await asyncio.Event().wait()
    except asyncio.CancelledError:
      cancelled.append(who)
      raise
    return ""

  async def run():
    tools = {"hang": tool_from_function(hang)}
    action = call("hang", who="a") + call("hang", who="b")
    turn = asyncio.ensure_future(
      answer_tool_calls(action, tools, style="hermes", parallel=True)
    )
    for _ in range(10):
      await asyncio.sleep(0)
    turn.cancel()
    await asyncio.wait([turn], timeout=60)
    assert turn.cancelled()

  asyncio.run(run())
  assert sorted(cancelled) == ["a", "b"]


def test_a_limit_below_one_is_refused():
  with pytest.raises(ValueError, match="max_concurrent is 0"):
    asyncio.run(run_at_once([], max_concurrent=0))
  with pytest.raises(ValueError, match="max_concurrent is 0"):
    ToolEnvironment([], lambda task, actions: {}, max_concurrent=0)


def counting(**options):
  runs = []

  async def look(key: str, depth: int = 1) -> str:
    """Looks a row up."""
    runs.append((key, depth))
    await asyncio.sleep(0)
    if key == "refused":
      raise ToolError("no such row")
    if key == "broken":
      raise KeyError(key)
    return f"{key}{depth}"

  options = {"idempotent": True, "cache": True, "max_retries": 0} | options
  return tool_from_function(look, cost=0.5, **options), runs


@pytest.mark.parametrize("parallel", [True, False])
def test_an_equal_call_is_answered_from_the_cache_and_costs_nothing(parallel):
  tool, runs = counting()
  action = (
    call("look", key="a", depth=1)
    + call("look", depth=1, key="a")
    + call("look", key="b")
    + call("look", key="a")
  )
  results = answer(action, [tool], parallel=parallel)
  assert [result.text for result in results] == ["a1", "a1", "b1", "a1"]
  # A default that is written out makes another call.
  assert [result.cached for result in results] == [False, True, False, False]
  assert [result.cost for result in results] == [0.5, 0.0, 0.5, 0.5]
  assert len(runs) == 3
  assert step_result(results).rewards["tool_cost"] == 1.5


@pytest.mark.parametrize("key", ["refused", "broken"])
def test_what_is_no_answer_is_not_kept(key):
  tool, runs = counting()
  results = answer(call("look", key=key) * 2, [tool], parallel=True)
  assert len(runs) == 2
  assert not any(result.cached for result in results)
  assert [result.cost for result in results] == [0.5, 0.5]


def test_only_tools_that_say_so_are_kept():
  tool, runs = counting(cache=False)
  answer(call("look", key="a") * 2, [tool])
  assert len(runs) == 2


def test_arguments_that_are_equal_in_python_alone_are_not_equal():
  def show(value: float) -> str:
    """Prints."""
    return repr(value)

  tool = tool_from_function(show, idempotent=True, cache=True)

  async def run():
    cache = ToolCache()
    one = await cache.run(tool, {"value": 1})
    other = await cache.run(tool, {"value": 1.0})
    again = await cache.run(tool, {"value": 1})
    return one, other, again

  one, other, again = asyncio.run(run())
  assert (one.text, other.text, again.text) == ("1", "1.0", "1")
  assert (one.cached, other.cached, again.cached) == (False, False, True)
  assert (again.status, again.num_attempts) == (RunStatus.OK, 0)


def test_a_cache_belongs_to_one_episode():
  tool, runs = counting()

  async def run():
    environments = [
      ToolEnvironment([tool], lambda task, actions: {}) for _ in range(2)
    ]
    steps = []
    for environment in [*environments, environments[0]]:
      await environment.reset(Task(task_id="t", prompt=""), seed=0)
      for _ in range(2):
        steps.append(await environment.step(call("look", key="a")))
    steps.append(await environments[0].step("done"))
    return steps

  costs = [step.rewards["tool_cost"] for step in asyncio.run(run())]
  assert costs == [0.5, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0]
  assert len(runs) == 3


def test_cost_counts_each_call_that_ran_once():
  tries = []

  async def flaky() -> str:
    """Works the second time."""
    tries.append(1)
    if len(tries) == 1:
      raise OSError("lost")
    return "ok"

  tool = tool_from_function(
    flaky, idempotent=True, cost=2.0, backoff_seconds=0.0
  )
  ran, refused = answer(call("flaky") + call("flaky", x=1), [tool])
  assert (ran.status, ran.cost, len(tries)) == ("ok", 2.0, 2)
  assert (refused.status, refused.cost) == ("bad_arguments", 0.0)


def test_options_that_cannot_work_are_explained():
  def look() -> str:
    """Looks."""
    return ""

  with pytest.raises(ValueError, match="cost of look is -1; expected 0 or"):
    tool_from_function(look, cost=-1)
  with pytest.raises(ValueError, match="look has cache=True and idempotent=F"):
    tool_from_function(look, cache=True)
