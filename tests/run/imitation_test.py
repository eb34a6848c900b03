"""The warm start teaches exactly the rows that the policy will meet."""

import asyncio
import functools

import numpy as np
import pytest

from arl_jax.actors.policy import SamplingParams
from arl_jax.actors.rollout import Limits, run_episode
from arl_jax.envs import flight_tasks
from arl_jax.episode import Row
from arl_jax.run import imitation
from arl_jax.run.flight_suite import FlightSettings, flight_booking_suite
from arl_jax.run.warmup import WarmupSettings
from arl_jax.text.chat import ChatFormat
from arl_jax.text.tokenizer import train_tokenizer
from arl_jax.text.tool_calls import Style
from tests.actors import fakes


@functools.cache
def parts(style: Style = "hermes"):
  suite = flight_booking_suite(FlightSettings(style=style))
  texts = [
    text
    for one in suite.demonstrate(200, 0, 0.5, True)
    for observations, action in one.turns
    for text in (*(message.content for message in observations), action)
  ]
  tokenizer = train_tokenizer(
    texts, vocab_size=700, split_pattern=suite.split_pattern
  )
  return suite, tokenizer, ChatFormat(tokenizer)


class Reciter:
  """A policy that says what the expert said, with its stop id."""

  def __init__(self, tokenizer, actions):
    self._tokenizer = tokenizer
    self._actions = iter(actions)

  async def generate(self, token_ids, *, sampling, session):
    ids = self._tokenizer.encode(next(self._actions))
    return fakes.stopped([*ids, self._tokenizer.stop_ids[0]])

  def end_session(self, session):
    pass


@pytest.mark.parametrize("style", ["hermes", "compact"])
def test_a_demonstration_is_the_row_of_its_own_episode(style):
  suite, tokenizer, chat = parts(style)
  number = 12
  tasks = flight_tasks.generate_tasks(number, seed=3, split="warmup")
  demonstrations = suite.demonstrate(number, 3, 0.5, False)
  for task, one in zip(tasks, demonstrations, strict=True):
    row = imitation.demonstration_row(one, chat=chat, tokenizer=tokenizer)
    episode = asyncio.run(
      run_episode(
        Reciter(tokenizer, [action for _, action in one.turns]),
        suite.make_environment(),
        task,
        member=0,
        chat=chat,
        limits=Limits(max_turns=20, max_tokens_per_turn=99, max_length=999),
        sampling=SamplingParams(),
        reward_weights={"success": 1.0},
        seed=0,
        session="s",
      )
    )
    (played,) = episode.rows
    np.testing.assert_array_equal(row.tokens, played.tokens)
    np.testing.assert_array_equal(row.action_mask, played.action_mask)
    np.testing.assert_array_equal(row.turn_ids, played.turn_ids)
    assert episode.success == one.success


def test_every_action_ends_with_a_trained_stop_id():
  suite, tokenizer, chat = parts()
  (one,) = suite.demonstrate(1, 5, 1.0, False)
  row = imitation.demonstration_row(one, chat=chat, tokenizer=tokenizer)
  for turn in range(len(one.turns)):
    last = np.flatnonzero(row.turn_ids == turn)[-1]
    assert row.tokens[last] == tokenizer.stop_ids[0]
    assert row.action_mask[last]


def test_values_are_single_tokens():
  _, tokenizer, _ = parts()
  call = (
    '<tool_call>\n{"name": "search", "arguments": {"from": "BOS", "to": "LAX",'
    ' "date": "May 12", "cabin": "economy"}}\n</tool_call>'
  )
  # Boilerplate and values alternate, so the call is about ten tokens.
  assert len(tokenizer.encode(call)) <= 12


def batches_of(lengths, *, max_length):
  """The first batch of rows of these lengths, drawn again and again."""
  drawn = [row_of(length) for length in lengths]
  return next(
    imitation._batches(
      iter([drawn, drawn]),
      WarmupSettings(batch_size=8),
      max_length=max_length,
      seed=0,
    )
  )


def row_of(length):
  zeros = np.zeros(length, np.int32)
  return Row(
    tokens=zeros,
    action_mask=zeros > 0,
    turn_ids=zeros - 1,
    behavior_logprobs=zeros.astype(np.float32),
    policy_versions=zeros - 1,
  )


def test_episodes_that_are_too_long_are_counted(caplog):
  assert [len(row) for row in batches_of([3, 9, 5, 7], max_length=5)] == [3, 5]
  (record,) = caplog.records
  assert "2 of the first 4 episodes" in record.message
  assert "max_length, 5 tokens; the longest has 9" in record.message
  caplog.clear()
  assert len(batches_of([3, 5], max_length=5)) == 2
  assert not caplog.records


def test_having_nothing_to_imitate_says_what_to_change():
  with pytest.raises(ValueError, match="fits: the shortest has 7 tokens"):
    batches_of([9, 7], max_length=5)
  with pytest.raises(ValueError, match="num_steps is 300; set it to 0"):
    batches_of([], max_length=5)
