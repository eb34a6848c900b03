"""Tests of running tools that answer, refuse, break and hang."""

import asyncio
import sys
import threading

import pytest

from arl_jax.envs.tools import RunStatus, Tool, ToolError, run_tool

NO_PARAMETERS = {"type": "object", "properties": {}}


def make_tool(function, **options):
  return Tool(
    name="t",
    description="d",
    parameters=options.pop("parameters", NO_PARAMETERS),
    function=function,
    **options,
  )


def run(tool, arguments=None):
  return asyncio.run(run_tool(tool, arguments or {}))


def refuse():
  raise ToolError("no such row")


def break_down():
  raise KeyError("row")


async def break_down_late():
  raise TimeoutError("its own")


def leave():
  sys.exit(3)


async def hang():
  await asyncio.Event().wait()


@pytest.mark.parametrize("inline", [True, False])
def test_a_plain_function_answers(inline):
  tool = make_tool(
    lambda n: n + 1,
    parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
    inline=inline,
  )
  answer = run(tool, {"n": 2})
  assert (answer.status, answer.text) == (RunStatus.OK, "3")
  answer = run(tool, {"n": "2"})
  assert answer.status == RunStatus.BAD_ARGUMENTS
  assert answer.text == "error: n must be integer"


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
  ("function", "status", "text"),
  [
    (refuse, "refused", "error: no such row"),
    (break_down, "failed", "error: t failed with KeyError: 'row'"),
    (break_down_late, "failed", "error: t failed with TimeoutError: its own"),
    (leave, "failed", "error: t failed with SystemExit: 3"),
  ],
)
def test_a_failure_is_an_observation(function, inline, status, text):
  answer = run(make_tool(function, inline=inline))
  assert (answer.status, answer.text) == (status, text)


def test_a_coroutine_that_hangs_times_out():
  answer = run(make_tool(hang, timeout_seconds=0.01))
  assert answer.status == RunStatus.TIMEOUT
  assert answer.text == "error: t took longer than 0.01 seconds"


def test_a_thread_that_hangs_times_out_and_does_not_hold_the_loop():
  release = threading.Event()
  # asyncio.run returns although the tool is still waiting.
  answer = run(make_tool(release.wait, timeout_seconds=0.01))
  assert answer.status == RunStatus.TIMEOUT
  release.set()


def test_a_blocking_tool_does_not_block_its_siblings():
  barrier = threading.Barrier(4)  # passes only if all four run at once

  async def run_four():
    tool = make_tool(lambda: barrier.wait(5), timeout_seconds=10)
    return await asyncio.gather(*(run_tool(tool, {}) for _ in range(4)))

  answers = asyncio.run(run_four())
  assert {answer.status for answer in answers} == {RunStatus.OK}


def test_cancelling_the_episode_passes_through():
  async def cancel():
    task = asyncio.create_task(run_tool(make_tool(hang), {}))
    await asyncio.sleep(0)
    task.cancel()
    await task

  with pytest.raises(asyncio.CancelledError):
    asyncio.run(cancel())


def test_a_bad_declaration_is_explained():
  with pytest.raises(ValueError, match="expected one word"):
    Tool(name="a b", description="", parameters=NO_PARAMETERS, function=refuse)
  with pytest.raises(ValueError, match="need type 'object'"):
    make_tool(refuse, parameters={})
  with pytest.raises(ValueError, match="expected a positive number"):
    make_tool(refuse, timeout_seconds=0)


def test_the_schema_is_the_usual_one():
  assert make_tool(refuse).schema == {
    "type": "function",
    "function": {
      "name": "t",
      "description": "d",
      "parameters": NO_PARAMETERS,
    },
  }
