"""Runs one episode: the policy acts, the environment answers, until an end."""

import asyncio
from collections.abc import Mapping
import dataclasses
import functools
import hashlib
import time

import numpy as np

from arl_jax.actors import answers
from arl_jax.actors import context as context_lib
from arl_jax.actors.asking import (
  EnvironmentFailure,
  EnvironmentLate,
  ask,
  closing,
  rendered,
)
from arl_jax.actors.context import ContextPolicy
from arl_jax.actors.policy import Completion, Policy, SamplingParams
from arl_jax.actors.rows import RowBuilder
from arl_jax.actors.seeds import turn_seed
from arl_jax.envs.environment import Environment, StepResult
from arl_jax.episode import (
  Episode,
  EpisodeStatus,
  Int32Array,
  Message,
  Row,
  Task,
  Turn,
)
from arl_jax.text.chat import ChatFormat

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
    context: how an episode goes on that has no room left in its row; None to
      end it.
  """

  max_turns: int = 8
  max_tokens_per_turn: int = 128
  max_length: int = 1024
  step_timeout_seconds: float = 30.0
  episode_timeout_seconds: float = 600.0
  max_observation_chars: int = 32768
  context: ContextPolicy | None = None

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if field.name != "context" and value <= 0:
        raise ValueError(f"{field.name} is {value}; expected more than 0")


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
    session: names the first row to the policy, unique among the living; later
      ones add their number to it.

  Returns:
    The episode with one row, or with several if `limits.context` makes more;
    with none if there was no prompt.
  """
  async with closing(
    environment, timeout_seconds=limits.step_timeout_seconds, session=session
  ):
    start = time.perf_counter()
    draft = _Draft(weights=reward_weights, session=session)
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
        )
    except EnvironmentFailure as failure:
      status, error = EpisodeStatus.FAILED, str(failure)
    except TimeoutError:
      if not deadline.expired():
        raise
      status = EpisodeStatus.TIMEOUT
      if not draft.prompt_ids.size:
        status = EpisodeStatus.FAILED
        error = (
          "environment.reset gave no answer within episode_timeout_seconds, "
          f"{limits.episode_timeout_seconds:g}"
        )
    finally:
      policy.end_session(draft.row_session)

    if status.finished:
      try:
        score = await ask(
          environment.score,
          "score",
          timeout_seconds=limits.step_timeout_seconds,
          read=answers.clean_components,
        )
        draft.add_score(score)
      except EnvironmentFailure as failure:
        status, error = EpisodeStatus.FAILED, str(failure)
    return Episode(
      task=task,
      member=member,
      status=status,
      rows=draft.build_rows(),
      turns=tuple(draft.turns),
      prompt=draft.prompt,
      reward_components=draft.components if status.finished else {},
      # What an environment raises may hold anything, too.
      error=answers.clean_text(error, max_chars=_MAX_ERROR_CHARS),
      seconds=time.perf_counter() - start,
    )


async def _open(environment, task, draft, chat, limits, seed) -> None:
  """Stages the task, and starts the row with its prompt."""
  max_chars = limits.max_observation_chars
  draft.prompt = await ask(
    lambda: environment.reset(task, seed=seed),
    "reset",
    timeout_seconds=limits.step_timeout_seconds,
    read=lambda found: answers.clean_messages(found, max_chars=max_chars),
  )
  prompt_ids = rendered(lambda: chat.prompt_ids(draft.prompt), "reset")
  if len(prompt_ids) >= limits.max_length:
    raise EnvironmentFailure(
      f"the prompt of task {task.task_id!r} has {len(prompt_ids)} tokens and "
      f"max_length is {limits.max_length}; raise it or shorten the prompt"
    )
  draft.prompt_ids = prompt_ids
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
) -> EpisodeStatus:
  """Lets policy and environment take turns; the draft has at least a prompt."""
  # Before the first action the policy has seen the prompt and no more, so
  # members of a group with the same prompt share this state.
  prompt = draft.prompt_ids.tobytes()
  state_key = f"prompt/{hashlib.sha256(prompt).hexdigest()}"
  for turn in range(limits.max_turns):
    row = draft.row
    budget = min(limits.max_tokens_per_turn, limits.max_length - len(row))
    started, fed = time.perf_counter(), row.tokens
    completion = await policy.generate(
      fed,
      sampling=dataclasses.replace(
        sampling, max_tokens=budget, seed=turn_seed(seed, turn)
      ),
      session=draft.row_session,
    )
    if len(completion.token_ids) > budget:
      raise ValueError(
        f"the policy returned {len(completion.token_ids)} tokens; "
        f"sampling.max_tokens was {budget}"
      )
    draft.add_action(fed, completion)
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
    observation_ids = rendered(
      functools.partial(
        chat.observation_ids, result.observations, finish_reason=finish_reason
      ),
      "step",
    )
    if _goes_on_in_new_row(policy, draft, len(observation_ids), chat, limits):
      continue
    # The next action needs room for one token at least.
    if len(row) + len(observation_ids) >= limits.max_length:
      return EpisodeStatus.MAX_TOKENS
    row.append_context(observation_ids)
  return EpisodeStatus.MAX_TURNS


def _goes_on_in_new_row(
  policy: Policy,
  draft: "_Draft",
  num_observed: int,
  chat: ChatFormat,
  limits: Limits,
) -> bool:
  """Ends a row that has grown too long, if a shorter one can follow."""
  context, length = limits.context, len(draft.row) + num_observed
  if context is None or len(draft.rows) + 1 >= context.max_rows:
    return False
  if length < limits.max_length and not context.is_due(
    length=length, num_turns=draft.num_row_turns
  ):
    return False
  most = min(limits.max_length, context.max_tokens or limits.max_length)
  shorter = rendered(
    lambda: context_lib.shorten(
      draft.prompt_ids,
      draft.actions,
      draft.turns,
      chat=chat,
      keep_turns=context.keep_turns,
      max_length=most,
    ),
    "step",
  )
  if len(shorter) >= min(length, most):
    return False
  policy.end_session(draft.row_session)
  draft.begin_row(shorter)
  return True


async def _step(
  environment: Environment, draft: "_Draft", limits: Limits
) -> StepResult:
  """Gives the last action to the environment, and records its answer."""
  started = time.perf_counter()
  max_chars = limits.max_observation_chars
  try:
    result = await ask(
      lambda: environment.step(draft.turns[-1].action),
      "step",
      timeout_seconds=limits.step_timeout_seconds,
      read=lambda found: answers.clean_step_result(found, max_chars=max_chars),
    )
  except EnvironmentLate as late:
    result = StepResult(
      observations=(Message(role="tool", content=f"Error: {late}"),),
      terminated=False,
      num_tool_calls=1,
      num_tool_errors=1,
    )
  draft.add_result(result, time.perf_counter() - started)
  return result


@dataclasses.dataclass(kw_only=True)
class _Draft:
  """An episode while it is being played."""

  weights: Mapping[str, float]
  session: str
  prompt: tuple[Message, ...] = ()
  prompt_ids: Int32Array = dataclasses.field(
    default_factory=lambda: np.zeros(0, np.int32)
  )
  rows: list[Row] = dataclasses.field(default_factory=list)
  row: RowBuilder = dataclasses.field(default_factory=RowBuilder)
  num_row_turns: int = 0
  actions: list[Int32Array] = dataclasses.field(default_factory=list)
  turns: list[Turn] = dataclasses.field(default_factory=list)
  components: dict[str, float] = dataclasses.field(default_factory=dict)

  @property
  def row_session(self) -> str:
    """Names the current row to the policy."""
    return f"{self.session}/row-{len(self.rows)}" if self.rows else self.session

  def begin_row(self, context_ids: Int32Array) -> None:
    """Ends the current row, and starts one with a context of its own."""
    self.rows.append(self.row.build())
    self.row, self.num_row_turns = RowBuilder(), 0
    self.row.append_context(context_ids)

  def build_rows(self) -> tuple[Row, ...]:
    """Returns all rows; the first may be without an action, a later one not."""
    current = self.num_row_turns or (not self.rows and len(self.row))
    return (*self.rows, self.row.build()) if current else tuple(self.rows)

  def add_action(self, fed: Int32Array, completion: Completion) -> None:
    """Appends the action of the next turn to the row that it was fed."""
    self.row.append_action(fed, completion, turn=len(self.turns))
    self.actions.append(completion.token_ids)
    self.num_row_turns += 1

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
        raise EnvironmentFailure(f"rewards add up to {total}: {rewards}")
    if self.turns:
      self.turns[-1] = dataclasses.replace(self.turns[-1], reward=reward)
