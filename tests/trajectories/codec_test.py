"""One episode as JSON."""

import asyncio
import base64
import dataclasses
import json
import tracemalloc

import numpy as np
import pytest

from arl_jax.actors.pool import run_group
from arl_jax.actors.rollout import Limits
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.flight_json import read_hidden
from arl_jax.envs.flight_tasks import generate_tasks
from arl_jax.episode import Episode, EpisodeStatus, Row, Task, Turn
from arl_jax.synthesis.demonstrations import expert_transcripts
from arl_jax.trajectories.codec import (
  SCHEMA_VERSION,
  decode_advantages,
  decode_episode,
  encode_episode,
)
from tests.actors import fakes
from tests.trajectories.examples import (
  assert_same_episode,
  long_groups,
  random_episode,
  random_row,
  row_arrays,
)


def write(episode, **options) -> str:
  record = encode_episode(episode, ordinal=7, step=3, **options)
  return json.dumps(record, allow_nan=False)


def round_trip(episode):
  return decode_episode(json.loads(write(episode)))


def make_episode(**changes) -> Episode:
  fields = {
    "task": Task(task_id="t", prompt="go"),
    "member": 0,
    "status": EpisodeStatus.TERMINATED,
    "rows": (random_row(np.random.default_rng(0), 5),),
    "turns": (Turn(action="a", finish_reason="stop"),),
  }
  return Episode(**fields | changes)


@pytest.mark.parametrize("seed", range(60))
def test_an_episode_comes_back_exactly(seed):
  episode = random_episode(np.random.default_rng(seed), member=seed)
  assert_same_episode(round_trip(episode), episode)


def test_the_random_episodes_reach_the_corners():
  """Without these the property above would say little."""
  episodes = [random_episode(np.random.default_rng(s)) for s in range(60)]
  rows = [row for episode in episodes for row in episode.rows]
  assert {len(episode.rows) for episode in episodes} == {0, 1, 2, 3}
  assert {e.status for e in episodes} == set(EpisodeStatus)
  assert any(len(row) == 0 for row in rows)
  assert any(np.isnan(row.behavior_logprobs).any() for row in rows)
  assert any("\ud83d" in turn.action for e in episodes for turn in e.turns)


def test_a_failed_episode_without_rows_and_turns_comes_back():
  episode = make_episode(
    status=EpisodeStatus.FAILED, rows=(), turns=(), error="reset raised\n..."
  )
  assert_same_episode(round_trip(episode), episode)


def test_the_record_says_what_it_is():
  record = json.loads(write(make_episode(member=2)))
  assert list(record)[:4] == ["schema", "step", "ordinal", "member"]
  assert [record[k] for k in ("schema", "step", "ordinal", "member")] == [
    SCHEMA_VERSION,
    3,
    7,
    2,
  ]


def test_arrays_are_little_endian_bytes():
  """Written down here byte by byte, so that a reader can be written for it."""
  row = Row(
    tokens=np.array([1, 258], np.int32),
    action_mask=np.array([False, True]),
    turn_ids=np.array([-1, 0], np.int32),
    behavior_logprobs=np.array([0, -0.5], np.float32),
    policy_versions=np.array([-1, 3], np.int32),
  )
  (data,) = json.loads(write(make_episode(rows=(row,))))["rows"]
  contents = {
    name: (array["dtype"], array["shape"], base64.b64decode(array["base64"]))
    for name, array in data.items()
    if name not in ("agent_id", "advantages")
  }
  assert contents == {
    "tokens": ("int32", [2], b"\x01\0\0\0\x02\x01\0\0"),
    "action_mask": ("bool", [2], b"\0\x01"),
    "turn_ids": ("int32", [2], b"\xff\xff\xff\xff\0\0\0\0"),
    "behavior_logprobs": ("float32", [2], b"\0\0\0\0\0\0\0\xbf"),
    "policy_versions": ("int32", [2], b"\xff\xff\xff\xff\x03\0\0\0"),
  }
  assert data["advantages"] is None


def test_views_and_other_byte_orders_are_written_as_what_they_mean():
  row = random_row(np.random.default_rng(1), 12)
  views = Row(
    tokens=np.repeat(row.tokens, 2)[::2],
    action_mask=row.action_mask[::-1].copy()[::-1],
    turn_ids=row.turn_ids.astype(">i4"),
    behavior_logprobs=row.behavior_logprobs.astype(">f4"),
    policy_versions=row.policy_versions.astype("i8"),
    agent_id=row.agent_id,
  )
  assert_same_episode(
    round_trip(make_episode(rows=(views,))), make_episode(rows=(row,))
  )


def test_values_that_do_not_fit_the_dtype_are_refused():
  row = random_row(np.random.default_rng(1), 3)
  wide = dataclasses.replace(row, tokens=np.array([1, 2, 2**40]))
  with pytest.raises(ValueError, match="tokens of a row is int64"):
    write(make_episode(rows=(wide,)))


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
def test_rewards_that_are_not_finite_survive(reward):
  turn = Turn(action="a", finish_reason="stop", reward=reward)
  episode = make_episode(turns=(turn,), reward_components={"x": reward})
  found = round_trip(episode)
  np.testing.assert_equal(found.turns[0].reward, reward)
  np.testing.assert_equal(found.reward_components["x"], reward)


def test_lone_surrogates_are_written_as_ascii():
  """Text that no UTF-8 file can hold must not cost the step its file."""
  turn = Turn(action="\ud800 \udfff \ud83d", finish_reason="stop")
  text = write(make_episode(turns=(turn,)))
  assert text.isascii()
  (found,) = decode_episode(json.loads(text)).turns
  assert found == turn


def test_the_halves_of_a_pair_come_back_joined():
  """JSON cannot tell them from the character; no tokenizer makes them."""
  turn = Turn(action="\ud83d\ude00", finish_reason="stop")
  (found,) = round_trip(make_episode(turns=(turn,))).turns
  assert found.action == "\N{GRINNING FACE}"


def test_hidden_values_that_json_lacks_are_named():
  task = Task(task_id="flight-3", prompt="go", hidden={"world": [{1}]})
  with pytest.raises(
    ValueError, match=r"task 'flight-3': hidden\.world\[0\] is a set"
  ):
    write(make_episode(task=task))


def test_advantages_come_back_with_their_rows():
  rng = np.random.default_rng(0)
  rows = tuple(random_row(rng, n) for n in (4, 0, 3))
  given = [np.array([0, np.nan, 1, -2], "f4"), None, np.ones(3, "f4")]
  text = write(make_episode(rows=rows), advantages=given)
  first, second, third = decode_advantages(json.loads(text))
  assert first is not None
  assert first.dtype == np.float32
  assert first.flags.owndata
  np.testing.assert_array_equal(first, given[0])
  assert second is None
  np.testing.assert_array_equal(third, np.ones(3, "f4"))
  text = write(make_episode(rows=rows))
  assert decode_advantages(json.loads(text)) == (None, None, None)


@pytest.mark.parametrize(
  ("advantages", "message"),
  [
    ([], "advantages has 0 arrays for an episode of 1 rows"),
    ([np.zeros(4, "f4")], r"shape \(4,\); expected \(5,\)"),
    ([np.zeros((5, 1), "f4")], r"shape \(5, 1\); expected \(5,\)"),
  ],
)
def test_advantages_that_fit_no_row_are_refused(advantages, message):
  with pytest.raises(ValueError, match=message):
    write(make_episode(), advantages=advantages)


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_another_schema_is_refused_with_what_to_do(schema):
  record = json.loads(write(make_episode())) | {"schema": schema}
  for decode in (decode_episode, decode_advantages):
    with pytest.raises(
      ValueError, match=f"schema is {schema!r}; expected 1. Read it with"
    ):
      decode(record)


def _paths(value, path=()):
  """Every place of a record, without what tasks hide."""
  if path:
    yield path
  if path[-1:] in (("hidden",), ("shape",)):
    return
  items = value.items() if isinstance(value, dict) else ()
  items = enumerate(value) if isinstance(value, list) else items
  for key, item in items:
    yield from _paths(item, (*path, key))


def _damaged(text: str):
  """Yields the record with one field gone, or of another type, each time."""
  for *parents, last in _paths(json.loads(text)):
    for wrong in (None, [[]], {"a": 1}, True, "\u00e9"):
      record = json.loads(text)
      place = record
      for key in parents:
        place = place[key]
      if wrong is not None:
        same_type = isinstance(place[last], type(wrong))
        if same_type or (last == "state_key" and isinstance(wrong, str)):
          continue
        place[last] = wrong
      elif isinstance(last, int) or last in _MAY_BE_ABSENT:
        continue
      else:
        del place[last]
      yield (*parents, last), wrong, record


_MAY_BE_ABSENT = ("state_key", "advantages", "success")


def test_every_field_that_is_missing_or_wrong_is_a_value_error():
  """Never a TypeError or a KeyError, and never an episode of nonsense."""
  episode = make_episode(
    prompt=(fakes.Message(role="user", content="x"),),
    reward_components={"success": 1.0},
  )
  text = write(episode, advantages=[np.zeros(5, "f4")])
  accepted, num_refused = [], 0
  for path, wrong, record in _damaged(text):
    try:
      decode_episode(record)
      decode_advantages(record)
    except ValueError:
      num_refused += 1
    else:
      accepted.append((path, wrong))
  assert not accepted
  assert num_refused > 200


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"dtype": "int64"}, "tokens.dtype is 'int64'; expected int32"),
    ({"shape": [4]}, r"tokens has 20 bytes and the shape \[4\]"),
    ({"shape": [5, 1]}, r"shape \[5, 1\]"),
    ({"base64": "!!!!"}, "tokens is not base64"),
    ({"base64": "\u00e9"}, "ASCII"),
  ],
)
def test_a_damaged_array_is_refused(change, message):
  record = json.loads(write(make_episode()))
  record["rows"][0]["tokens"] |= change
  with pytest.raises(ValueError, match=message):
    decode_episode(record)


def test_a_row_whose_arrays_differ_in_length_is_refused():
  record = json.loads(write(make_episode()))
  other = json.loads(
    write(make_episode(rows=(random_row(np.random.default_rng(0), 4),)))
  )
  record["rows"][0]["turn_ids"] = other["rows"][0]["turn_ids"]
  with pytest.raises(ValueError, match="differ in length"):
    decode_episode(record)


# --------------------------------------------------------- flight booking

FLIGHT_TASKS = generate_tasks(12, seed=0, split="train")


def play_group(task: Task, ordinal: int):
  """Runs the real loop; the policy says what the careful expert said."""
  (expert,) = expert_transcripts([task])

  def script(turn, sampling):
    return fakes.say(expert.turns[turn].action)

  actor = fakes.make_actor(
    fakes.FakePolicy(script),
    FlightBookingEnv,  # type: ignore[arg-type]
    limits=Limits(max_turns=40, max_tokens_per_turn=4096, max_length=100_000),
  )
  return asyncio.run(run_group(actor, task, ordinal=ordinal, group_size=2))


@pytest.mark.parametrize("index", range(12))
def test_a_real_episode_comes_back_and_its_task_replays(index):
  group = play_group(FLIGHT_TASKS[index], index)
  for episode in group.episodes:
    found = round_trip(episode)
    assert_same_episode(found, episode)
    assert found.task == FLIGHT_TASKS[index]
    assert read_hidden(found.task.hidden) == read_hidden(episode.task.hidden)
    assert replay(found) == (
      found.prompt,
      [turn.observations for turn in found.turns],
      found.reward_components["success"],
    )


def replay(episode: Episode):
  """Plays the actions again in the world of the episode's task."""

  async def play():
    environment = FlightBookingEnv()
    prompt = tuple(await environment.reset(episode.task, seed=0))
    answers = [
      (await environment.step(turn.action)).observations
      for turn in episode.turns
    ]
    return prompt, answers, (await environment.score())["success"]

  return asyncio.run(play())


# ----------------------------------------------------------------- memory


def test_a_thousand_long_rollouts_are_held_as_arrays():
  """Lists of boxed numbers take 36 bytes a token (prime-rl#2796)."""
  num_episodes, num_tokens = 1000, 1000
  lines = [
    write(episode)
    for group in long_groups(num_episodes=num_episodes, num_tokens=num_tokens)
    for episode in group.episodes
  ]
  total = num_episodes * num_tokens
  tracemalloc.start()
  episodes = [decode_episode(json.loads(line)) for line in lines]
  held, _ = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  arrays = [
    array
    for episode in episodes
    for row in episode.rows
    for array in row_arrays(row).values()
  ]
  assert all(isinstance(array, np.ndarray) for array in arrays)
  # Four arrays of 4 bytes and one of 1 byte a token.
  assert sum(array.nbytes for array in arrays) == 17 * total
  assert held < 24 * total
  # On disk: 17 bytes as base64 and some for all else.
  assert sum(map(len, lines)) < 24 * total
