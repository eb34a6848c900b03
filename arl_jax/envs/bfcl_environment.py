"""BFCL's multi-turn tasks: a user asks several things, tools change a state.

An action with calls is answered with their results. One without any ends the
user's turn, and the next thing that the user says is the answer. After the
last one the episode ends.

At the end of each turn the state of all classes is compared with that of a
second set on which the gold calls of all turns so far were run; and all
results of the turn's gold calls have to be among those that the policy has
seen so far.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import importlib
import json

from arl_jax.envs import bfcl_tasks
from arl_jax.envs.bfcl_apis import BfclApis
from arl_jax.envs.environment import StepResult
from arl_jax.envs.tool_environment import (
  AttemptResult,
  answer_tool_calls,
  describe_tools,
  step_result,
)
from arl_jax.envs.tools import RunStatus, Tool
from arl_jax.episode import Message, Task
from arl_jax.text.tool_calls import render_tool_call

_TURN_USAGE = (
  "An answer without a call ends your turn; the user may then ask for more."
)
# The longest gold turn has 34.
_MAX_CALLS_PER_ACTION = 64
_NUM_EXAMPLES = 8


class BfclEnv:
  """One episode of a multi-turn task; see `bfcl_tasks.read_tasks`.

  The components are `success`, 1 if all turns are right; `turns_right`, the
  share of them; and `states_right`, the share of turns at whose end the state
  was right. A turn that did not end is not right. Neither is one without any
  call, if there was something to do.

  Args:
    show_tools: whether the prompt starts with the schemas, which are long.
    compare_results: whether a turn is right only if the results of its gold
      calls were seen. If not, reading nothing is as good as reading.
    max_actions_per_turn: actions with calls in one turn of the user; one more
      ends the episode, and the turn does not count.
  """

  def __init__(
    self,
    *,
    show_tools: bool = True,
    compare_results: bool = True,
    max_actions_per_turn: int = 20,
  ):
    if max_actions_per_turn < 1:
      raise ValueError(
        f"max_actions_per_turn is {max_actions_per_turn}; expected 1 or more"
      )
    self._show_tools = show_tools
    self._compare_results = compare_results
    self._max_actions_per_turn = max_actions_per_turn
    self._task: Task | None = None

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Returns what the user asks first, after the tools if they are shown."""
    del seed  # the classes draw from seeds of their own
    self._task = task
    self._apis, self._gold_apis = _make_apis(task), _make_apis(task)
    tools = self._apis.tools(self._run)
    self._held_back = {
      int(turn): {name: tools.pop(name) for name in names}
      for turn, names in task.hidden["held_back"].items()
    }
    self._tools: dict[str, Tool] = tools
    self._seen: list[str] = []  # results of all turns, in order
    self._verdicts: list[tuple[bool, bool]] = []  # turn, state
    self._start_turn()
    user = Message(role="user", content=task.prompt)
    if not self._show_tools:
      return (user,)
    system = describe_tools(tuple(tools.values()), style="hermes")
    content = f"{system.content}\n{_TURN_USAGE}"
    return (Message(role="system", content=content), user)

  async def step(self, action: str) -> StepResult:
    """Runs the calls of an action, or goes on to the user's next turn."""
    self._staged()
    results = [
      _as_refusal(result)
      for result in await answer_tool_calls(
        action,
        self._tools,
        style="hermes",
        max_calls_per_turn=_MAX_CALLS_PER_ACTION,
      )
    ]
    turn = len(self._verdicts)
    answer = step_result(results)
    if not results:
      observations = self._end_turn()
      answer = dataclasses.replace(
        answer, observations=observations, terminated=not observations
      )
    else:
      self._num_actions += 1
      if self._num_actions > self._max_actions_per_turn:
        answer = dataclasses.replace(answer, terminated=True)
    state = self._apis.state_key()
    key = None if state is None else f"{turn} {state}"
    return dataclasses.replace(answer, state_key=key)

  async def score(self) -> Mapping[str, float]:
    """The share of turns that were right, and whether all were."""
    num_turns = len(self._staged().hidden["turns"])
    num_right = sum(is_right for is_right, _ in self._verdicts)
    num_states = sum(is_state_right for _, is_state_right in self._verdicts)
    return {
      "success": float(num_right == num_turns),
      "turns_right": num_right / num_turns,
      "states_right": num_states / num_turns,
    }

  def _staged(self) -> Task:
    if self._task is None:
      raise RuntimeError("the environment needs reset() first")
    return self._task

  def _run(self, name: str, arguments: Mapping[str, object]) -> str:
    result = self._apis.call(name, arguments)
    self._seen.append(result)
    return result

  def _start_turn(self) -> None:
    self._num_actions = 0
    self._num_seen_before = len(self._seen)

  def _end_turn(self) -> tuple[Message, ...]:
    """Judges the turn; returns what the user says next, nothing at the end."""
    task, turn = self._staged(), len(self._verdicts)
    if turn == len(task.hidden["turns"]):
      raise RuntimeError("step() after the last turn; call reset() first")
    self._verdicts.append(self._judge(task, turn))
    self._start_turn()
    turn += 1
    if turn == len(task.hidden["turns"]):
      return ()
    new = self._held_back.get(turn, {})
    self._tools.update(new)
    lines = [
      json.dumps(tool.schema, ensure_ascii=False) for tool in new.values()
    ]
    said = task.hidden["turns"][turn]
    lines.append(_new_tools_text() if said is None else said)
    return (Message(role="user", content="\n".join(lines)),)

  def _judge(self, task: Task, turn: int) -> tuple[bool, bool]:
    calls = bfcl_tasks.gold_calls(task, turn)
    expected = [self._gold_apis.call(c.name, c.arguments) for c in calls]
    is_state_right = self._apis.has_state_of(self._gold_apis)
    if not calls:  # nothing to do: judged by the state of later turns
      return True, is_state_right
    if not self._compare_results:
      return is_state_right, is_state_right
    has_called = len(self._seen) > self._num_seen_before
    is_right = has_called and is_state_right and _contains(self._seen, expected)
    return is_right, is_state_right


def example_tasks() -> tuple[Task, ...]:
  """Returns the first tasks of each category but the long ones."""
  each = _NUM_EXAMPLES // 3
  return tuple(
    task
    for variant in ("base", "miss_func", "miss_param")
    for task in bfcl_tasks.read_tasks(variant)[:each]
  )


def gold_actions(task: Task) -> tuple[str, ...]:
  """Returns, for each turn, the gold calls in one action, and a last word."""
  actions: list[str] = []
  for turn in range(len(task.hidden["turns"])):
    calls = bfcl_tasks.gold_calls(task, turn)
    if calls:
      texts = [render_tool_call(call, style="hermes") for call in calls]
      actions.append("\n".join(texts))
    actions.append("Done.")
  return tuple(actions)


def _make_apis(task: Task) -> BfclApis:
  hidden = task.hidden
  return BfclApis(
    hidden["apis"], hidden["config"], long_context=hidden["long_context"]
  )


def _as_refusal(result: AttemptResult) -> AttemptResult:
  """The classes say that something went wrong in a dictionary."""
  if result.status == RunStatus.OK and result.text.startswith('{"error":'):
    return dataclasses.replace(result, status=RunStatus.REFUSED)
  return result


def _contains(seen: Sequence[str], expected: Sequence[str]) -> bool:
  """Whether all expected results are among those seen, as often."""
  left = list(seen)
  for result in expected:
    if result not in left:
      return False
    left.remove(result)
  return True


def _new_tools_text() -> str:
  prompts = importlib.import_module("bfcl_eval.constants.default_prompts")
  return prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
