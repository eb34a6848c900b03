"""Runs one episode: the policy acts, the environment answers, until an end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
import contextlib
import dataclasses
import functools
import hashlib
import inspect
import logging
import time
import traceback
from typing import Any, TypeVar

from arl_jax.actors import answers
from arl_jax.actors.policy import Policy, SamplingParams
from arl_jax.actors.rows import RowBuilder
from arl_jax.actors.seeds import turn_seed
from arl_jax.envs.environment import Environment, StepResult
from arl_jax.envs.guarded_call import (
  BrokenError,
  LateError,
  call_guarded,
  describe_error,
)
from arl_jax.episode import (
  Episode,
  EpisodeStatus,
  Int32Array,
  Message,
  Task,
  Turn,
)
from arl_jax.text.chat import ChatFormat

T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)
# Of an error's text, which the policy never sees.
_MAX_ERROR_CHARS = 32768


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
  """What ends an episode that its task does not end.

  Attributes:
    max_turns: actions of the policy.
    max_tokens_per_turn: tokens of one action.
    max_length: tokens of the whole row, observations included.
    step_timeout_seconds: time for one answer of the environment.
    episode_timeout_seconds: time for the whole interaction.
    max_observation_chars: characters that are kept of one message of the
      environment; a note after them says how many were left out.
  """

  max_turns: int = 8
  max_tokens_per_turn: int = 128
  max_length: int = 1024
  step_timeout_seconds: float = 30.0
  episode_timeout_seconds: float = 600.0
  max_observation_chars: int = 32768

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      if getattr(self, field.name) <= 0:
        raise ValueError(
          f"{field.name} is {getattr(self, field.name)}; expected more than 0"
        )


async def run_episode(
  policy: Policy,
  environment: Environment,
  task: Task,
  *,
  member: int,
  chat: ChatFormat,
  limits: Limits,
  sampling: SamplingParams,
  reward_weights: Mapping[str, float],
  seed: int,
  session: str,
) -> Episode:
  """Plays one task to its end, and scores it whatever ended it.

  A turn's reward is the weighted sum of the components that its step
  returned; the final score is added to the last turn. So the episode's
  `total_reward` is the weighted sum of its `reward_components`.

  An answer that comes too late is an observation, and the episode goes on.
  What the environment raises, and an answer that is not what the protocol
  says, end the episode as FAILED. So does an answer that the chat template
  refuses. Cancellation, Ctrl-C, and errors of the policy and of the chat
  format are raised. An environment with a `close` is closed in each case; that
  it fails to is logged.

  The environment's messages are cleaned before anything else reads them: cut
  at `limits.max_observation_chars`, and made valid Unicode.

  Args:
    policy: samples the actions.
    environment: fresh, for this episode alone.
    task: what is asked.
    member: index within the group.
    chat: turns messages into the ids around the sampled ones.
    limits: what ends the episode early.
    sampling: how tokens are drawn. Its `max_tokens` and `seed` are set anew
      for every turn; empty `stop_ids` stand for those of the tokenizer.
    reward_weights: weight of each component by name; one without a weight is
      reported and counts 0.
    seed: of this episode: handed to `environment.reset`, and mixed with the
      turn into the seed of that turn's draws.
    session: names the row to the policy, unique among the living.

  Returns:
    The episode with one row; with none if there was no prompt.
  """
  async with _closing(environment, limits, session):
    start = time.perf_counter()
    draft = _Draft(weights=reward_weights)
    stop_ids = sampling.stop_ids or chat.stop_ids
    error = ""
    deadline = asyncio.timeout(limits.episode_timeout_seconds)
    try:
      async with deadline:
        await _open(environment, task, draft, chat, limits, seed)
        status = await _interact(
          policy,
          environment,
          draft,
          chat=chat,
          limits=limits,
          sampling=dataclasses.replace(sampling, stop_ids=stop_ids),
          seed=seed,
          session=session,
        )
    except _EnvironmentFailure as failure:
      status, error = EpisodeStatus.FAILED, str(failure)
    except TimeoutError:
      if not deadline.expired():
        raise
      status = EpisodeStatus.TIMEOUT
      if not len(draft.row):
        status = EpisodeStatus.FAILED
        error = (
          "environment.reset gave no answer within episode_timeout_seconds, "
          f"{limits.episode_timeout_seconds:g}"
        )
    finally:
      policy.end_session(session)

    if status.finished:
      try:
        score = await _ask(
          environment.score, "score", limits, read=answers.clean_components
        )
        draft.add_score(score)
      except _EnvironmentFailure as failure:
        status, error = EpisodeStatus.FAILED, str(failure)
    return Episode(
      task=task,
      member=member,
      status=status,
      rows=(draft.row.build(),) if len(draft.row) else (),
      turns=tuple(draft.turns),
      prompt=draft.prompt,
      reward_components=draft.components if status.finished else {},
      # What an environment raises may hold anything, too.
      error=answers.clean_text(error, max_chars=_MAX_ERROR_CHARS),
      seconds=time.perf_counter() - start,
    )


@contextlib.asynccontextmanager
async def _closing(
  environment: Environment, limits: Limits, session: str
) -> AsyncIterator[None]:
  """Closes an environment that can be closed, also in a cancelled task."""
  try:
    yield
  finally:
    close = getattr(environment, "close", None)
    if close is not None:
      try:
        await _ask(close, "close", limits, read=lambda _: None)
      except _EnvironmentFailure as failure:
        _LOGGER.warning("episode %s: %s", session, failure)


async def _open(environment, task, draft, chat, limits, seed) -> None:
  """Stages the task, and starts the row with its prompt."""
  max_chars = limits.max_observation_chars
  draft.prompt = await _ask(
    lambda: environment.reset(task, seed=seed),
    "reset",
    limits,
    read=lambda found: answers.clean_messages(found, max_chars=max_chars),
  )
  prompt_ids = _rendered(lambda: chat.prompt_ids(draft.prompt), "reset")
  if len(prompt_ids) >= limits.max_length:
    raise _EnvironmentFailure(
      f"the prompt of task {task.task_id!r} has {len(prompt_ids)} tokens and "
      f"max_length is {limits.max_length}; raise it or shorten the prompt"
    )
  draft.row.append_context(prompt_ids)


async def _interact(
  policy: Policy,
  environment: Environment,
  draft: "_Draft",
  *,
  chat: ChatFormat,
  limits: Limits,
  sampling: SamplingParams,
  seed: int,
  session: str,
) -> EpisodeStatus:
  """Lets policy and environment take turns; the draft has at least a prompt."""
  row = draft.row
  # Before the first action the policy has seen the prompt and no more, so
  # members of a group with the same prompt share this state.
  state_key = f"prompt/{hashlib.sha256(row.tokens.tobytes()).hexdigest()}"
  for turn in range(limits.max_turns):
    budget = min(limits.max_tokens_per_turn, limits.max_length - len(row))
    started, fed = time.perf_counter(), row.tokens
    completion = await policy.generate(
      fed,
      sampling=dataclasses.replace(
        sampling, max_tokens=budget, seed=turn_seed(seed, turn)
      ),
      session=session,
    )
    if len(completion.token_ids) > budget:
      raise ValueError(
        f"the policy returned {len(completion.token_ids)} tokens; "
        f"sampling.max_tokens was {budget}"
      )
    row.append_action(fed, completion, turn=turn)
    # The ids decide, not the flag: a server that stops at a string, or takes
    # the stop id off, leaves a turn whose terminator is still to be written.
    stopped = int(completion.token_ids[-1]) in sampling.stop_ids
    finish_reason = "stop" if stopped else "length"
    action_ids = completion.token_ids[:-1] if stopped else completion.token_ids
    # The turn is on record before the step, which may never return.
    draft.turns.append(
      Turn(
        action=chat.decode(action_ids),
        finish_reason=finish_reason,
        state_key=state_key,
        generate_seconds=time.perf_counter() - started,
      )
    )
    result = await _step(environment, draft, limits)
    state_key = result.state_key
    if result.terminated:
      return EpisodeStatus.TERMINATED
    if turn + 1 == limits.max_turns:
      break
    observation_ids = _rendered(
      functools.partial(
        chat.observation_ids, result.observations, finish_reason=finish_reason
      ),
      "step",
    )
    # The next action needs room for one token at least.
    if len(row) + len(observation_ids) >= limits.max_length:
      return EpisodeStatus.MAX_TOKENS
    row.append_context(observation_ids)
  return EpisodeStatus.MAX_TURNS


async def _step(
  environment: Environment, draft: "_Draft", limits: Limits
) -> StepResult:
  """Gives the last action to the environment, and records its answer."""
  started = time.perf_counter()
  max_chars = limits.max_observation_chars
  try:
    result = await _ask(
      lambda: environment.step(draft.turns[-1].action),
      "step",
      limits,
      read=lambda found: answers.clean_step_result(found, max_chars=max_chars),
    )
  except _EnvironmentLate as late:
    result = StepResult(
      observations=(Message(role="tool", content=f"Error: {late}"),),
      terminated=False,
      num_tool_calls=1,
      num_tool_errors=1,
    )
  draft.add_result(result, time.perf_counter() - started)
  return result


async def _ask(
  call: Callable[[], Any],
  name: str,
  limits: Limits,
  *,
  read: Callable[[Any], T],
) -> T:
  """Waits for the environment, and tells its failures from all others.

  Args:
    call: a method of the environment, with its arguments.
    name: of the method.
    limits: of the episode.
    read: checks and cleans the answer.
  """

  async def answer() -> T:
    found = call()
    if not inspect.isawaitable(found):
      raise answers.AnswerError(
        f"it returned a {type(found).__name__}, not an awaitable; use `async"
        " def`, or put the environment into an OffLoopEnvironment"
      )
    return read(await found)

  seconds = limits.step_timeout_seconds
  try:
    return await call_guarded(answer, timeout_seconds=seconds)
  except LateError as late:
    raise _EnvironmentLate(f"{late} ({name})") from None
  except BrokenError as broken:
    raise _EnvironmentFailure(_describe(broken.error, name)) from broken.error


def _rendered(render: Callable[[], Int32Array], name: str) -> Int32Array:
  """Renders messages; that a template refuses them is their fault."""
  try:
    return render()
  except ValueError as error:
    raise _EnvironmentFailure(
      f"the chat template refuses what environment.{name} answered: {error}"
    ) from error


def _describe(error: BaseException, name: str) -> str:
  if isinstance(error, answers.AnswerError):
    return f"environment.{name} gave a wrong answer: {error}"
  trace = "".join(traceback.format_exception(error))
  return f"environment.{name} raised {describe_error(error)}\n{trace}"


class _EnvironmentFailure(Exception):
  """The environment broke, so this episode cannot be judged."""


class _EnvironmentLate(_EnvironmentFailure):
  """The environment did not answer in time."""


@dataclasses.dataclass(kw_only=True)
class _Draft:
  """An episode while it is being played."""

  weights: Mapping[str, float]
  prompt: tuple[Message, ...] = ()
  row: RowBuilder = dataclasses.field(default_factory=RowBuilder)
  turns: list[Turn] = dataclasses.field(default_factory=list)
  components: dict[str, float] = dataclasses.field(default_factory=dict)

  def add_result(self, result: StepResult, seconds: float) -> None:
    """Completes the last turn with what the environment answered."""
    self.turns[-1] = dataclasses.replace(
      self.turns[-1],
      observations=tuple(result.observations),
      num_tool_calls=result.num_tool_calls,
      num_tool_errors=result.num_tool_errors,
      step_seconds=seconds,
    )
    self.add_score(result.rewards)

  def add_score(self, rewards: Mapping[str, float]) -> None:
    """Adds named components to the last turn, and to the episode's sums."""
    for name, value in rewards.items():
      self.components[name] = self.components.get(name, 0.0) + value
    gain = sum(self.weights.get(k, 0.0) * v for k, v in rewards.items())
    reward = gain + (self.turns[-1].reward if self.turns else 0.0)
    for total in (reward, *self.components.values()):
      if not abs(total) <= answers.MAX_NUMBER:
        raise _EnvironmentFailure(f"rewards add up to {total}: {rewards}")
    if self.turns:
      self.turns[-1] = dataclasses.replace(self.turns[-1], reward=reward)
