"""The desk of an airline, judged on the state of its database at the end.

Tools, data and the tasks of `airline_tau` come from tau2-bench. The reward is
not that benchmark's: there, a language model plays the customer. So what an
agent scores here cannot be compared with scores that were published for it.
"""

from collections.abc import Callable, Mapping
import hashlib
import json

from arl_jax.envs.airline_data import AirlineData
from arl_jax.envs.airline_gold import (
  Gold,
  gold_changes,
  gold_of,
  is_answer,
  is_told,
)
from arl_jax.envs.airline_state import AirlineState
from arl_jax.envs.airline_tools import (
  OBSERVATIONS,
  TRANSFER,
  Observations,
  make_tools,
  write_names,
)
from arl_jax.envs.airline_user import ScriptedUser
from arl_jax.envs.environment import StepResult
from arl_jax.envs.tool_environment import (
  AttemptResult,
  answer_tool_calls,
  describe_tools,
  step_result,
)
from arl_jax.envs.tools import Tool
from arl_jax.episode import Message, Task, ToolCall

REWARDS = (
  "success",
  "db",
  "communicated",
  "grounded",
  "answered",
  "turns",
  "tool_errors",
)


class AirlineEnv:
  """One customer at the desk.

  An action with tool calls is answered by the tools; what it says besides does
  not reach the customer. Any other action is a message to the customer. A
  scripted one replies until they hang up; else the message ends the episode.

  Args:
    data: what all episodes share.
    show_tools: whether a system message has the tools' schemas.
    show_policy: whether it has the airline's policy.
    system_prompt: text that it starts with; None for none.
    observations: how records look, see `airline_tools.make_tools`.
  """

  def __init__(
    self,
    data: AirlineData,
    *,
    show_tools: bool = True,
    show_policy: bool = False,
    system_prompt: str | None = None,
    observations: Observations = "json",
  ):
    if observations not in OBSERVATIONS:
      raise ValueError(
        f"observations is {observations!r}; expected one of {OBSERVATIONS}"
      )
    self._data = data
    self._show_tools, self._show_policy = show_tools, show_policy
    self._system_prompt = system_prompt
    self._observations: Observations = observations
    self._episode: _Episode | None = None

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Returns the prompt.

    Raises:
      ValueError: the task is none of the airline.
    """
    del seed  # nothing here is random
    state = AirlineState(self._data.database)
    tools = make_tools(self._data, state, observations=self._observations)
    self._episode = _Episode(self._data, state, tools, gold_of(task))
    user = Message(role="user", content=task.prompt)
    parts = [] if self._system_prompt is None else [self._system_prompt]
    if self._show_policy:
      parts.append(self._data.policy)
    if self._show_tools:
      described = describe_tools(tuple(tools.values()), style="hermes")
      parts.append(described.content)
    if not parts:
      return (user,)
    return (Message(role="system", content="\n".join(parts).strip()), user)

  async def step(self, action: str) -> StepResult:
    """Runs the tool calls of an action, or tells it to the customer."""
    return await self._current().step(action)

  async def score(self) -> Mapping[str, float]:
    """The components of `REWARDS` but those of the turns.

    - `db`: the database is as the gold calls leave it, in every record.
    - `communicated`: the customer was told what they had to be told.
    - `grounded`: a record of this customer was read or changed.
    - `answered`: the episode ended with a message, or with a transfer.
    - `success`: all of these.
    """
    return self._current().score()

  def _current(self) -> "_Episode":
    if self._episode is None:
      raise RuntimeError("the environment needs reset() first")
    return self._episode


class _Episode:
  """What has happened since `reset`."""

  def __init__(
    self,
    data: AirlineData,
    state: AirlineState,
    tools: Mapping[str, Tool],
    gold: Gold,
  ):
    self._data, self._state, self._tools = data, state, tools
    self._gold = gold
    self._user = ScriptedUser(gold.script) if gold.script else None
    self._said: list[str] = []
    self._shown: set[str] = set()
    self._is_grounded = self._is_transferred = self._has_ended = False

  async def step(self, action: str) -> StepResult:
    if self._has_ended:
      raise RuntimeError("step() after the end; call reset() first")
    results = await answer_tool_calls(action, self._tools, style="hermes")
    for result in results:
      if result.attempt.call is not None and not result.failed:
        self._note(result.attempt.call, result)
    if results:
      return step_result(results, state_key=self._state_key())
    reply = self._tell(action.strip())
    self._has_ended = reply is None
    return StepResult(
      observations=(
        () if reply is None else (Message(role="user", content=reply),)
      ),
      terminated=self._has_ended,
      rewards={"turns": 1.0, "tool_errors": 0.0},
      state_key=self._state_key(),
    )

  def score(self) -> Mapping[str, float]:
    gold = self._gold
    told = all(is_told(each, self._said) for each in gold.communicate)
    if gold.answer is not None:
      told = bool(self._said) and is_answer(gold.answer, self._said[-1])
    has_answered = self._is_transferred or (
      self._has_ended and bool(self._said) and bool(self._said[-1])
    )
    expected = gold_changes(self._data, gold.calls)
    checks = {
      "db": self._state.changes() == expected,
      "communicated": told,
      "grounded": self._is_grounded,
      "answered": has_answered,
    }
    scores = {name: float(holds) for name, holds in checks.items()}
    return {"success": float(all(checks.values())), **scores}

  def _tell(self, message: str) -> str | None:
    """The customer's reply, None if they hang up."""
    self._said.append(message)
    if self._user is None or self._is_transferred or not message:
      return None
    return self._user.reply(message)

  def _note(self, call: ToolCall, result: AttemptResult) -> None:
    arguments = json.dumps(dict(call.arguments), sort_keys=True)
    self._shown.add(f"{call.name} {arguments} {result.text}")
    self._is_transferred |= call.name == TRANSFER
    customer = self._gold.user_id
    owners: dict[str, Callable[[], str]] = {
      "get_user_details": lambda: call.arguments["user_id"],
      "get_reservation_details": lambda: (
        self._state.reservations[call.arguments["reservation_id"]].user_id
      ),
    }
    if call.name in write_names(self._data.toolkit):
      self._is_grounded = True
    elif call.name in owners:
      self._is_grounded |= owners[call.name]() == customer

  def _state_key(self) -> str:
    """Names the database, what was shown of it, and what the user has told."""
    told = self._user.num_told if self._user else 0
    parts = [self._state.changes(), sorted(self._shown), told]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
