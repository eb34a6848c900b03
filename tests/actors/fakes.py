"""A tokenizer, a policy and an environment that follow a script."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
import dataclasses
import re
from typing import Any, cast

import numpy as np

from arl_jax.actors.policy import Completion
from arl_jax.actors.pool import Actor, run_group
from arl_jax.actors.rollout import Limits, SamplingParams
from arl_jax.envs.environment import StepResult
from arl_jax.episode import Episode, Message, Task
from arl_jax.text.chat import ChatFormat
from arl_jax.text.tokenizer import Tokenizer

STOP = 1
CONTROLS = {"<end>": STOP, "<user>": 2, "<assistant>": 3, "<tool>": 4}
# An id from here on decodes to the same text as the id below it, and no text
# encodes to it.
TWIN = 1000


class FakeTokenizer:
  """One id per character, and a twin of each that `encode` never returns."""

  stop_ids = (STOP,)
  pad_id = 0
  vocab_size = 2 * TWIN

  def encode(self, text: str) -> list[int]:
    parts = re.split("(" + "|".join(CONTROLS) + ")", text)
    return [
      i
      for part in parts
      for i in ([CONTROLS[part]] if part in CONTROLS else map(ord, part))
    ]

  def encode_plain(self, text: str) -> list[int]:
    return [ord(c) for c in text]

  def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
    names = {i: name for name, i in CONTROLS.items()}
    return "".join(names.get(i) or chr(i % TWIN) for i in ids)

  def render(self, messages: Sequence[Message], add_generation_prompt: bool):
    text = "".join(f"<{m.role}>{m.content}<end>\n" for m in messages)
    return text + ("<assistant>" if add_generation_prompt else "")


def twins(text: str) -> list[int]:
  return [TWIN + ord(c) for c in text]


def say(text: str) -> list[int]:
  return [*twins(text), STOP]


def stopped(token_ids: Sequence[int]) -> Completion:
  """What a policy of version 0 says that is sure of it."""
  return Completion(
    token_ids=np.asarray(token_ids, np.int32),
    logprobs=np.zeros(len(token_ids), np.float32),
    policy_versions=np.zeros(len(token_ids), np.int32),
    finish_reason="stop",
  )


TOKENIZER = FakeTokenizer()
CHAT = ChatFormat(cast(Tokenizer, TOKENIZER))
TASK = Task(task_id="t", prompt="go")


@dataclasses.dataclass
class Call:
  """One call of `generate`."""

  fed: list[int]
  sampling: SamplingParams
  session: str
  sampled: list[int]


class FakePolicy:
  """Says what its script says; checks what every policy may rely on."""

  def __init__(self, script: Callable[[int, SamplingParams], list[int]]):
    """`script` maps (turn, sampling) to ids; they are cut at the budget."""
    self.script = script
    self.version = 0
    self.calls: list[Call] = []
    self.ended: list[str] = []
    self.alive: dict[str, list[Call]] = {}
    self.max_length = 10**6
    self.most_alive = 0

  async def generate(self, token_ids, *, sampling, session) -> Completion:
    calls = self.alive.setdefault(session, [])
    self.most_alive = max(self.most_alive, len(self.alive))
    fed = token_ids.tolist()
    assert len(fed) + 1 <= self.max_length
    if calls:
      seen = calls[-1].fed + calls[-1].sampled
      assert fed[: len(seen)] == seen
    version = self.version  # of the weights at dispatch
    sampled = self.script(len(calls), sampling)[: sampling.max_tokens]
    for _ in range(1 + len(calls) % 2):
      await asyncio.sleep(0)
    call = Call(fed, sampling, session, sampled)
    self.calls.append(call)
    calls.append(call)
    return Completion(
      token_ids=np.asarray(sampled, np.int32),
      logprobs=np.asarray([-(i + 1) / 8 for i in range(len(sampled))], "f4"),
      policy_versions=np.full(len(sampled), version, np.int32),
      finish_reason="stop" if sampled[-1] == STOP else "length",
    )

  def end_session(self, session: str) -> None:
    self.ended.append(session)
    self.alive.pop(session, None)


class FakeEnvironment:
  """Answers `seen` until it hears `done`; `on_step` may do anything else."""

  def __init__(
    self, on_step: Callable[["FakeEnvironment", str], Any] = lambda *_: None
  ):
    self.on_step = on_step
    self.actions: list[str] = []
    self.num_scores = 0

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    self.seed = seed
    return (Message(role="user", content=task.prompt),)

  async def step(self, action: str) -> StepResult:
    self.actions.append(action)
    await asyncio.sleep(0)
    result = self.on_step(self, action)
    if asyncio.iscoroutine(result):
      result = await result
    if result is not None:
      return result
    return StepResult(
      observations=(Message(role="tool", content="seen"),),
      terminated=action == "done",
      rewards={"step": 1.0},
      num_tool_calls=1,
      state_key=f"after {action}",
    )

  async def score(self):
    self.num_scores += 1
    return {"success": float("done" in self.actions), "unweighted": 7.0}


async def forever(*_) -> None:
  await asyncio.Event().wait()


def make_actor(
  policy: FakePolicy,
  make_environment: Callable[[], Any] = FakeEnvironment,
  **changes: Any,
) -> Actor:
  settings: dict[str, Any] = {
    "chat": CHAT,
    "limits": Limits(max_turns=3),
    "sampling": SamplingParams(),
    "reward_weights": {"success": 1.0, "step": 0.25},
  }
  return Actor(
    policy=policy, make_environment=make_environment, **settings | changes
  )


def by_seed(turn: int, sampling: SamplingParams) -> list[int]:
  """A script that draws its words from the seed."""
  if turn == 2:
    return say("done")
  words = np.random.default_rng(sampling.seed).integers(97, 123, size=12)
  return say("".join(map(chr, words)))


class StrictTokenizer(FakeTokenizer):
  """Takes valid Unicode alone, as real ones do, and notes how much."""

  def __init__(self):
    self.longest = 0

  def encode_plain(self, text):
    text.encode("utf-8")
    self.longest = max(self.longest, len(text))
    return super().encode_plain(text)


def play_group(
  make_environment: Callable[[], Any],
  script: Callable[[int, SamplingParams], list[int]],
  *,
  policy: FakePolicy | None = None,
  group_size: int = 2,
  **changes: Any,
) -> tuple[tuple[Episode, ...], FakePolicy]:
  """Runs a group and checks its rows; returns its episodes and the policy."""
  policy = policy or FakePolicy(script)
  settings = {
    "chat": ChatFormat(cast(Tokenizer, StrictTokenizer())),
    "reward_weights": {"success": 1.0},
  }
  actor = make_actor(policy, make_environment, **settings | changes)
  group = asyncio.run(run_group(actor, TASK, ordinal=0, group_size=group_size))
  for episode in group.episodes:
    check_row(episode, policy)
  assert not policy.alive
  return group.episodes, policy


def check_row(episode: Episode, policy: FakePolicy) -> None:
  """Holds however an episode ended: the row is what was fed and sampled."""
  session = f"train/0/{episode.member}"
  calls = [call for call in policy.calls if call.session == session]
  if not calls:
    assert all(not row.action_mask.any() for row in episode.rows)
    return
  (row,) = episode.rows
  seen = calls[-1].fed + calls[-1].sampled
  assert row.tokens[: len(seen)].tolist() == seen
  assert not row.action_mask[len(seen) :].any()
  sampled = [i for call in calls for i in call.sampled]
  assert row.tokens[row.action_mask].tolist() == sampled
  logprobs = [-(i + 1) / 8 for call in calls for i in range(len(call.sampled))]
  assert row.behavior_logprobs[row.action_mask].tolist() == logprobs
  assert (row.policy_versions[~row.action_mask] == -1).all()
  assert (row.turn_ids[~row.action_mask] == -1).all()


def raiser(error: BaseException) -> Callable[..., Any]:
  def function(*_):
    raise error

  return function


class UnreadableError(Exception):
  def __str__(self):
    raise ValueError("no text")
