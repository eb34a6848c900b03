"""Episodes that go on in rows with shorter contexts."""

import asyncio
import collections
import dataclasses
import random

import numpy as np
import pytest

from arl_jax.actors.context import NOTE, ContextPolicy, shorten
from arl_jax.actors.pool import run_group
from arl_jax.actors.rollout import Limits, SamplingParams, run_episode
from arl_jax.bridge import batching
from arl_jax.envs.environment import StepResult
from arl_jax.episode import EpisodeStatus, Group, Message, Turn
from tests.actors import fakes
from tests.actors.fakes import CHAT, TASK, TOKENIZER, make_actor, say, twins


def tell(environment, action):
  """A long answer to each action."""
  seen = Message(role="tool", content="seen " * 6)
  return StepResult(observations=(seen,), rewards={"step": 1.0})


def play(script, *, limits, environment=None):
  policy = fakes.FakePolicy(script)
  policy.max_length = limits.max_length
  episode = asyncio.run(
    run_episode(
      policy,
      environment or fakes.FakeEnvironment(tell),
      TASK,
      member=0,
      chat=CHAT,
      limits=limits,
      sampling=SamplingParams(),
      reward_weights={"success": 1.0, "step": 0.25},
      seed=5,
      session="s",
    )
  )
  check_rows(episode, policy)
  return episode, policy


def check_rows(episode, policy):
  """Holds for every episode, however often its context was shortened."""
  assert not policy.alive
  # What was sampled is trained, all of it, once, in its order.
  sampled = [i for call in policy.calls for i in call.sampled]
  trained = [row.tokens[row.action_mask].tolist() for row in episode.rows]
  assert sum(trained, []) == sampled
  logprobs = [-(i + 1) / 8 for c in policy.calls for i in range(len(c.sampled))]
  found = [row.behavior_logprobs[row.action_mask] for row in episode.rows]
  assert np.concatenate(found).tolist() == logprobs
  turns = np.concatenate([r.turn_ids[r.action_mask] for r in episode.rows])
  assert (np.diff(turns) >= 0).all()
  assert np.unique(turns).tolist() == list(range(len(episode.turns)))
  # Each row is what its session was fed and what it sampled; the policy itself
  # checks that a session is only ever appended to.
  by_session = collections.defaultdict(list)
  for call in policy.calls:
    by_session[call.session].append(call)
  assert len(by_session) == len(episode.rows)
  for row, calls in zip(episode.rows, by_session.values(), strict=True):
    seen = calls[-1].fed + calls[-1].sampled
    assert row.tokens[: len(seen)].tolist() == seen
    assert not row.action_mask[len(seen) :].any()
    assert not row.action_mask[: len(calls[0].fed)].any()
    # A later row begins with the prompt, as the first one does.
    prompt = policy.calls[0].fed
    assert calls[0].fed[: len(prompt)] == prompt


def test_sixty_turns_fit_a_short_row():
  limits = Limits(
    max_turns=60,
    max_length=256,
    context=ContextPolicy(max_rows=20, keep_turns=2),
  )
  words = ["look", "read on", "go"]

  def script(turn, sampling):
    return say(words[sampling.seed % 3])

  without = Limits(max_turns=60, max_length=256)
  ended, _ = play(script, limits=without)
  assert ended.status is EpisodeStatus.MAX_TOKENS
  assert len(ended.turns) < 20

  episode, policy = play(script, limits=limits)
  assert episode.status is EpisodeStatus.MAX_TURNS
  assert len(episode.turns) == 60
  assert 3 <= len(episode.rows) <= 20
  assert max(map(len, episode.rows)) <= 256
  assert policy.ended[:2] == ["s", "s/row-1"]
  # What was said in the first row is context in the second.
  first, second = episode.rows[:2]
  text = TOKENIZER.decode(second.tokens[~second.action_mask])
  assert NOTE in text
  said = "".join(turn.action for turn in episode.turns[:2])
  assert first.action_mask.sum() >= len(said)
  # Each turn's reward lands in the row of its action.
  batch = batching.collate_groups(
    [group_of(episode)],
    num_rows=20,
    length=256,
    num_turns=60,
    min_group_size=1,
  )
  assert np.sum(batch.turn_mask) == 60
  assert np.sum(batch.turn_rewards) == pytest.approx(episode.total_reward)
  trained = np.sum(batch.action_mask)
  assert trained == episode.num_action_tokens


def group_of(episode):
  return Group(ordinal=0, task=TASK, episodes=(episode,))


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_said_is_trained_once(seed):
  rng = random.Random(seed)
  limits = Limits(
    max_turns=rng.randint(1, 30),
    max_length=rng.randint(60, 300),
    max_tokens_per_turn=rng.randint(3, 30),
    context=ContextPolicy(
      max_rows=rng.randint(2, 9),
      keep_turns=rng.randint(1, 4),
      max_tokens=rng.choice([0, 0, 50, 120]),
      max_turns=rng.choice([0, 0, 1, 3]),
    ),
  )

  def script(turn, sampling):
    draws = random.Random(sampling.seed)
    word = "".join(draws.choices("abc", k=draws.randint(0, 20)))
    # Some actions end at their budget, without a stop id.
    return say(word) if draws.random() < 0.8 else twins(word + "xyz" * 20)

  def on_step(environment, action):
    draws = random.Random(f"{seed} {len(environment.actions)}")
    messages = [
      Message(role="tool", content="o" * draws.randint(0, 40))
      for _ in range(draws.randint(1, 3))
    ]
    return StepResult(
      observations=tuple(messages), terminated=draws.random() < 0.03
    )

  episode, policy = play(
    script, limits=limits, environment=fakes.FakeEnvironment(on_step)
  )
  assert episode.status.finished
  assert limits.context is not None
  assert len(episode.rows) <= limits.context.max_rows
  assert max(map(len, episode.rows)) <= limits.max_length


PROMPT = CHAT.prompt_ids([Message(role="user", content="go")])


def told(*pairs):
  """Actions and turns of (action, observation)."""
  turns = [
    Turn(
      action=action,
      finish_reason="stop",
      observations=(Message(role="tool", content=seen),),
    )
    for action, seen in pairs
  ]
  return [np.asarray(say(action), np.int32) for action, _ in pairs], turns


LONG = "a long observation"


def shortened(*pairs, **options):
  actions, turns = told(*pairs)
  found = shorten(PROMPT, actions, turns, chat=CHAT, **options)
  assert found.dtype == np.int32
  return TOKENIZER.decode(found)


def test_old_observations_leave_a_note_and_actions_stay():
  found = shortened(
    ("zero", "brief"),
    ("one", LONG),
    ("two", LONG),
    ("three", "third"),
    keep_turns=2,
    max_length=1000,
  )
  assert found == (
    "<user>go<end>\n<assistant>zero<end>"
    "\n<tool>brief<end>\n<assistant>one<end>"
    f"\n<tool>{NOTE}<end>\n<assistant>two<end>"
    f"\n<tool>{LONG}<end>\n<assistant>three<end>"
    "\n<tool>third<end>\n<assistant>"
  )


def test_the_oldest_turns_go_where_more_than_half_of_the_row_is_full():
  pairs = [(word, "seen") for word in ("one", "two", "six", "ten")]
  whole = len(TOKENIZER.encode(shortened(*pairs, keep_turns=1, max_length=999)))
  words = [
    word
    for word in ("one", "two", "six")
    if word in shortened(*pairs, keep_turns=1, max_length=2 * whole - 1)
  ]
  assert words == ["two", "six"]
  # The turns that are kept in full stay as long as there is room at all.
  found = shortened(*pairs, keep_turns=4, max_length=whole + 1)
  assert found.count("seen") == 4
  found = shortened(*pairs, keep_turns=4, max_length=40)
  assert [word for word, _ in pairs if word in found] == ["six", "ten"]
  # The last one is always there, whether it fits or not.
  assert "ten" in shortened(*pairs, keep_turns=4, max_length=1)


def test_an_action_that_was_cut_off_keeps_its_terminator():
  actions, turns = told(("one", LONG), ("two", "second"))
  turns[0] = dataclasses.replace(turns[0], finish_reason="length")
  actions[0] = actions[0][:-1]
  found = shorten(
    PROMPT,
    actions,
    turns,
    chat=CHAT,
    keep_turns=1,
    max_length=1000,
  )
  assert f"one<end>\n<tool>{NOTE}<end>" in TOKENIZER.decode(found)


def test_a_row_ends_after_its_turns_or_tokens():
  def script(turn, sampling):
    return say("go")

  def turns_of(**options):
    limits = Limits(
      max_turns=7, context=ContextPolicy(max_rows=9, keep_turns=1, **options)
    )
    episode, _ = play(script, limits=limits)
    return [len({*row.turn_ids} - {-1}) for row in episode.rows]

  assert turns_of() == [7]
  assert turns_of(max_turns=3) == [3, 3, 1]
  # 6 of the prompt, 3 of an action and 35 of an observation twice are 82.
  assert turns_of(max_tokens=82)[0] == 2
  assert turns_of(max_tokens=83)[0] == 3


def test_the_last_row_ends_with_its_limits():
  def script(turn, sampling):
    return say("go on and on")

  limits = Limits(
    max_turns=99, max_length=120, context=ContextPolicy(max_rows=3)
  )
  episode, _ = play(script, limits=limits)
  assert episode.status is EpisodeStatus.MAX_TOKENS
  assert len(episode.rows) == 3


def test_a_row_in_which_nothing_was_sampled_is_left_out():
  class Stuck(fakes.FakePolicy):
    async def generate(self, token_ids, *, sampling, session):
      if session.endswith("row-1"):
        await fakes.forever()
      return await super().generate(
        token_ids, sampling=sampling, session=session
      )

  actor = make_actor(
    Stuck(lambda turn, sampling: say("go")),
    lambda: fakes.FakeEnvironment(tell),
    limits=Limits(
      episode_timeout_seconds=0.05,
      context=ContextPolicy(max_rows=3, max_turns=2, keep_turns=1),
    ),
  )
  group = asyncio.run(run_group(actor, TASK, ordinal=0, group_size=2))
  for episode in group.episodes:
    assert episode.status is EpisodeStatus.TIMEOUT
    assert len(episode.rows) == 1
    assert len(episode.turns) == 2


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"max_rows": 1}, "max_rows is 1; expected 2 or more"),
    ({"max_rows": 2, "keep_turns": 0}, "keep_turns is 0; expected 1"),
    ({"max_rows": 2, "max_turns": -1}, "max_turns is -1; expected 0"),
  ],
)
def test_mistakes_are_named(fields, message):
  with pytest.raises(ValueError, match=message):
    ContextPolicy(**fields)
