"""Tests of running tools that answer, refuse, break and hang."""

import asyncio
import sys
import threading

import pytest

from arl_jax.envs import off_loop
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


def run(tool, arguments=None, **options):
  return asyncio.run(run_tool(tool, arguments or {}, **options))


def refuse():
  raise ToolError("no such row")


def break_down():
  raise KeyError("row")


async def break_down_late():
  raise TimeoutError("its own")


def leave():
  sys.exit(3)


def panic():
  raise BaseException("rust")


def cancel_itself():
  raise asyncio.CancelledError


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
    (panic, "failed", "error: t failed with BaseException: rust"),
  ],
)
def test_a_failure_is_an_observation(function, inline, status, text):
  answer = run(make_tool(function, inline=inline))
  assert (answer.status, answer.text) == (status, text)


@pytest.mark.parametrize("inline", [True, False])
def test_a_tool_that_cancels_itself_has_failed(inline):
  answer = run(make_tool(cancel_itself, inline=inline))
  assert answer.status == RunStatus.FAILED
  assert "CancelledError" in answer.text

  async def cancel_a_part():
    part = asyncio.ensure_future(hang())
    part.cancel()
    await part

  answer = run(make_tool(cancel_a_part, inline=inline))
  assert answer.text == "error: t failed with CancelledError"


def test_an_interrupt_in_a_thread_is_a_failure_of_its_tool():
  def interrupt():
    raise KeyboardInterrupt

  answer = run(make_tool(interrupt))
  assert answer.text == (
    "error: t failed with RuntimeError: tool-t raised KeyboardInterrupt"
  )
  with pytest.raises(KeyboardInterrupt):  # it may be that of the terminal
    run(make_tool(interrupt, inline=True))


class Unreadable(ToolError):
  def __str__(self):
    raise ValueError("no text")


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
  ("result", "text"),
  [
    (b"caf\xc3\xa9", "caf\u00e9"),
    (b"\xff\xfe ok", "\ufffd\ufffd ok"),
    (bytearray(b"ab"), "ab"),
    (memoryview(b"ab"), "ab"),
    (None, "None"),
    ({"a": 1}, "{'a': 1}"),
    (Unreadable(), "error: t failed with ValueError: no text"),
  ],
)
def test_any_result_becomes_text(result, text, inline):
  assert run(make_tool(lambda: result, inline=inline)).text == text

  async def later():
    return result

  assert run(make_tool(later)).text == text


def test_a_refusal_without_a_readable_text_is_a_refusal():
  def function():
    raise Unreadable

  answer = run(make_tool(function))
  assert answer.status == RunStatus.REFUSED
  assert answer.text == "error: <no readable text>"


def test_an_argument_may_have_any_name():
  names = ["name", "function", "tool", "arguments"]
  tool = make_tool(
    lambda **arguments: sorted(arguments),
    parameters={"type": "object", "properties": {n: {} for n in names}},
  )
  answer = run(tool, dict.fromkeys(names, 1))
  assert answer.text == str(sorted(names))


def test_a_function_may_return_what_can_be_awaited():
  async def later():
    return "late"

  assert run(make_tool(lambda: later())).text == "late"


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


def test_no_thread_left_is_an_observation(monkeypatch):
  monkeypatch.setattr(off_loop, "MAX_CALLS_ALIVE", off_loop.num_calls_alive())
  answer = run(make_tool(lambda: "fine"))
  assert answer.status == RunStatus.FAILED
  assert "failed with TooManyCallsError" in answer.text


class Flaky:
  """Ends its calls one after the other as listed."""

  def __init__(self, *endings):
    self.endings = list(endings)
    self.num_calls = 0

  async def run(self):
    ending = self.endings[self.num_calls]
    self.num_calls += 1
    if ending == "hang":
      await hang()
    if isinstance(ending, BaseException):
      raise ending
    return ending


class Clock:
  """Notes the waits instead of waiting."""

  def __init__(self):
    self.waits = []

  async def sleep(self, seconds):
    self.waits.append(seconds)


def test_only_an_idempotent_tool_is_run_again():
  flaky = Flaky(KeyError("a"), "fine")
  answer = run(make_tool(flaky.run))
  assert answer.status == RunStatus.FAILED
  assert (flaky.num_calls, answer.num_attempts) == (1, 1)


@pytest.mark.parametrize(
  ("draw", "waits"), [(0.0, [0.1, 0.2, 0.4]), (1.0, [0.05, 0.1, 0.2])]
)
def test_retries_wait_twice_as_long_each_time(draw, waits):
  flaky, clock = Flaky(*[KeyError("a")] * 3, "fine"), Clock()
  tool = make_tool(flaky.run, idempotent=True, max_retries=3)
  answer = run(tool, sleep=clock.sleep, draw=lambda: draw)
  assert (answer.status, answer.text) == (RunStatus.OK, "fine")
  assert answer.num_attempts == flaky.num_calls == 4
  assert clock.waits == pytest.approx(waits)


def test_each_attempt_has_the_time_limit_and_the_last_one_is_the_answer():
  flaky, clock = Flaky("hang", KeyError("a"), "hang"), Clock()
  tool = make_tool(flaky.run, idempotent=True, timeout_seconds=0.005)
  answer = run(tool, sleep=clock.sleep)
  assert answer.status == RunStatus.TIMEOUT
  assert answer.num_attempts == flaky.num_calls == 3
  assert len(clock.waits) == 2


def test_what_was_late_once_may_answer():
  flaky = Flaky("hang", "fine")
  tool = make_tool(
    flaky.run, idempotent=True, timeout_seconds=0.05, backoff_seconds=0.0
  )
  assert run(tool).num_attempts == 2


def test_a_refusal_is_final():
  flaky, clock = Flaky(ToolError("no"), "fine"), Clock()
  answer = run(make_tool(flaky.run, idempotent=True), sleep=clock.sleep)
  assert (answer.status, answer.num_attempts) == (RunStatus.REFUSED, 1)
  flaky = Flaky("fine")
  answer = run(
    make_tool(
      flaky.run,
      idempotent=True,
      parameters={"type": "object", "properties": {"n": {}}, "required": ["n"]},
    ),
    sleep=clock.sleep,
  )
  assert (answer.status, answer.num_attempts) == (RunStatus.BAD_ARGUMENTS, 0)
  assert flaky.num_calls == 0
  assert clock.waits == []


@pytest.mark.parametrize("inline", [True, False])
def test_every_attempt_gets_the_arguments_of_the_policy(inline):
  seen = []

  def function(rows):
    seen.append(list(rows))
    rows.append("changed")
    raise KeyError("a")

  tool = make_tool(
    function,
    parameters={"type": "object", "properties": {"rows": {"type": "array"}}},
    inline=inline,
    idempotent=True,
    backoff_seconds=0.0,
  )
  run(tool, {"rows": ["a"]})
  assert seen == [["a"]] * 3


def test_cancelling_the_episode_ends_the_retries():
  async def main():
    waiting = asyncio.Event()
    flaky = Flaky(KeyError("a"), "fine")

    async def sleep(seconds):
      waiting.set()
      await hang()

    tool = make_tool(flaky.run, idempotent=True)
    task = asyncio.create_task(run_tool(tool, {}, sleep=sleep))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
      await task
    return flaky.num_calls

  assert asyncio.run(main()) == 1


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
  with pytest.raises(ValueError, match="max_retries of t is -1; expected 0"):
    make_tool(refuse, max_retries=-1)
  for seconds in (-1.0, float("nan"), float("inf")):
    with pytest.raises(ValueError, match="backoff_seconds of t is"):
      make_tool(refuse, backoff_seconds=seconds)


def test_the_schema_is_the_usual_one():
  assert make_tool(refuse).schema == {
    "type": "function",
    "function": {
      "name": "t",
      "description": "d",
      "parameters": NO_PARAMETERS,
    },
  }
