"""A script that books flights from what it reads, careful or not."""

from collections.abc import Generator
import dataclasses

from arl_jax.envs import flight_text
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.flight_tools import TOOL_PARAMETERS
from arl_jax.episode import Message, Task, ToolCall
from arl_jax.text import tool_calls

# Said on giving up; it does not claim that nothing fits.
GIVE_UP_ANSWER = "Sold out."
_MAX_TURNS = 40


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Habits:
  """What an expert takes care of.

  Attributes:
    sorts: sorts the list before taking its first row.
    filters: drops flights that leave too late.
    checks: counts the seats before booking.
    retries: goes on with the next row where a flight is sold out.
  """

  sorts: bool = True
  filters: bool = True
  checks: bool = True
  retries: bool = True


CAREFUL = Habits()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ExpertTurn:
  """One turn: the messages that the expert read, and its action."""

  observations: tuple[Message, ...]
  action: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ExpertEpisode:
  """A scripted episode.

  Attributes:
    task: what was asked.
    habits: of the expert.
    turns: the first one's observations are the prompt.
    success: what the environment judged.
  """

  task: Task
  habits: Habits
  turns: tuple[ExpertTurn, ...]
  success: bool


def expert_script(
  prompt: str, *, habits: Habits = CAREFUL
) -> Generator[ToolCall | str, str, None]:
  """Yields actions, and is sent the observation of each.

  It knows the prompt and the observations only.

  Args:
    prompt: the request.
    habits: of the expert.

  Yields:
    A tool call, or at the end the final answer.
  """
  request = flight_text.read_request(prompt)
  seen = ""
  for date in request.dates:
    seen = yield _call(
      "search", request.origin, request.destination, date, request.cabin
    )
  if habits.filters and request.before and flight_text.read_rows(seen):
    seen = yield _call("filter", request.before)
  if habits.sorts and flight_text.read_rows(seen):
    seen = yield _call("sort", request.order)
  is_checked = not habits.checks
  while rows := flight_text.read_rows(seen):
    if not is_checked:
      answer = yield _call("check", rows[0])
      is_checked = not flight_text.read_rows(answer) and _has_seats(answer)
    else:
      answer = yield _call("book", request.passenger, rows[0], request.cabin)
      if answer.startswith("booked"):
        yield flight_text.BOOKED_ANSWER
        return
      is_checked = not habits.checks
    if answer.startswith("0 seats") and not habits.retries:
      yield GIVE_UP_ANSWER
      return
    if not _has_seats(answer):
      seen = answer  # the list as it is now
  yield flight_text.NO_FLIGHT_ANSWER


async def play_expert(
  environment: FlightBookingEnv,
  task: Task,
  *,
  habits: Habits = CAREFUL,
  style: tool_calls.Style = "hermes",
) -> ExpertEpisode:
  """Plays one scripted episode in the real environment."""
  messages = await environment.reset(task, seed=0)
  script = expert_script(task.prompt, habits=habits)
  step = next(script)
  turns = []
  for _ in range(_MAX_TURNS):
    action = step
    if isinstance(step, ToolCall):
      action = tool_calls.render_tool_call(
        step, style=style, parameters=TOOL_PARAMETERS
      )
    turns.append(ExpertTurn(observations=messages, action=str(action)))
    result = await environment.step(str(action))
    if result.terminated:
      break
    messages = result.observations
    step = script.send(messages[-1].content)
  scores = await environment.score()
  return ExpertEpisode(
    task=task,
    habits=habits,
    turns=tuple(turns),
    success=scores["success"] == 1.0,
  )


def _call(name: str, *values: str) -> ToolCall:
  arguments = dict(zip(TOOL_PARAMETERS[name], values, strict=True))
  return ToolCall(name=name, arguments=arguments)


def _has_seats(answer: str) -> bool:
  return answer.endswith(" seats") and not answer.startswith("0 ")
