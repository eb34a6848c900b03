"""Rows that others have seen spoilt: by weights, repeats, limits and text."""

import asyncio
import dataclasses
import json
from typing import cast

import numpy as np
import pytest

from arl_jax.actors.pool import run_group, run_tasks
from arl_jax.actors.rollout import Limits
from arl_jax.envs.environment import StepResult
from arl_jax.envs.tool_environment import ToolEnvironment
from arl_jax.envs.tools import Tool
from arl_jax.episode import EpisodeStatus, Message, Task
from arl_jax.text.chat import ChatFormat
from arl_jax.text.tokenizer import Tokenizer
from tests.actors import fakes
from tests.actors.fakes import STOP, TASK, TOKENIZER, make_actor, say, twins


def seen(text="seen"):
  return StepResult(observations=(Message(role="tool", content=text),))


def call(name, **arguments):
  body = json.dumps({"name": name, "arguments": arguments})
  return f"<tool_call>{body}</tool_call>"


def tool(name, function, *parameters):
  properties = {parameter: {"type": "string"} for parameter in parameters}
  return Tool(
    name=name,
    description="d",
    parameters={"type": "object", "properties": properties},
    function=function,
  )


def test_a_turn_of_two_versions_stays_aligned():
  """Five tokens of old weights and seven of new ones (slime#1440)."""

  class Interrupted(fakes.FakePolicy):
    async def generate(self, token_ids, **options):
      completion = await super().generate(token_ids, **options)
      versions = np.full(len(completion.token_ids), 3, np.int32)
      versions[5:] = 4
      return dataclasses.replace(completion, policy_versions=versions)

  policy = Interrupted(lambda turn, _: say("abcdefghijk"))
  (episode,), _ = fakes.play_group(
    lambda: fakes.FakeEnvironment(lambda *_: seen()),
    policy.script,
    policy=policy,
    group_size=1,
    limits=Limits(max_turns=3),
  )
  (row,) = episode.rows
  for turn in range(3):
    mine = row.turn_ids == turn
    assert row.action_mask[mine].all()
    assert row.tokens[mine].tolist() == say("abcdefghijk")
    assert row.policy_versions[mine].tolist() == [3] * 5 + [4] * 7
    logprobs = [-(i + 1) / 8 for i in range(12)]
    assert row.behavior_logprobs[mine].tolist() == logprobs
  assert row.action_mask.sum() == 36


def test_random_episodes_have_aligned_rows_inside_their_limits():
  """Lengths agree, and a turn gets what is left (slime#2260, trl#5144)."""
  rng = np.random.default_rng(0)
  ends = set()
  for _ in range(60):
    limits = Limits(
      max_turns=int(rng.integers(1, 6)),
      max_tokens_per_turn=int(rng.integers(1, 20)),
      max_length=int(rng.integers(8, 160)),
      max_observation_chars=int(rng.integers(2, 40)),
    )
    words = ["x" * int(n) for n in rng.integers(0, 25, size=6)]
    stops = rng.random(6) < 0.7
    answers = ["y" * int(n) for n in rng.integers(0, 60, size=6)]

    def script(turn, sampling, *, words=words, stops=stops):
      return say(words[turn]) if stops[turn] else twins(words[turn] + "z")

    def on_step(environment, action, *, answers=answers):
      return dataclasses.replace(
        seen(answers[len(environment.actions) - 1]), terminated=action == ""
      )

    (episode,), policy = fakes.play_group(
      lambda on_step=on_step: fakes.FakeEnvironment(on_step),
      script,
      group_size=1,
      limits=limits,
    )
    ends.add(episode.status)
    (row,) = episode.rows
    assert len(row) <= limits.max_length
    for made in policy.calls:
      budget = min(
        limits.max_tokens_per_turn, limits.max_length - len(made.fed)
      )
      assert made.sampling.max_tokens == budget
      assert 1 <= len(made.sampled) <= budget
    assert row.action_mask.sum() == sum(len(c.sampled) for c in policy.calls)
  assert ends == {
    EpisodeStatus.TERMINATED,
    EpisodeStatus.MAX_TURNS,
    EpisodeStatus.MAX_TOKENS,
  }


@pytest.mark.parametrize("how", ["fails", "hangs", "is cancelled"])
def test_an_episode_that_is_run_again_starts_clean(how):
  """No token of the first run is left in the second (slime#1861)."""
  stuck = asyncio.Event()
  broken = True

  def on_step(environment, action):
    if not (broken and len(environment.actions) == 2):
      return None
    if how == "fails":
      raise ConnectionError("once")
    stuck.set()
    return fakes.forever()

  async def main():
    nonlocal broken
    policy = fakes.FakePolicy(fakes.by_seed)
    limits = Limits(
      max_turns=3, episode_timeout_seconds=0.05 if how == "hangs" else 600
    )
    actor = make_actor(
      policy, lambda: fakes.FakeEnvironment(on_step), limits=limits, seed=4
    )

    def begin():
      return asyncio.create_task(
        run_group(actor, TASK, ordinal=3, group_size=1)
      )

    first = begin()
    if how == "is cancelled":
      await stuck.wait()
      first.cancel()
      with pytest.raises(asyncio.CancelledError):
        await first
    else:
      status = EpisodeStatus.TIMEOUT if how == "hangs" else EpisodeStatus.FAILED
      assert (await first).episodes[0].status is status
    broken = False
    actor = dataclasses.replace(actor, limits=Limits(max_turns=3))
    again = await run_group(actor, TASK, ordinal=3, group_size=1)
    clean = make_actor(fakes.FakePolicy(fakes.by_seed), seed=4)
    expected = await run_group(clean, TASK, ordinal=3, group_size=1)
    return again.episodes[0], expected.episodes[0]

  again, expected = asyncio.run(main())
  assert again.status is EpisodeStatus.TERMINATED
  for field in dataclasses.fields(again.rows[0]):
    found = getattr(again.rows[0], field.name)
    assert np.array_equal(found, getattr(expected.rows[0], field.name))
  assert [t.action for t in again.turns] == [t.action for t in expected.turns]
  assert again.reward_components == expected.reward_components


@pytest.mark.parametrize(
  ("limits", "status"),
  [
    (Limits(max_turns=40, max_length=10**4), EpisodeStatus.TERMINATED),
    (Limits(max_turns=30, max_length=10**4), EpisodeStatus.MAX_TURNS),
    (Limits(max_turns=40, max_length=300), EpisodeStatus.MAX_TOKENS),
  ],
)
def test_many_turns_have_one_end(limits, status):
  """Not one flag for each turn, nor none at all (OpenRLHF#1327)."""
  (episode,), policy = fakes.play_group(
    fakes.FakeEnvironment,
    lambda turn, _: say("done" if turn == 34 else "on"),
    group_size=1,
    limits=limits,
  )
  assert episode.status is status
  assert episode.status.truncated is (status != EpisodeStatus.TERMINATED)
  assert len(episode.turns) == len(policy.calls) > 10
  assert len(episode.rows) == 1
  assert policy.ended == ["train/0/0"]


def test_episodes_of_a_group_write_the_same_key_and_read_their_own():
  """Each has a state of its own, at the same time (WebAgent-R1#6)."""
  written = []
  all_written = asyncio.Event()

  class Notes(ToolEnvironment):
    def __init__(self):
      self.state = {}
      super().__init__(
        [tool("put", self.put, "value"), tool("get", self.get)],
        lambda task, actions: {"success": 1.0},
        show_tools=False,
      )

    async def put(self, value):
      self.state["key"] = value
      written.append(value)
      if len(written) == 8:
        all_written.set()
      return "ok"

    async def get(self):
      await all_written.wait()
      return self.state["key"]

  def script(turn, sampling):
    value = f"value-{sampling.seed}"
    return say([call("put", value=value), call("get"), "done"][turn])

  episodes, policy = fakes.play_group(Notes, script, group_size=8)
  assert len(set(written)) == 8
  for episode in episodes:
    (first, *_) = [
      c for c in policy.calls if c.session.endswith(f"/{episode.member}")
    ]
    assert episode.status is EpisodeStatus.TERMINATED
    assert episode.turns[1].observations[0].content == (
      f"value-{first.sampling.seed}"
    )


@pytest.mark.parametrize("answers", [True, False])
def test_a_tool_that_says_the_answer_earns_nothing(answers):
  """Reward is for what the policy says, on its last token (verl#6392)."""

  def judge(task, actions):
    return {"success": float(task.hidden["gold"] in actions[-1])}

  async def main():
    policy = fakes.FakePolicy(
      lambda turn, _: say(
        call("look") if turn == 0 else "it is 42" if answers else "no idea"
      )
    )
    actor = make_actor(
      policy,
      lambda: ToolEnvironment(
        [tool("look", lambda: "the answer is 42")], judge, show_tools=False
      ),
    )
    gold = Task(task_id="t", prompt="go", hidden={"gold": "42"})
    return await run_tasks(actor, [gold], max_concurrent=1)

  (episode,) = asyncio.run(main())
  (row,) = episode.rows
  assert "42" in episode.turns[0].observations[0].content
  assert episode.success is answers
  assert [turn.reward for turn in episode.turns] == [0.0, float(answers)]
  last = np.flatnonzero(row.action_mask)[-1]
  assert row.turn_ids[last] == 1
  assert last == len(row) - 1


def test_a_template_that_drops_thoughts_changes_no_row():
  """What was sampled stays in front of the next turn (prime-rl#1334)."""

  class Forgetful(fakes.FakeTokenizer):
    def render(self, messages, add_generation_prompt):
      return super().render(
        [
          Message(role=m.role, content=m.content.split("</think>")[-1])
          for m in messages
        ],
        add_generation_prompt,
      )

  texts = ["<think>a</think>one", "<think>b</think>two", "done"]
  (episode,), policy = fakes.play_group(
    fakes.FakeEnvironment,
    lambda turn, _: say(texts[turn]),
    group_size=1,
    chat=ChatFormat(cast(Tokenizer, Forgetful())),
  )
  (row,) = episode.rows
  assert TOKENIZER.decode(row.tokens).count("<think>") == 2
  assert row.tokens[row.action_mask].tolist() == sum(map(say, texts), [])
  # A call for a tool is text like any other, so none is stripped (verl#3960).
  for earlier, later in zip(policy.calls, policy.calls[1:], strict=False):
    before = earlier.fed + earlier.sampled
    assert later.fed[: len(before)] == before


def test_every_turn_that_stopped_has_its_own_stop_id_once():
  """Sampled ones count, inserted ones don't (trl#6044, vime#120)."""
  texts = [say("one"), twins("two"), say("three"), twins("four"), say("done")]
  (episode,), _ = fakes.play_group(
    fakes.FakeEnvironment,
    lambda turn, _: texts[turn],
    group_size=1,
    limits=Limits(max_turns=5),
  )
  (row,) = episode.rows
  reasons = [turn.finish_reason for turn in episode.turns]
  assert reasons == ["stop", "length", "stop", "length", "stop"]
  for turn, reason in enumerate(reasons):
    last = np.flatnonzero(row.turn_ids == turn)[-1]
    if reason == "stop":
      assert row.tokens[last] == STOP
    else:
      assert row.tokens[last] != STOP
      assert row.tokens[last + 1] == STOP
      assert not row.action_mask[last + 1]
    following = row.tokens[last + 1 : last + 3].tolist()
    assert following.count(STOP) == (reason == "length")
