"""The step of an environment whose actions are tool calls in text."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
import dataclasses
import functools
import inspect
import json

from arl_jax.envs import tool_arguments
from arl_jax.envs.environment import StepResult
from arl_jax.envs.off_loop import call_off_loop
from arl_jax.envs.tool_batch import ToolCache, run_at_once
from arl_jax.envs.tools import RunStatus, Tool
from arl_jax.episode import Message, Task
from arl_jax.text import tool_calls


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AttemptResult:
  """One attempt at a tool call with its answer.

  Attributes:
    attempt: where it is in the action, and how it parsed.
    status: `ok`, a status of the parser, `too_many`, `unknown_tool`, or a
      `RunStatus`.
    text: the observation.
    cost: what the call costs; 0 if no tool was run.
    cached: whether the answer was kept from an earlier call.
  """

  attempt: tool_calls.ToolCallAttempt
  status: str
  text: str
  cost: float = 0.0
  cached: bool = False

  @property
  def failed(self) -> bool:
    """True unless the tool ran and answered."""
    return self.status != RunStatus.OK


async def answer_tool_calls(
  action: str,
  tools: Mapping[str, Tool],
  *,
  style: tool_calls.Style,
  max_calls_per_turn: int = 16,
  parallel: bool = False,
  max_concurrent: int = 8,
  cache: ToolCache | None = None,
) -> tuple[AttemptResult, ...]:
  """Answers every attempt at a tool call in an action.

  A bad attempt is answered with what is wrong; its siblings run all the same.

  Args:
    action: text of one turn.
    tools: by name.
    style: how calls are written.
    max_calls_per_turn: calls that are run, the first ones; malformed ones
      count, and the rest is answered with one error. So a turn ends after so
      many times the time limit of a tool at most.
    parallel: run all attempts at once, for tools that do not depend on each
      other; else one after the other. One that fails or is late harms none of
      its siblings either way.
    max_concurrent: how many may run at once. A tool's time limit starts when
      it is run.
    cache: keeps the answers of tools with `cache=True`, one for each episode;
      without it they are kept within the action alone.

  Returns:
    One result per attempt, in the order of the text, and one for those that are
    too many; none for a plain answer.

  Raises:
    ValueError: `max_calls_per_turn` is below 1, or the style is unknown.
  """
  _check_max_calls(max_calls_per_turn)
  parameters = {name: tool.parameter_names for name, tool in tools.items()}
  attempts = tool_calls.parse_tool_calls(
    action, style=style, parameters=parameters
  )
  cache = ToolCache() if cache is None else cache
  calls = [
    functools.partial(_answer, attempt, tools, style=style, cache=cache)
    for attempt in attempts[:max_calls_per_turn]
  ]
  calls += [
    functools.partial(_refuse, attempt, max_calls_per_turn)
    for attempt in attempts[max_calls_per_turn:][:1]
  ]
  if parallel and len(calls) > 1:
    return await run_at_once(calls, max_concurrent=max_concurrent)
  return tuple([await call() for call in calls])


async def _answer(
  attempt: tool_calls.ToolCallAttempt,
  tools: Mapping[str, Tool],
  *,
  style: tool_calls.Style,
  cache: ToolCache,
) -> AttemptResult:
  call = attempt.call
  if call is None:
    return AttemptResult(
      attempt=attempt, status=attempt.status, text=f"error: {attempt.error}"
    )
  tool = tools.get(call.name)
  if tool is None:
    text = f"error: no tool {call.name}; use {', '.join(tools)}"
    return AttemptResult(attempt=attempt, status="unknown_tool", text=text)
  arguments = call.arguments
  if style == "compact":
    arguments = tool_arguments.coerce_text(arguments, tool.parameters)
  answer = await cache.run(tool, arguments)
  return AttemptResult(
    attempt=attempt,
    status=answer.status,
    text=answer.text,
    cost=answer.cost,
    cached=answer.cached,
  )


async def _refuse(
  attempt: tool_calls.ToolCallAttempt, most: int
) -> AttemptResult:
  text = f"error: the rest was not run: an action may have at most {most} calls"
  return AttemptResult(attempt=attempt, status="too_many", text=text)


def _check_max_calls(most: int) -> None:
  if most < 1:
    raise ValueError(f"max_calls_per_turn is {most}; expected 1 or more")


def step_result(
  results: Sequence[AttemptResult],
  *,
  state_key: str | None = None,
  show_cost: bool = False,
) -> StepResult:
  """Makes the step of answered attempts; a turn without any ends the task.

  The components of the turn are `turns` (1), `tool_errors` (a count) and
  `tool_cost` (a sum): give them negative weights, or none.

  Args:
    results: of the turn's attempts.
    state_key: names the state after them.
    show_cost: have `tool_cost` in every turn, also where it is 0. Environments
      with a tool that costs something do, so that turns can be compared.
  """
  num_errors = sum(result.failed for result in results)
  rewards = {"turns": 1.0, "tool_errors": float(num_errors)}
  cost = sum(result.cost for result in results)
  if show_cost or cost:
    rewards["tool_cost"] = float(cost)
  return StepResult(
    observations=tuple(
      Message(role="tool", content=result.text) for result in results
    ),
    terminated=not results,
    rewards=rewards,
    num_tool_calls=len(results),
    num_tool_errors=num_errors,
    state_key=state_key,
  )


def describe_tools(
  tools: Sequence[Tool], *, style: tool_calls.Style
) -> Message:
  """A system message with the schema of every tool, one JSON object a line."""
  lines = [json.dumps(tool.schema, ensure_ascii=False) for tool in tools]
  if style == "hermes":
    usage = (
      "To call a tool, write its name and arguments as JSON:\n"
      '<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'
    )
  else:
    usage = (
      "To call a tool, write one line: its name, then its arguments in the"
      " order of the schema, with | between them."
    )
  return Message(
    role="system",
    content="\n".join(["Tools:", *lines, usage, "To finish, answer plainly."]),
  )


JudgeFn = Callable[
  [Task, Sequence[str]], Mapping[str, float] | Awaitable[Mapping[str, float]]
]


class ToolEnvironment:
  """An environment of given tools that judges the actions at the end.

  For tools without a state of their own. One with a state, as flight booking,
  calls `answer_tool_calls` and `step_result` itself.

  Args:
    tools: what the policy may call.
    judge: function of the task and all actions; returns the named components,
      among them `success`. A coroutine function is awaited. Any other runs in
      a thread of its own, and so may take its time.
    style: how calls are written.
    show_tools: whether the prompt starts with the schemas.
    max_calls_per_turn: calls of one action that are run.
    parallel: run the calls of one turn at once.
    max_concurrent: how many of them.
  """

  def __init__(
    self,
    tools: Sequence[Tool],
    judge: JudgeFn,
    *,
    style: tool_calls.Style = "hermes",
    show_tools: bool = True,
    max_calls_per_turn: int = 16,
    parallel: bool = False,
    max_concurrent: int = 8,
  ):
    self._tools = {tool.name: tool for tool in tools}
    if len(self._tools) < len(tools):
      raise ValueError(f"two tools share a name: {[t.name for t in tools]}")
    if max_concurrent < 1:
      raise ValueError(
        f"max_concurrent is {max_concurrent}; expected 1 or more"
      )
    _check_max_calls(max_calls_per_turn)
    self._judge = judge
    self._style: tool_calls.Style = style
    self._show_tools = show_tools
    self._max_calls_per_turn = max_calls_per_turn
    self._parallel, self._max_concurrent = parallel, max_concurrent
    self._cache = ToolCache()
    self._task: Task | None = None
    self._actions: list[str] = []

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Returns the prompt, after the tools if they are shown."""
    del seed  # nothing here is random
    self._task, self._actions, self._cache = task, [], ToolCache()
    user = Message(role="user", content=task.prompt)
    if not self._show_tools:
      return (user,)
    tools = tuple(self._tools.values())
    return (describe_tools(tools, style=self._style), user)

  async def step(self, action: str) -> StepResult:
    """Runs the tool calls of an action."""
    self._actions.append(action)
    results = await answer_tool_calls(
      action,
      self._tools,
      style=self._style,
      max_calls_per_turn=self._max_calls_per_turn,
      parallel=self._parallel,
      max_concurrent=self._max_concurrent,
      cache=self._cache,
    )
    show_cost = any(tool.cost for tool in self._tools.values())
    return step_result(results, show_cost=show_cost)

  async def score(self) -> Mapping[str, float]:
    """Asks the judge."""
    if self._task is None:
      raise RuntimeError("score() needs reset() first")
    actions = tuple(self._actions)
    if inspect.iscoroutinefunction(self._judge):
      return await self._judge(self._task, actions)
    scores = await call_off_loop(self._judge, self._task, actions, name="judge")
    return await scores if inspect.isawaitable(scores) else scores
