"""Tests of tools of MCP servers, against servers that are processes."""

import asyncio
import contextlib
import os
import subprocess
import sys

import pytest

from arl_jax.envs.mcp_tools import McpServerError, mcp_tools
from arl_jax.envs.tool_environment import ToolEnvironment
from arl_jax.envs.tools import RunStatus, run_tool
from arl_jax.episode import Task, ToolCall
from arl_jax.text.tool_calls import render_tool_call

SERVER = '''
import asyncio
import os
import sys

import pydantic
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("test")
calls = []


class Place(pydantic.BaseModel):
  city: str
  zip: str | None = None


@server.tool()
def add(a: int, b: int = 1) -> int:
  """Adds two numbers."""
  calls.append("add")
  return a + b


@server.tool()
def fail(why: str) -> str:
  """Fails."""
  raise ToolError(f"because {why}")


@server.tool()
async def hang() -> str:
  """Never answers."""
  try:
    await asyncio.Event().wait()
  except asyncio.CancelledError:
    calls.append("hang was cancelled")
    raise
  return ""


@server.tool()
async def dream() -> str:
  """Never answers, either."""
  return await hang()


@server.tool()
def history() -> str:
  """Tells what was called."""
  return ", ".join(calls) or "nothing"


@server.tool()
def show(where: Place) -> str:
  """Shows a place."""
  return f"{where.city} {where.zip} {os.environ.get('MODE')}"


@server.tool()
def process() -> int:
  """Tells the server's process id."""
  return os.getpid()


@server.tool()
def chatter(size: int) -> str:
  """Writes to stderr."""
  print("x" * size, file=sys.stderr, flush=True)
  return "written"


@server.tool()
async def die() -> str:
  """Ends the server."""
  await asyncio.sleep(0.2)  # others may come meanwhile
  print("out of memory", file=sys.stderr, flush=True)
  os._exit(3)


server.run("stdio")
'''


@pytest.fixture(name="sdk", scope="module")
def need_sdk():
  return pytest.importorskip(
    "mcp", reason='needs the package mcp; pip install "arl-jax[mcp]"'
  )


@pytest.fixture(name="command", scope="module")
def write_server(sdk, tmp_path_factory):
  path = tmp_path_factory.mktemp("mcp") / "server.py"
  path.write_text(SERVER, encoding="utf-8")
  return [sys.executable, str(path)]


@contextlib.asynccontextmanager
async def serving(command, **options):
  """Gives a function that calls a tool of a server by name."""
  async with asyncio.timeout(120), mcp_tools(command, **options) as tools:
    by_name = {tool.name: tool for tool in tools}

    async def call(name, **arguments):
      return await run_tool(by_name[name], arguments)

    yield call, by_name


async def is_alive(process_id):
  """Returns whether a process lives; waits a while for its end."""
  for _ in range(200):
    try:
      os.kill(process_id, 0)
    except ProcessLookupError:
      return False
    await asyncio.sleep(0.05)
  return True


def test_a_servers_tools_are_tools(command):
  async def run():
    options = {"add": {"cost": 0.5, "idempotent": True, "cache": True}}
    async with serving(
      command, env={"MODE": "test"}, options=options, timeout_seconds=60.0
    ) as (call, tools):
      add = tools["add"]
      assert add.description == "Adds two numbers."
      assert add.parameters == {
        "type": "object",
        "properties": {
          "a": {"type": "integer"},
          "b": {"type": "integer", "default": 1},
        },
        "required": ["a"],
      }
      assert (add.cost, add.timeout_seconds) == (0.5, 60.0)
      assert (await call("add", a=2)).text == "3"
      wrong = await call("add", a="2")
      assert wrong.text == "error: a must be integer"
      refused = await call("fail", why="of rain")
      assert refused.status == RunStatus.REFUSED
      assert "because of rain" in refused.text
      wrong = await call("show", where={"zip": "1"})
      assert wrong.text == "error: missing argument where.city"
      shown = await call("show", where={"city": "Rome"})
      assert shown.text == "Rome None test"
      assert (await call("history")).text == "add"
      process_id = int((await call("process")).text)
    assert not await is_alive(process_id)
    ended = await call("add", a=2)
    assert ended.status == RunStatus.FAILED
    assert "the MCP server was stopped; its block has ended" in ended.text

  asyncio.run(run())


def test_a_call_that_hangs_is_late_and_holds_up_nobody(command):
  """A tool that hangs must not stop the others (verl#1948)."""

  async def run():
    options = {"dream": {"timeout_seconds": 0.2}}
    async with serving(command, options=options) as (call, _):
      late, *others = await asyncio.gather(
        call("dream"), *(call("add", a=n) for n in range(8))
      )
      assert late.status == RunStatus.TIMEOUT
      assert [other.text for other in others] == [str(n + 1) for n in range(8)]
      # The server was told, so that it can stop working.
      for _ in range(200):
        if "hang was cancelled" in (await call("history")).text:
          break
        await asyncio.sleep(0.02)
      else:
        pytest.fail("the server goes on with a call that was given up")

  asyncio.run(run())


def test_a_cancelled_episode_takes_its_call_with_it_and_no_more(command):
  async def run():
    async with serving(command, timeout_seconds=60.0) as (call, tools):
      episode = asyncio.ensure_future(call("hang"))
      assert (await call("add", a=1)).text == "2"
      episode.cancel()
      await asyncio.wait([episode])
      assert episode.cancelled()
      assert (await call("add", a=1)).text == "2"
      # Calls of other event loops would wait for ever.
      other = await asyncio.to_thread(lambda: asyncio.run(call("add", a=1)))
      assert other.status == RunStatus.FAILED
      assert "started on another event loop" in other.text
      # What the server logs does not fill the disk.
      for _ in range(3):
        await call("chatter", size=1_500_000)
      connection = tools["add"].function.args[0]._connection
      await call("add", a=1)
      assert os.fstat(connection._stderr.fileno()).st_size < 1_500_000

  asyncio.run(run())


def test_an_environment_plays_with_a_servers_tools(command):
  async def run():
    async with asyncio.timeout(120), mcp_tools(command, prefix="my_") as tools:
      environment = ToolEnvironment(
        [tool for tool in tools if tool.name in ("my_add", "my_fail")],
        lambda task, actions: {"success": float(actions[-1] == "3")},
        parallel=True,
      )
      prompt = await environment.reset(Task(task_id="t", prompt="?"), seed=0)
      assert '"name": "my_add"' in prompt[0].content
      calls = [
        ToolCall(name="my_fail", arguments={"why": "not"}),
        ToolCall(name="my_add", arguments={"a": 2}),
      ]
      action = "".join(render_tool_call(c, style="hermes") for c in calls)
      step = await environment.step(action)
      failed, added = [message.content for message in step.observations]
      assert failed.startswith("error: ")
      assert added == "3"
      await environment.step("3")
      return await environment.score()

  assert asyncio.run(run()) == {"success": 1.0}


def test_the_end_of_a_server_is_told_with_its_cause(command):
  async def run():
    async with serving(command, timeout_seconds=60.0) as (call, _):
      answers = [*await asyncio.gather(call("die"), call("hang"))]
      answers.append(await call("add", a=1))
    return answers

  for answer in asyncio.run(run()):
    assert answer.status == RunStatus.FAILED
    assert answer.text.endswith(
      "McpServerError: the MCP server has ended; it said: out of memory"
    )


def test_a_server_may_be_started_again(command):
  async def run():
    options = {
      "add": {"idempotent": True, "backoff_seconds": 0.0, "max_retries": 1}
    }
    async with serving(
      command, max_restarts=2, options=options, timeout_seconds=60.0
    ) as (call, _):
      assert (await call("add", a=1)).text == "2"
      assert (await call("die")).status == RunStatus.FAILED
      # It comes back without what it kept.
      assert (await call("history")).text == "nothing"
      process_id = int((await call("process")).text)
      os.kill(process_id, 9)
      assert not await is_alive(process_id)
      # This call finds out, and is then run by the new server.
      assert (await call("add", a=1)).text == "2"
      process_id = int((await call("process")).text)
      # There is no third time.
      _, hung = await asyncio.gather(call("die"), call("hang"))
      assert hung.status == RunStatus.FAILED
      assert (await call("add", a=1)).status == RunStatus.FAILED
      assert not await is_alive(process_id)

  asyncio.run(run())


@pytest.mark.parametrize(
  ("command", "problem"),
  [
    (["no-such-program-here"], "FileNotFoundError"),
    (
      [sys.executable, "-c", "raise SystemExit('no licence')"],
      "failed with .*; it said: no licence",
    ),
    ([sys.executable, "-c", ""], "failed with .*; it said nothing"),
  ],
)
def test_a_server_that_does_not_start_says_why(sdk, command, problem):
  async def run():
    async with asyncio.timeout(120), mcp_tools(command):
      pytest.fail("it started")

  with pytest.raises(McpServerError, match=problem):
    asyncio.run(run())


def test_a_silent_server_is_given_up(sdk):
  code = "import sys; print('busy', file=sys.stderr); sys.stdin.read()"

  async def run():
    async with mcp_tools(
      [sys.executable, "-c", code], start_timeout_seconds=0.5
    ):
      pytest.fail("it started")

  with pytest.raises(McpServerError, match="list its tools within 0.5 seconds"):
    asyncio.run(asyncio.wait_for(run(), 120))


@pytest.mark.parametrize(
  ("arguments", "problem"),
  [
    ({"command": "python server.py"}, "command is 'python server.py'"),
    ({"command": []}, "expected a list of the program"),
    ({"command": ["x"], "max_restarts": -1}, "max_restarts is -1"),
  ],
)
def test_wrong_arguments_are_explained(arguments, problem):
  async def run():
    async with mcp_tools(**arguments):
      pytest.fail("it started")

  with pytest.raises(ValueError, match=problem):
    asyncio.run(run())


def test_options_of_tools_that_are_not_there_are_explained(command):
  async def run():
    async with mcp_tools(command, options={"sub": {"cost": 1.0}}):
      pytest.fail("it started")

  with pytest.raises(ValueError, match=r"options has \['sub'\]; .*'add'"):
    asyncio.run(run())


def test_the_sdk_is_imported_only_when_it_is_needed():
  code = (
    "import sys; import arl_jax.envs.mcp_tools; sys.exit('mcp' in sys.modules)"
  )
  assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_missing_sdk_is_said_with_its_cure(monkeypatch):
  monkeypatch.setitem(sys.modules, "mcp", None)

  async def run():
    async with mcp_tools(["x"]):
      pytest.fail("it started")

  with pytest.raises(ValueError, match=r'pip install "arl-jax\[mcp\]"'):
    asyncio.run(run())
