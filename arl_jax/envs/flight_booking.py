"""Flight booking: a policy books over a moving market, judged on the database.

A request names a route, one or two dates, a cabin and a passenger, and asks
for the cheapest or the earliest flight, or the cheapest before a time. The
tools are search, sort, filter, check and book; an action without a tool call
is the final answer. Between turns the market moves. How it is judged is
written at `flight_world.judge`.
"""

from collections.abc import Mapping

from arl_jax.envs import flight_json, flight_world, tool_environment
from arl_jax.envs.environment import StepResult
from arl_jax.envs.flight_text import Request
from arl_jax.envs.flight_tools import FlightDesk
from arl_jax.envs.flight_world import Booking, Verdict, World
from arl_jax.episode import Message, Task
from arl_jax.text.tool_calls import Style


class FlightBookingEnv:
  """One episode of flight booking.

  Args:
    style: how tool calls are written.
    show_tools: whether a system message shows the schemas. A small policy
      that is warm-started on the tools needs none.
    show_times: whether lists show departure times. Requests for the cheapest
      do without, which saves a large vocabulary's digits.
    system_prompt: text of a system message, None for no message. An empty one
      keeps chat templates from putting in their own.
  """

  def __init__(
    self,
    *,
    style: Style = "hermes",
    show_tools: bool = False,
    show_times: bool = True,
    system_prompt: str | None = None,
  ):
    self._style: Style = style
    self._show_tools = show_tools
    self._show_times = show_times
    self._system_prompt = system_prompt
    self._staged: tuple[World, Request, FlightDesk] | None = None
    self._num_turns = 0
    self._answer: str | None = None

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Stages the task's world.

    The market belongs to the task, so `seed` changes nothing: the members of a
    group meet the same moves.
    """
    del seed
    world, request = flight_json.read_hidden(task.hidden)
    desk = FlightDesk(world, show_times=self._show_times)
    self._staged = (world, request, desk)
    self._num_turns, self._answer = 0, None
    user = Message(role="user", content=task.prompt)
    parts = [] if self._system_prompt is None else [self._system_prompt]
    if self._show_tools:
      tools = tuple(desk.tools.values())
      described = tool_environment.describe_tools(tools, style=self._style)
      parts.append(described.content)
    if not parts:
      return (user,)
    return (Message(role="system", content="\n".join(parts).strip()), user)

  @property
  def state_key(self) -> str:
    """Names the state before the next action."""
    return self._stage()[2].state_key()

  @property
  def bookings(self) -> tuple[Booking, ...]:
    """The bookings that the episode has added."""
    return tuple(self._stage()[2].bookings)

  async def step(self, action: str) -> StepResult:
    """Moves the market to this turn and runs the action's tool calls."""
    desk = self._stage()[2]
    if self._answer is not None:
      raise RuntimeError("step() after the final answer; call reset() first")
    desk.advance(self._num_turns)
    self._num_turns += 1
    results = await tool_environment.answer_tool_calls(
      action, desk.tools, style=self._style
    )
    if not results:
      self._answer = action
    return tool_environment.step_result(results, state_key=desk.state_key())

  def verdict(self) -> Verdict:
    """Judges the episode as it stands."""
    world, request, desk = self._stage()
    return flight_world.judge(
      world,
      request,
      desk.bookings,
      answer=self._answer,
      last_turn=desk.turn,
    )

  async def score(self) -> Mapping[str, float]:
    """Success by the database, and whether anything was booked."""
    return {
      "success": float(self.verdict().success),
      "booked": float(bool(self.bookings)),
    }

  def _stage(self) -> tuple[World, Request, FlightDesk]:
    if self._staged is None:
      raise RuntimeError("the environment needs reset() first")
    return self._staged
