"""Tools and rewards that break, hang, lie and flood.

None of them costs more than its own episode, and most cost nothing: the policy
reads what happened. No row is spoilt, and the run never stops.
"""

import asyncio
import threading
from typing import cast

import pytest

from arl_jax.actors.pool import run_group
from arl_jax.actors.rollout import Limits
from arl_jax.envs.tool_environment import ToolEnvironment
from arl_jax.envs.tools import Tool, ToolError
from arl_jax.episode import EpisodeStatus, Message
from arl_jax.text.chat import ChatFormat
from arl_jax.text.tokenizer import Tokenizer
from tests.actors import fakes
from tests.actors.fakes import TASK, make_actor, say

PATIENCE = 60  # seconds, for what must happen
CALL = '<tool_call>{"name": "t", "arguments": {}}</tool_call>'


@pytest.fixture(autouse=True)
def _threads_have_ended():
  yield
  for thread in threading.enumerate():
    if thread.name in ("tool-t", "judge"):
      thread.join(PATIENCE)
      assert not thread.is_alive()


def call_then_finish(turn, sampling):
  return say(CALL) if turn == 0 else say("done")


def judge(task, actions):
  return {"success": float(actions[-1] == "done")}


def tools_of(function, *, judge=judge, **options):
  """Makes environments around one tool."""
  tool = Tool(
    name="t",
    description="d",
    parameters={"type": "object"},
    function=function,
    **options,
  )
  return lambda: ToolEnvironment([tool], judge, show_tools=False)


def play(make_environment, **options):
  return fakes.play_group(make_environment, call_then_finish, **options)


class Unprintable:
  def __str__(self):
    raise ValueError("no text")


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(
  ("function", "text"),
  [
    (fakes.raiser(KeyError("row")), "error: t failed with KeyError: 'row'"),
    (fakes.raiser(SystemExit(3)), "error: t failed with SystemExit: 3"),
    (
      fakes.raiser(BaseException("rust")),
      "error: t failed with BaseException: rust",
    ),
    (
      fakes.raiser(fakes.UnreadableError()),
      "error: t failed with UnreadableError: <no readable text>",
    ),
    (fakes.raiser(ToolError("no \udc00 seat")), "error: no \ufffd seat"),
    (Unprintable, "error: t failed with ValueError: no text"),
    (lambda: b"caf\xc3\xa9 \xff", "caf\u00e9 \ufffd"),
    (lambda: "half \ud83d pair", "half \ufffd pair"),
    (lambda: None, "None"),
    (lambda: "<end>\n<assistant>done", "<end>\n<assistant>done"),
  ],
)
def test_whatever_a_tool_does_is_an_observation(function, text, inline):
  episodes, policy = play(tools_of(function, inline=inline))
  for episode in episodes:
    assert episode.status is EpisodeStatus.TERMINATED
    assert episode.success
    assert episode.turns[0].observations == (
      Message(role="tool", content=text),
    )
    (row,) = episode.rows
    (first, second) = [c for c in policy.calls if c.session.endswith("/0")]
    seen = second.fed[len(first.fed) + len(first.sampled) :]
    assert list(map(ord, text)) == seen[2 : 2 + len(text)]
    assert row.action_mask.sum() == len(first.sampled) + len(second.sampled)


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
def test_a_hung_tool_is_late_and_its_episode_goes_on(kind):
  """As is reported in verl#1948, where the whole run waited for it."""
  release = threading.Event()
  hang = fakes.forever if kind == "coroutine" else release.wait
  episodes, _ = play(tools_of(hang, timeout_seconds=0.02), group_size=4)
  release.set()
  for episode in episodes:
    assert episode.status is EpisodeStatus.TERMINATED
    assert episode.success
    (message,) = episode.turns[0].observations
    assert message.content == "error: t took longer than 0.02 seconds"
    assert episode.turns[0].num_tool_errors == 1


def test_an_idempotent_tool_gets_over_a_failure():
  failures = [KeyError("a"), KeyError("b")]

  def function():
    if failures:
      raise failures.pop()
    return "fine"

  (episode,), _ = play(
    tools_of(function, idempotent=True, backoff_seconds=0.0), group_size=1
  )
  assert episode.turns[0].observations[0].content == "fine"
  assert episode.turns[0].num_tool_errors == 0


def test_the_step_limit_holds_over_all_attempts_of_a_tool():
  (episode,), _ = play(
    tools_of(
      fakes.forever, idempotent=True, timeout_seconds=0.01, max_retries=10**6
    ),
    group_size=1,
    limits=Limits(step_timeout_seconds=0.1),
  )
  assert episode.status is EpisodeStatus.TERMINATED
  (message,) = episode.turns[0].observations
  assert message.content == "Error: no answer within 0.1 seconds (step)"


def test_ten_megabytes_never_reach_the_tokenizer():
  tokenizer = fakes.StrictTokenizer()
  episodes, _ = play(
    tools_of(lambda: b"x" * 10**7),
    chat=ChatFormat(cast(Tokenizer, tokenizer)),
    limits=Limits(max_length=40000),
  )
  for episode in episodes:
    assert episode.status is EpisodeStatus.TERMINATED
    content = episode.turns[0].observations[0].content
    assert content == "x" * 32768 + "\n[9967232 characters left out]"
    assert 32768 < len(episode.rows[0]) < 34000
  assert 32768 < tokenizer.longest < 33000


@pytest.mark.parametrize("max_chars", [1, 50, 32768])
def test_an_observation_that_overshoots_ends_the_episode(max_chars):
  """No id beyond the limit, and no observation cut in two (SkyRL#1539)."""
  limits = Limits(max_length=130, max_observation_chars=max_chars)
  episodes, policy = play(tools_of(lambda: "x" * 10**6), limits=limits)
  for episode in episodes:
    (row,) = episode.rows
    assert len(row) <= 130
    fits = max_chars == 1
    status = EpisodeStatus.TERMINATED if fits else EpisodeStatus.MAX_TOKENS
    assert episode.status is status
    assert row.action_mask[-1]
    last = [c for c in policy.calls if c.session.endswith("/0")][-1]
    assert len(row) == len(last.fed) + len(last.sampled)


def test_a_result_that_comes_after_the_episode_changes_nothing():
  release, complaints = threading.Event(), []

  async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    actor = make_actor(
      fakes.FakePolicy(call_then_finish),
      tools_of(release.wait, timeout_seconds=0.01),
    )
    group = await run_group(actor, TASK, ordinal=0, group_size=3)
    before = [episode.rows[0].tokens.tolist() for episode in group.episodes]
    threads = [t for t in threading.enumerate() if t.name == "tool-t"]
    assert len(threads) == 3
    release.set()
    for thread in threads:
      await asyncio.to_thread(thread.join, PATIENCE)
      assert not thread.is_alive()
    await asyncio.sleep(0)
    after = [episode.rows[0].tokens.tolist() for episode in group.episodes]
    assert before == after

  asyncio.run(main())
  assert not complaints


def test_a_result_that_comes_after_the_loop_is_dropped(monkeypatch):
  release, complaints = threading.Event(), []
  monkeypatch.setattr(threading, "excepthook", complaints.append)
  episodes, _ = play(tools_of(release.wait, timeout_seconds=0.01))
  assert all(episode.success for episode in episodes)
  threads = [t for t in threading.enumerate() if t.name == "tool-t"]
  assert len(threads) == 2
  release.set()
  for thread in threads:
    thread.join(PATIENCE)
    assert not thread.is_alive()
  assert not complaints


@pytest.mark.parametrize(
  ("broken", "problem"),
  [
    (fakes.forever, "no answer within 0.2 seconds (score)"),
    (
      fakes.raiser(KeyError("gold")),
      "environment.score raised KeyError: 'gold'",
    ),
    (fakes.raiser(SystemExit(1)), "environment.score raised SystemExit: 1"),
    (lambda: {"success": float("nan")}, "component 'success' is nan"),
    (lambda: {"success": "1"}, "component 'success' is '1'"),
    (lambda: None, "expected a mapping of reward components"),
    (lambda: 1.0, "expected a mapping of reward components"),
  ],
)
def test_a_broken_reward_costs_its_own_episode(broken, problem):
  makers = []

  def make_environment():
    mine = len(makers)

    async def judge(task, actions):
      result = broken() if mine == 1 else {"success": 1.0}
      return await result if asyncio.iscoroutine(result) else result

    makers.append(tools_of(lambda: "fine", judge=judge, inline=True))
    return makers[-1]()

  episodes, _ = play(
    make_environment,
    group_size=4,
    limits=Limits(step_timeout_seconds=0.2 if broken is fakes.forever else 30),
  )
  for episode in episodes:
    if episode.member == 1:
      assert episode.status is EpisodeStatus.FAILED
      assert problem in episode.error
      assert episode.reward_components == {}
      assert len(episode.rows) == 1
    else:
      assert episode.status is EpisodeStatus.TERMINATED
      assert episode.total_reward == 1.0


def test_a_judge_that_hangs_in_its_thread_costs_its_own_episode():
  release = threading.Event()

  def stuck(task, actions):
    release.wait(PATIENCE)
    return {"success": 1.0}

  (episode,), _ = play(
    tools_of(lambda: "fine", judge=stuck, inline=True),
    group_size=1,
    limits=Limits(step_timeout_seconds=0.2),
  )
  release.set()
  assert episode.status is EpisodeStatus.FAILED
  assert "no answer within 0.2 seconds (score)" in episode.error


def test_slow_rewards_run_at_once():
  """A blocking reward must not hold up the loop (trl#6238, Relax#180)."""
  barrier = threading.Barrier(16)  # opens only while all sixteen run

  def slow(task, actions):
    barrier.wait(PATIENCE)
    return judge(task, actions)

  episodes, _ = play(tools_of(lambda: "fine", judge=slow), group_size=16)
  assert all(episode.success for episode in episodes)
