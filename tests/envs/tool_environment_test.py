"""Tests of the step that answers tool calls in text."""

import asyncio
import threading

import pytest

from arl_jax.envs.tool_environment import ToolEnvironment
from arl_jax.envs.tools import Tool
from arl_jax.episode import Task, ToolCall
from arl_jax.text.tool_calls import render_tool_call

NUMBERS = {
  "type": "object",
  "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
  "required": ["a", "b"],
}
ADD = Tool(
  name="add",
  description="Add.",
  parameters=NUMBERS,
  function=lambda a, b: a + b,
  inline=True,
)


async def hang():
  await asyncio.Event().wait()


HANG = Tool(
  name="hang",
  description="Never returns.",
  parameters={"type": "object"},
  function=hang,
  timeout_seconds=0.01,
)


def plain_judge(task, actions):
  return {"success": float(actions[-1] == task.hidden["answer"])}


async def judge(task, actions):
  return plain_judge(task, actions)


def call(name, **arguments):
  return render_tool_call(
    ToolCall(name=name, arguments=arguments), style="hermes"
  )


def play(actions, *, judge=judge, **options):
  async def run():
    environment = ToolEnvironment([ADD, HANG], judge, **options)
    task = Task(task_id="t", prompt="1+2?", hidden={"answer": "3"})
    prompt = await environment.reset(task, seed=0)
    steps = [await environment.step(action) for action in actions]
    return prompt, steps, await environment.score()

  return asyncio.run(run())


def test_an_episode_of_calls_and_an_answer():
  prompt, (step, last), score = play([call("add", a=1, b=2), "3"])
  assert [message.role for message in prompt] == ["system", "user"]
  assert '"name": "add"' in prompt[0].content
  assert [m.content for m in step.observations] == ["3"]
  assert step.observations[0].role == "tool"
  assert not step.terminated
  assert last.terminated
  assert last.observations == ()
  assert score == {"success": 1.0}


def test_one_bad_call_never_loses_its_siblings():
  action = "".join(
    [
      call("add", a=1, b=2),
      "<tool_call>{</tool_call>",
      call("sub", a=1, b=2),
      call("add", a=1),
      call("hang"),
      call("add", a=3, b=4),
      "<tool_call>",
    ]
  )
  _, (step,), _ = play([action])
  texts = [message.content for message in step.observations]
  assert texts[0] == "3"
  assert texts[1].startswith("error: invalid JSON")
  assert texts[2] == "error: no tool sub; use add, hang"
  assert texts[3] == "error: missing argument b"
  assert texts[4] == "error: hang took longer than 0.01 seconds"
  assert texts[5] == "7"
  assert texts[6] == "error: <tool_call> without </tool_call>"
  assert (step.num_tool_calls, step.num_tool_errors) == (7, 5)
  assert step.rewards == {"turns": 1.0, "tool_errors": 5.0}
  assert not step.terminated


@pytest.mark.parametrize("parallel", [False, True])
def test_no_more_calls_of_a_turn_run_than_may(parallel):
  ran = []
  note = Tool(
    name="note",
    description="Notes.",
    parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
    function=lambda n: ran.append(n),
    inline=True,
  )
  calls = "<tool_call>{</tool_call>" + "".join(
    call("note", n=n) for n in range(50)
  )

  async def step(**options):
    environment = ToolEnvironment([note], judge, parallel=parallel, **options)
    await environment.reset(Task(task_id="t", prompt=""), seed=0)
    return await environment.step(calls)

  found = asyncio.run(step())
  assert ran == [*range(15)]
  assert [message.content for message in found.observations[16:]] == [
    "error: the rest was not run: an action may have at most 16 calls"
  ]
  assert (found.num_tool_calls, found.num_tool_errors) == (17, 2)
  assert not found.terminated
  asyncio.run(step(max_calls_per_turn=2))
  assert ran[15:] == [0]


def test_compact_style_reads_numbers():
  prompt, (step, _), score = play(
    ["add 1 | 2", "3"], style="compact", show_tools=False
  )
  assert [message.content for message in prompt] == ["1+2?"]
  assert step.observations[0].content == "3"
  assert score["success"] == 1.0


@pytest.mark.parametrize(
  "judge", [judge, plain_judge, lambda *args: judge(*args)]
)
def test_a_judge_may_be_plain_or_a_coroutine(judge):
  assert play(["3"], judge=judge)[2] == {"success": 1.0}
  assert play(["4"], judge=judge)[2] == {"success": 0.0}


def test_plain_judges_run_at_once():
  """A slow reward must not hold up the others (trl#6238, Relax#180)."""
  barrier = threading.Barrier(16)  # opens only while all sixteen run

  def slow(task, actions):
    barrier.wait(60)
    return {"success": 1.0}

  async def run_one():
    environment = ToolEnvironment([ADD], slow)
    await environment.reset(Task(task_id="t", prompt=""), seed=0)
    return await environment.score()

  async def run_all():
    return await asyncio.gather(*(run_one() for _ in range(16)))

  assert asyncio.run(run_all()) == [{"success": 1.0}] * 16


@pytest.mark.parametrize("plain", [True, False])
def test_a_bug_in_the_judge_is_not_hidden(plain):
  def broken_plain(task, actions):
    raise KeyError("gold")

  async def broken(task, actions):
    raise KeyError("gold")

  async def run():
    environment = ToolEnvironment([ADD], broken_plain if plain else broken)
    await environment.reset(Task(task_id="t", prompt=""), seed=0)
    await environment.score()

  with pytest.raises(KeyError, match="gold"):
    asyncio.run(run())


def test_misuse_is_explained():
  with pytest.raises(ValueError, match="max_calls_per_turn is 0; expected 1"):
    ToolEnvironment([ADD], judge, max_calls_per_turn=0)
  with pytest.raises(ValueError, match="two tools share a name"):
    ToolEnvironment([ADD, ADD], judge)
  with pytest.raises(RuntimeError, match="reset"):
    asyncio.run(ToolEnvironment([ADD], judge).score())
