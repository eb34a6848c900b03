"""The scripted experts as scripts that act and are sent what they caused."""

from arl_jax.envs import flight_expert, search_tags
from arl_jax.envs.flight_tools import TOOL_PARAMETERS
from arl_jax.envs.search_environment import SearchStyle, read_information
from arl_jax.episode import ToolCall
from arl_jax.synthesis import search_experts
from arl_jax.synthesis.replay import Script
from arl_jax.text import tool_calls


def flight_script(
  prompt: str,
  *,
  habits: flight_expert.Habits = flight_expert.CAREFUL,
  style: tool_calls.Style = "hermes",
) -> Script:
  """The flight booking expert, from a request."""
  script = flight_expert.expert_script(prompt, habits=habits)
  step = next(script)
  while True:
    action = step
    if isinstance(step, ToolCall):
      action = tool_calls.render_tool_call(
        step, style=style, parameters=TOOL_PARAMETERS
      )
    messages = yield str(action)
    try:
      step = script.send(messages[-1].content)
    except StopIteration:
      return


def search_script(
  prompt: str,
  *,
  habits: search_experts.Habits = search_experts.CAREFUL,
  style: SearchStyle = "tags",
) -> Script:
  """The expert that searches, from a question."""
  script = search_experts.expert_script(prompt, habits=habits)
  try:
    call = next(script)
    while True:
      messages = yield search_experts.write_call(call, style=style)
      call = script.send(read_information(messages[-1].content))
  except StopIteration as end:
    answer = search_tags.write_tag(search_tags.ANSWER, end.value)
  yield answer
