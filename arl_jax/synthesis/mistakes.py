"""Mistakes that policies make with tools, in each style of writing calls."""

from collections.abc import Mapping, Sequence
import dataclasses
import random

from arl_jax.envs import flight_json, flight_text, flight_world, search_tags
from arl_jax.envs.environment import StepResult
from arl_jax.envs.flight_tools import TOOL_PARAMETERS
from arl_jax.envs.search_environment import SearchStyle
from arl_jax.episode import ToolCall
from arl_jax.synthesis.recovery import Mistake, Moment
from arl_jax.text import tool_calls

# Names that policies make up, and ids that no world has.
_MADE_UP_TOOLS = ("find", "lookup", "list", "get")
_UNKNOWN_FLIGHT = "XX000"
_UNKNOWN_PASSAGE = "zz/unknown/passage"


def call_mistakes(
  style: tool_calls.Style, parameters: Mapping[str, Sequence[str]]
) -> tuple[Mistake, ...]:
  """Mistakes of form, which every environment of tools answers.

  Args:
    style: how calls are written.
    parameters: the parameter names of each tool, in order.

  Returns:
    `malformed`, a call that cannot be read, and `wrong_tool`, a call of a tool
    that there is not.
  """

  def read(moment: Moment) -> ToolCall | None:
    return read_call(moment.action, style, parameters)

  def malformed(moment: Moment, rng: random.Random) -> str | None:
    call = read(moment)
    if call is None:
      return None
    if style == "compact":
      return f"{moment.action} | {list(call.arguments.values())[-1]}"
    return moment.action.replace(rng.choice(("}}", '", "', "</tool_call>")), "")

  def wrong_tool(moment: Moment, rng: random.Random) -> str | None:
    call = read(moment)
    if call is None:
      return None
    names = [name for name in _MADE_UP_TOOLS if name not in parameters]
    name = rng.choice(names)
    if style == "compact":
      # With a single argument it would be read as an answer.
      values = [str(value) for value in call.arguments.values()]
      return f"{name} {' | '.join(values)}" if len(values) > 1 else None
    return tool_calls.render_tool_call(
      dataclasses.replace(call, name=name), style=style
    )

  return (
    Mistake(name="malformed", write=malformed),
    Mistake(name="wrong_tool", write=wrong_tool),
  )


def flight_mistakes(style: tool_calls.Style) -> tuple[Mistake, ...]:
  """Mistakes of form, and those of booking flights.

  Returns:
    Those of `call_mistakes`, `unknown_id`, a check or booking of a flight that
    does not exist, and `sold_out`, a booking of a flight without a seat.
  """

  def write(name: str, *values: str) -> str:
    arguments = dict(zip(TOOL_PARAMETERS[name], values, strict=True))
    return tool_calls.render_tool_call(
      ToolCall(name=name, arguments=arguments),
      style=style,
      parameters=TOOL_PARAMETERS,
    )

  def unknown_id(moment: Moment, rng: random.Random) -> str | None:
    del rng
    call = read_call(moment.action, style, TOOL_PARAMETERS)
    if call is None or "flight" not in call.arguments:
      return None
    values = {**call.arguments, "flight": _UNKNOWN_FLIGHT}
    return write(call.name, *values.values())

  def sold_out(moment: Moment, rng: random.Random) -> str | None:
    world, request = flight_json.read_hidden(moment.task.hidden)
    listed = set(flight_text.read_rows(moment.seen))
    market = flight_world.market_at(world, 0)
    full = sorted(
      number
      for number in listed
      if (fare := market.get((number, request.cabin)))
      and not fare.seats
      and number not in moment.action
    )
    if not full:
      return None
    return write("book", request.passenger, rng.choice(full), request.cabin)

  return (
    *call_mistakes(style, TOOL_PARAMETERS),
    Mistake(name="unknown_id", write=unknown_id),
    Mistake(name="sold_out", write=sold_out, shows=_says_sold_out),
  )


def search_mistakes(style: SearchStyle) -> tuple[Mistake, ...]:
  """Mistakes of searching.

  Returns:
    `malformed`, a call that is not closed, `wrong_tool`, a call of what is no
    tool, `unknown_id`, the opening of a passage that does not exist, and
    `untagged`, an action without a call or an answer.
  """

  def unknown_id(moment: Moment, rng: random.Random) -> str | None:
    del moment, rng
    if style == "tags":
      return search_tags.write_tag(search_tags.OPEN, _UNKNOWN_PASSAGE)
    return tool_calls.render_tool_call(
      ToolCall(name=search_tags.OPEN, arguments={"id": _UNKNOWN_PASSAGE}),
      style="hermes",
    )

  def malformed(moment: Moment, rng: random.Random) -> str | None:
    del rng
    attempts = search_tags.parse_tags(moment.action)
    if not attempts:
      return None
    return moment.action.removesuffix(f"</{attempts[0].name}>")

  def wrong_tool(moment: Moment, rng: random.Random) -> str | None:
    del rng
    attempts = search_tags.parse_tags(moment.action)
    if not attempts:
      return None
    # What is found is not the policy's to write.
    name = search_tags.INFORMATION
    return f"<{name}>{attempts[0].body}</{name}>"

  def untagged(moment: Moment, rng: random.Random) -> str | None:
    del rng
    attempts = search_tags.parse_tags(moment.action)
    return attempts[0].body if attempts else None

  unknown = Mistake(name="unknown_id", write=unknown_id)
  if style == "hermes":
    parameters = {search_tags.SEARCH: ("query",), search_tags.OPEN: ("id",)}
    return (*call_mistakes("hermes", parameters), unknown)
  return (
    Mistake(name="malformed", write=malformed),
    Mistake(name="wrong_tool", write=wrong_tool),
    unknown,
    Mistake(name="untagged", write=untagged),
  )


def read_call(
  action: str,
  style: tool_calls.Style,
  parameters: Mapping[str, Sequence[str]],
) -> ToolCall | None:
  """The call of an action that is one call, else None."""
  attempts = tool_calls.parse_tool_calls(
    action, style=style, parameters=parameters
  )
  return attempts[0].call if len(attempts) == 1 else None


def _says_sold_out(result: StepResult) -> bool:
  return any(
    message.content.startswith("0 seats") for message in result.observations
  )
