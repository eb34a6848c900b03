"""Tools of an MCP server, which runs as a process beside the training."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
import contextlib
import functools
import os
import shlex
import tempfile
from typing import Any

from arl_jax.envs.guarded_call import describe_error
from arl_jax.envs.mcp_schemas import content_text, supported_schema
from arl_jax.envs.tools import Tool, ToolError

# Of what a server writes to stderr, which says why it ended.
_MAX_STDERR_BYTES = 4096
# A server that logs every call would fill the disk.
_MAX_STDERR_FILE_BYTES = 1 << 20
# Pages of tools that are read; a server may go on for ever.
_MAX_PAGES = 100


class McpServerError(RuntimeError):
  """The server could not be started, broke the protocol, or has ended."""


@contextlib.asynccontextmanager
async def mcp_tools(
  command: Sequence[str],
  *,
  env: Mapping[str, str] | None = None,
  cwd: str | None = None,
  prefix: str = "",
  start_timeout_seconds: float = 30.0,
  max_restarts: int = 0,
  options: Mapping[str, Mapping[str, Any]] | None = None,
  **common_options: Any,
) -> AsyncIterator[tuple[Tool, ...]]:
  """Starts an MCP server, and ends it with the block; gives its tools.

      async with mcp_tools(["python", "server.py"]) as tools:
        environment = ToolEnvironment(tools, judge)

  Calls may overlap. What the server refuses is an observation, and so is a
  call that takes longer than its tool's `timeout_seconds`; the server is told,
  and goes on for all others.

  If the server ends, calls under way and later ones are answered with an error
  that tells the cause: the end of what the server wrote to stderr. It is not
  started again by itself, because it would come back without what earlier
  calls had left in it, and episodes would go on in a wrong world unnoticed. A
  server that keeps nothing may have `max_restarts`: then the next call starts
  it again; one that was under way is run again only if its tool is idempotent.

  One server answers all episodes that use its tools. So what it keeps must
  belong to a session that is named in the arguments, or to nobody.

  Args:
    command: the program and its arguments. It speaks MCP on stdin and stdout.
    env: variables for it, besides a few that are safe to hand on, such as PATH.
    cwd: its folder; else that of this process.
    prefix: put in front of the names of its tools.
    start_timeout_seconds: time for starting it and listing its tools.
    max_restarts: how often it may be started again, over its whole life.
    options: of `Tool` for single tools, by the server's name for them.
    **common_options: of `Tool` for all, such as `timeout_seconds`.

  Yields:
    The tools, in the server's order. Of their schemas, rules that this library
    does not check are moved to the descriptions; the server checks them.

  Raises:
    ValueError: the package mcp is missing, or an argument is wrong.
    McpServerError: the server did not start, or did not list its tools.
  """
  if isinstance(command, str) or not command:
    raise ValueError(
      f"command is {command!r}; expected a list of the program and its"
      " arguments, such as ['python', 'server.py']"
    )
  if max_restarts < 0:
    raise ValueError(f"max_restarts is {max_restarts}; expected 0 or more")
  server = _Server(
    command,
    env=env,
    cwd=cwd,
    start_timeout_seconds=start_timeout_seconds,
    max_restarts=max_restarts,
  )
  async with contextlib.aclosing(server):
    listed = await server.start()
    by_name = dict(options or {})
    unknown = sorted(set(by_name) - {tool.name for tool in listed})
    if unknown:
      raise ValueError(
        f"options has {unknown}; the tools of {server.label} are"
        f" {[tool.name for tool in listed]}"
      )
    yield tuple(
      Tool(
        name=f"{prefix}{tool.name}",
        description=tool.description or tool.title or tool.name,
        parameters=supported_schema(tool.input_schema),
        function=functools.partial(_call, server, tool.name),
        **{**common_options, **by_name.get(tool.name, {})},
      )
      for tool in listed
    )


async def _call(server: "_Server", tool: str, /, **arguments: Any) -> str:
  return await server.call(tool, arguments)


def _import_sdk() -> Any:
  try:
    import mcp
  except ImportError as error:
    raise ValueError(
      'MCP servers need the package mcp; pip install "arl-jax[mcp]"'
    ) from error
  if not hasattr(mcp, "Client"):
    raise ValueError(
      'the package mcp is older than 2.0; pip install "arl-jax[mcp]"'
    )
  return mcp


class _Server:
  """A server process, its connection, and what is known of its end."""

  def __init__(
    self,
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: str | None,
    start_timeout_seconds: float,
    max_restarts: int,
  ):
    self._sdk = _import_sdk()
    self._parameters = self._sdk.StdioServerParameters(
      command=command[0],
      args=list(command[1:]),
      env=None if env is None else dict(env),
      cwd=cwd,
    )
    self.label = f"the MCP server `{shlex.join(command)}`"
    self._start_timeout_seconds = start_timeout_seconds
    self._restarts_left = max_restarts
    self._loop = asyncio.get_running_loop()
    self._restarting = asyncio.Lock()
    self._connection: _Connection | None = None

  async def start(self) -> Sequence[Any]:
    """Starts the process; returns its tools in the SDK's records."""
    connection = _Connection(self._sdk, self._parameters, self.label)
    try:
      async with asyncio.timeout(self._start_timeout_seconds):
        tools = await connection.open()
    except TimeoutError:
      await connection.close()
      raise McpServerError(
        f"{self.label} did not list its tools within"
        f" {self._start_timeout_seconds:g} seconds{connection.last_words()}"
      ) from None
    except BaseException:
      await connection.close()
      raise
    self._connection = connection
    return tools

  async def call(self, tool: str, arguments: dict[str, Any]) -> str:
    """Runs a tool; returns the observation.

    Raises:
      ToolError: the server refused.
      McpServerError: it has ended, or did while the tool ran.
    """
    if asyncio.get_running_loop() is not self._loop:
      raise McpServerError(
        f"{self.label} was started on another event loop; call its tools on"
        " the loop that mcp_tools was entered on"
      )
    connection = await self._living()
    connection.trim()
    try:
      result = await connection.client.call_tool(tool, arguments)
    except self._sdk.MCPError as error:
      if not connection.is_closed_by(error):
        raise ToolError(error.message) from error
      # The command and its folders are nothing for a policy to read.
      connection.ended = f"the MCP server has ended{connection.last_words()}"
      raise McpServerError(connection.ended) from error
    except Exception as error:
      if not connection.ended:
        raise
      raise McpServerError(connection.ended) from error
    text = content_text(result)
    if result.is_error:
      raise ToolError(text or f"{tool} failed and gave no reason")
    return text

  async def _living(self) -> "_Connection":
    async with self._restarting:
      connection = self._connection
      if connection is None:
        raise McpServerError("the MCP server was stopped; its block has ended")
      if connection.ended and self._restarts_left:
        self._restarts_left -= 1
        await connection.close()
        await self.start()
        connection = self._connection or connection
      if connection.ended:
        raise McpServerError(connection.ended)
      return connection

  async def aclose(self) -> None:
    """Ends the process."""
    connection, self._connection = self._connection, None
    if connection is not None:
      await connection.close()


class _Connection:
  """One life of the process.

  The SDK's client has to be left in the task that entered it, and its calls
  come from the tasks of episodes. So a task of its own holds it.
  """

  def __init__(self, sdk: Any, parameters: Any, label: str):
    self.client: Any = None
    self.ended = ""
    self._sdk, self._parameters, self._label = sdk, parameters, label
    self._stop = asyncio.Event()
    self._stderr = _append_file()
    self._holder: asyncio.Task[None] | None = None

  async def open(self) -> Sequence[Any]:
    """Starts the process; returns its tools."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[Sequence[Any]] = loop.create_future()
    self._holder = asyncio.ensure_future(self._hold(ready))
    return await ready

  async def close(self) -> None:
    """Ends the process, and waits until it has."""
    self._stop.set()
    if self._holder is not None:
      if self.client is None:  # it may be waiting for a server that is silent
        self._holder.cancel()
      await asyncio.wait([self._holder])
      self._holder = None
    self._stderr.close()

  def is_closed_by(self, error: Any) -> bool:
    """Returns whether an error of the SDK says that the process has ended."""
    import mcp_types

    return error.code == mcp_types.CONNECTION_CLOSED

  def last_words(self) -> str:
    """Returns the last line of stderr, as the end of a sentence."""
    if self._stderr.closed:
      return ""
    size = self._stderr.seek(0, 2)
    self._stderr.seek(max(0, size - _MAX_STDERR_BYTES))
    lines = self._stderr.read().decode("utf-8", errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"; it said: {last.strip()}" if last else "; it said nothing"

  def trim(self) -> None:
    """Forgets what the process wrote to stderr, if that is much."""
    if os.fstat(self._stderr.fileno()).st_size > _MAX_STDERR_FILE_BYTES:
      self._stderr.truncate(0)

  async def _hold(self, ready: "asyncio.Future[Sequence[Any]]") -> None:
    from mcp.client.stdio import stdio_client

    try:
      transport = stdio_client(self._parameters, errlog=self._stderr)
      async with self._sdk.Client(transport) as client:
        tools = await _list_tools(client)
        self.client = client
        if not ready.done():
          ready.set_result(tools)
        await self._stop.wait()
    except Exception as error:
      # What ends a connection that is in use is told to whoever calls next.
      problem = f"{self._label} failed with {_first_cause(error)}"
      self.ended = self.ended or f"{problem}{self.last_words()}"
      if not ready.done():
        ready.set_exception(McpServerError(self.ended))


def _append_file() -> Any:
  """Returns a nameless file; what is written to it goes to its end."""
  import fcntl  # not on Windows

  file = tempfile.TemporaryFile()
  flags = fcntl.fcntl(file, fcntl.F_GETFL)
  fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_APPEND)
  return file


async def _list_tools(client: Any) -> list[Any]:
  tools, cursor = [], None
  for _ in range(_MAX_PAGES):
    page = await client.list_tools(cursor=cursor)
    tools += page.tools
    cursor = page.next_cursor
    if not cursor:
      break
  return tools


def _first_cause(error: BaseException) -> str:
  while isinstance(error, BaseExceptionGroup):
    error = error.exceptions[0]
  return describe_error(error)
