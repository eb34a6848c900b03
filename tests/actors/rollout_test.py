"""One episode, from its prompt to whatever ends it."""

import asyncio
import dataclasses

import numpy as np
import pytest

from arl_jax.actors.policy import Completion
from arl_jax.actors.rollout import Limits, SamplingParams, run_episode
from arl_jax.envs.environment import StepResult
from arl_jax.episode import EpisodeStatus, Message, Task
from tests.actors import fakes
from tests.actors.fakes import CHAT, STOP, TASK, TOKENIZER, say, twins

SCRIPT = [say("one"), say("two"), say("done")]
WEIGHTS = {"success": 1.0, "step": 0.25}


def scripted(turn, sampling):
  return SCRIPT[turn]


def play(policy, environment=None, *, limits=None, task=TASK, **changes):
  settings = {
    "member": 0,
    "chat": CHAT,
    "limits": limits or Limits(),
    "sampling": SamplingParams(),
    "reward_weights": WEIGHTS,
    "seed": 5,
    "session": "s",
  }
  return asyncio.run(
    run_episode(
      policy, environment or fakes.FakeEnvironment(), task, **settings | changes
    )
  )


def check_row(episode, policy):
  """Holds for every episode, however it ended."""
  assert policy.ended == ["s"]
  (row,) = episode.rows
  assert row.tokens.dtype == row.turn_ids.dtype == np.int32
  assert row.policy_versions.dtype == np.int32
  assert row.behavior_logprobs.dtype == np.float32
  assert row.action_mask.dtype == np.bool_
  sampled = [i for call in policy.calls for i in call.sampled]
  assert row.tokens[row.action_mask].tolist() == sampled
  assert episode.num_action_tokens == len(sampled)
  assert (row.turn_ids[~row.action_mask] == -1).all()
  assert (row.policy_versions[~row.action_mask] == -1).all()
  assert (row.behavior_logprobs[~row.action_mask] == 0).all()
  turns = row.turn_ids[row.action_mask]
  assert turns.max(initial=-1) + 1 == len(episode.turns)
  return row


def test_the_row_is_what_was_fed_and_sampled():
  policy = fakes.FakePolicy(scripted)
  episode = play(policy)
  row = check_row(episode, policy)
  assert TOKENIZER.decode(row.tokens) == (
    "<user>go<end>\n<assistant>one<end>"
    "\n<tool>seen<end>\n<assistant>two<end>"
    "\n<tool>seen<end>\n<assistant>done<end>"
  )
  # Prompt of 6 ids, observation of 9 ids; 4, 4 and 5 sampled.
  mask = [0] * 6 + [1] * 4 + [0] * 9 + [1] * 4 + [0] * 9 + [1] * 5
  assert row.action_mask.tolist() == [bool(m) for m in mask]
  assert row.turn_ids[row.action_mask].tolist() == [0] * 4 + [1] * 4 + [2] * 5
  assert row.behavior_logprobs[6:10].tolist() == [-0.125, -0.25, -0.375, -0.5]
  assert episode.status is EpisodeStatus.TERMINATED
  assert [turn.action for turn in episode.turns] == ["one", "two", "done"]


def test_sampled_ids_are_never_encoded_again():
  policy = fakes.FakePolicy(scripted)
  row = check_row(play(policy), policy)
  text = TOKENIZER.decode(row.tokens)
  assert TOKENIZER.encode(text) != row.tokens.tolist()
  assert all(i >= fakes.TWIN or i == STOP for i in row.tokens[row.action_mask])


def test_each_prompt_continues_the_row_of_the_turn_before():
  policy = fakes.FakePolicy(scripted)
  play(policy)
  first, second, third = policy.calls
  for earlier, later in ((first, second), (second, third)):
    before = earlier.fed + earlier.sampled
    assert later.fed[: len(before)] == before
    assert len(later.fed) > len(before)


def test_the_mask_counts_the_sampled_tokens_alone():
  # No text is searched for: a tool that says what the policy says, a role
  # marker or the gold answer changes no mask.
  def on_step(environment, action):
    content = "one<end>\n<assistant>done"
    return StepResult(observations=(Message(role="tool", content=content),))

  policy = fakes.FakePolicy(scripted)
  episode = play(
    policy, fakes.FakeEnvironment(on_step), limits=Limits(max_turns=3)
  )
  row = check_row(episode, policy)
  assert row.action_mask.sum() == 4 + 4 + 5
  assert (row.tokens == STOP).sum() == 3 + 3  # sampled, and the template's own


def test_a_finished_turn_ends_with_its_stop_id_in_the_mask():
  policy = fakes.FakePolicy(scripted)
  row = check_row(play(policy), policy)
  for turn in range(3):
    last = np.flatnonzero(row.turn_ids == turn)[-1]
    assert row.tokens[last] == STOP
    assert row.action_mask[last]


def test_an_inserted_terminator_is_no_action():
  policy = fakes.FakePolicy(
    lambda turn, _: [twins("abcdef"), say("done")][turn]
  )
  episode = play(policy, limits=Limits(max_tokens_per_turn=5))
  row = check_row(episode, policy)
  assert [turn.finish_reason for turn in episode.turns] == ["length", "stop"]
  assert episode.turns[0].action == "abcde"
  assert TOKENIZER.decode(row.tokens[6:]) == (
    "abcde<end>\n<tool>seen<end>\n<assistant>done<end>"
  )
  assert row.tokens[11] == STOP
  assert not row.action_mask[11]


def test_a_policy_that_takes_off_its_stop_id_gets_one_terminator():
  class Stripping(fakes.FakePolicy):
    async def generate(self, token_ids, **kwargs):
      completion = await super().generate(token_ids, **kwargs)
      return dataclasses.replace(completion, finish_reason="stop")

  policy = Stripping(lambda turn, _: [twins("one"), say("done")][turn])
  row = check_row(play(policy), policy)
  assert TOKENIZER.decode(row.tokens).count("one<end>\n<tool>") == 1


def test_a_stop_id_that_spends_the_budget_is_still_a_stop():
  policy = fakes.FakePolicy(scripted)
  episode = play(policy, limits=Limits(max_tokens_per_turn=5))
  assert episode.turns[2].finish_reason == "stop"
  assert episode.status is EpisodeStatus.TERMINATED


def test_control_ids_inside_an_action_stay():
  action = [2, *twins("a"), 4, *twins("b"), STOP]
  policy = fakes.FakePolicy(lambda turn, _: [action, say("done")][turn])
  episode = play(policy)
  check_row(episode, policy)
  assert episode.turns[0].action == "<user>a<tool>b"


def test_versions_are_those_of_each_token():
  class Switching(fakes.FakePolicy):
    async def generate(self, token_ids, **kwargs):
      completion = await super().generate(token_ids, **kwargs)
      versions = completion.policy_versions + len(self.calls)
      versions[1:] += 1  # new weights after the first token of a turn
      return dataclasses.replace(completion, policy_versions=versions)

  row = check_row(
    play(policy := Switching(scripted)),
    policy,
  )
  assert row.policy_versions[row.action_mask].tolist() == (
    [1, 2, 2, 2] + [2, 3, 3, 3] + [3, 4, 4, 4, 4]
  )


@pytest.mark.parametrize("max_length", range(7, 42))
def test_nothing_ever_exceeds_the_room_that_is_left(max_length):
  # The prompt has 6 ids, the whole episode 37.
  policy = fakes.FakePolicy(scripted)
  policy.max_length = max_length
  episode = play(
    policy, limits=Limits(max_length=max_length, max_tokens_per_turn=30)
  )
  row = check_row(episode, policy)
  assert len(row) <= max_length
  for call in policy.calls:
    assert call.sampling.max_tokens == min(30, max_length - len(call.fed))
  whole = max_length >= 36  # all but the last stop id
  status = EpisodeStatus.TERMINATED if whole else EpisodeStatus.MAX_TOKENS
  assert len(policy.calls) == 1 + (max_length > 19) + (max_length > 32)
  assert episode.status is status
  assert episode.status.truncated is not whole


def test_an_observation_without_room_for_an_action_is_left_out():
  # 6 + 4 ids, then an observation of 9: at 19 nothing could follow it.
  policy = fakes.FakePolicy(scripted)
  episode = play(policy, limits=Limits(max_length=19))
  assert len(episode.rows[0]) == 10
  assert len(episode.turns) == 1
  assert episode.turns[0].observations[0].content == "seen"
  episode = play(fakes.FakePolicy(scripted), limits=Limits(max_length=20))
  assert len(episode.turns) == 2


def test_a_prompt_without_room_fails_and_says_why():
  policy = fakes.FakePolicy(scripted)
  episode = play(policy, limits=Limits(max_length=6))
  assert episode.status is EpisodeStatus.FAILED
  assert "6 tokens and max_length is 6" in episode.error
  assert episode.rows == ()
  assert not policy.calls
  assert policy.ended == ["s"]


def test_the_turn_limit_ends_the_episode_once():
  policy = fakes.FakePolicy(scripted)
  environment = fakes.FakeEnvironment()
  episode = play(policy, environment, limits=Limits(max_turns=2))
  row = check_row(episode, policy)
  assert episode.status is EpisodeStatus.MAX_TURNS
  assert episode.status.truncated
  assert row.action_mask[-1]  # no observation that nobody will answer
  assert environment.num_scores == 1


def test_the_end_of_the_task_counts_before_the_limits():
  policy = fakes.FakePolicy(scripted)
  episode = play(policy, limits=Limits(max_turns=3, max_length=37))
  assert episode.status is EpisodeStatus.TERMINATED
  assert not episode.status.truncated


def test_rewards_are_weighted_and_the_score_lands_on_the_last_turn():
  episode = play(fakes.FakePolicy(scripted))
  assert [turn.reward for turn in episode.turns] == [0.25, 0.25, 1.25]
  assert episode.reward_components == {
    "step": 3.0,
    "success": 1.0,
    "unweighted": 7.0,
  }
  assert episode.success
  weighted = sum(
    WEIGHTS.get(name, 0.0) * value
    for name, value in episode.reward_components.items()
  )
  assert episode.total_reward == weighted


def test_a_turn_keeps_its_penalty_and_the_state_before_it():
  def on_step(environment, action):
    if action == "done":
      return None
    return StepResult(
      observations=(Message(role="tool", content="no"),),
      rewards={"penalty": -0.5, "step": 1.0},
      num_tool_calls=2,
      num_tool_errors=1,
      state_key="x",
    )

  episode = play(
    fakes.FakePolicy(scripted),
    fakes.FakeEnvironment(on_step),
    reward_weights={"penalty": 0.5, "success": 1.0},
  )
  assert [turn.reward for turn in episode.turns] == [-0.25, -0.25, 1.0]
  first, *rest = [turn.state_key for turn in episode.turns]
  assert str(first).startswith("prompt/")
  assert rest == ["x", "x"]
  assert episode.turns[0].num_tool_calls == 2
  assert episode.turns[0].num_tool_errors == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_fails_the_episode(value):
  def on_step(environment, action):
    return StepResult(rewards={"broken": value}, terminated=True)

  episode = play(fakes.FakePolicy(scripted), fakes.FakeEnvironment(on_step))
  assert episode.status is EpisodeStatus.FAILED
  assert "reward component 'broken'" in episode.error
  assert np.isfinite(episode.total_reward)


def raise_key_error(*_):
  raise KeyError("seats")


def test_a_broken_environment_fails_its_episode_with_the_cause():
  def on_step(environment, action):
    return raise_key_error() if action == "two" else None

  policy = fakes.FakePolicy(scripted)
  environment = fakes.FakeEnvironment(on_step)
  episode = play(policy, environment)
  row = check_row(episode, policy)
  assert episode.status is EpisodeStatus.FAILED
  assert episode.error.startswith("environment.step raised KeyError: 'seats'")
  assert "raise_key_error" in episode.error  # where it happened
  assert row.turn_ids.max() == 1
  assert len(episode.turns) == 2
  assert episode.reward_components == {}
  assert not episode.success
  assert environment.num_scores == 0


def test_an_environment_that_times_out_inside_is_broken_not_late():
  def on_step(environment, action):
    raise TimeoutError("the database")

  episode = play(fakes.FakePolicy(scripted), fakes.FakeEnvironment(on_step))
  assert episode.status is EpisodeStatus.FAILED
  assert "the database" in episode.error


@pytest.mark.parametrize("method", ["reset", "score"])
@pytest.mark.parametrize("how", [raise_key_error, fakes.forever])
def test_broken_or_stuck_ends_fail_the_episode(method, how):
  environment = fakes.FakeEnvironment()

  async def broken(*_, **__):
    result = how()
    if result is not None:
      await result

  setattr(environment, method, broken)
  policy = fakes.FakePolicy(scripted)
  episode = play(policy, environment, limits=Limits(step_timeout_seconds=0.005))
  assert episode.status is EpisodeStatus.FAILED
  assert method in episode.error
  assert len(episode.rows) == (method == "score")
  assert policy.ended == ["s"]


def test_a_tool_that_never_answers_is_an_observation():
  def on_step(environment, action):
    return fakes.forever() if action == "one" else None

  policy = fakes.FakePolicy(scripted)
  episode = play(
    policy,
    fakes.FakeEnvironment(on_step),
    limits=Limits(step_timeout_seconds=0.005),
  )
  row = check_row(episode, policy)
  assert episode.status is EpisodeStatus.TERMINATED
  assert episode.turns[0].num_tool_errors == 1
  assert "no answer within 0.005 seconds" in TOKENIZER.decode(row.tokens)
  assert episode.turns[1].num_tool_errors == 0


def test_a_stuck_step_ends_with_the_time_of_the_episode():
  policy = fakes.FakePolicy(scripted)
  environment = fakes.FakeEnvironment(fakes.forever)
  episode = play(
    policy, environment, limits=Limits(episode_timeout_seconds=0.005)
  )
  check_row(episode, policy)
  assert episode.status is EpisodeStatus.TIMEOUT
  assert episode.status.truncated
  assert [turn.action for turn in episode.turns] == ["one"]
  assert environment.num_scores == 1


class StuckPolicy(fakes.FakePolicy):
  """Never answers in turn 1."""

  def __init__(self, script):
    super().__init__(script)
    self.stuck = asyncio.Event()

  async def generate(self, token_ids, *, sampling, session):
    if self.calls:
      self.stuck.set()
      await fakes.forever()
    return await super().generate(token_ids, sampling=sampling, session=session)


def test_a_stuck_policy_ends_with_the_time_of_the_episode():
  policy = StuckPolicy(scripted)
  episode = play(policy, limits=Limits(episode_timeout_seconds=0.005))
  row = check_row(episode, policy)
  assert episode.status is EpisodeStatus.TIMEOUT
  assert len(episode.turns) == 1
  assert not row.action_mask[-1]  # the observation was fed already


def test_a_bug_of_the_policy_is_raised():
  def script(turn, sampling):
    raise ZeroDivisionError("engine")

  policy = fakes.FakePolicy(script)
  with pytest.raises(ZeroDivisionError, match="engine"):
    play(policy)
  assert policy.ended == ["s"]


def test_a_time_out_inside_the_policy_is_a_bug_of_the_policy():
  def script(turn, sampling):
    raise TimeoutError("server")

  with pytest.raises(TimeoutError, match="server"):
    play(fakes.FakePolicy(script))


def test_cancellation_is_raised_and_the_session_ended():
  policy = StuckPolicy(scripted)

  async def main():
    task = asyncio.create_task(
      run_episode(
        policy,
        fakes.FakeEnvironment(),
        TASK,
        member=0,
        chat=CHAT,
        limits=Limits(),
        sampling=SamplingParams(),
        reward_weights=WEIGHTS,
        seed=0,
        session="s",
      )
    )
    await policy.stuck.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
      await task

  asyncio.run(main())
  assert policy.ended == ["s"]


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"logprobs": np.zeros(1, np.float32)}, "lengths"),
    ({"policy_versions": np.zeros(9, np.int32)}, "lengths"),
    ({"token_ids": np.zeros(200, np.int32)}, "max_tokens was 128"),
  ],
)
def test_a_malformed_completion_stops_the_run(change, message):
  class Malformed(fakes.FakePolicy):
    async def generate(self, token_ids, **kwargs) -> Completion:
      completion = await super().generate(token_ids, **kwargs)
      return dataclasses.replace(completion, **change)

  with pytest.raises(ValueError, match=message):
    play(Malformed(scripted))


def test_no_observation_though_the_task_goes_on_fails_the_episode():
  environment = fakes.FakeEnvironment(lambda *_: StepResult())
  policy = fakes.FakePolicy(scripted)
  episode = play(policy, environment)
  check_row(episode, policy)
  assert episode.status is EpisodeStatus.FAILED
  assert "must answer every action" in episode.error


def test_seeds_differ_by_turn_and_repeat_by_run():
  seeds = []
  for seed in (5, 5, 6):
    policy = fakes.FakePolicy(scripted)
    play(policy, seed=seed)
    seeds.append([call.sampling.seed for call in policy.calls])
  assert seeds[0] == seeds[1]
  assert len({*seeds[0], *seeds[2]}) == 6


def test_stop_ids_default_to_those_of_the_tokenizer():
  policy = fakes.FakePolicy(scripted)
  play(policy, sampling=SamplingParams(temperature=0.5, top_k=3))
  sampling = policy.calls[0].sampling
  assert sampling.stop_ids == TOKENIZER.stop_ids
  assert (sampling.temperature, sampling.top_k) == (0.5, 3)
  policy = fakes.FakePolicy(scripted)
  play(policy, sampling=SamplingParams(stop_ids=(STOP, 77)))
  assert policy.calls[0].sampling.stop_ids == (STOP, 77)


def test_the_environment_hears_the_action_without_its_stop_token():
  environment = fakes.FakeEnvironment()
  play(fakes.FakePolicy(scripted), environment)
  assert environment.actions == ["one", "two", "done"]


def test_rows_are_compact():
  policy = fakes.FakePolicy(lambda turn, _: say("x" * 900))
  task = Task(task_id="long", prompt="y" * 1000)
  episode = play(
    policy,
    task=task,
    limits=Limits(max_turns=8, max_tokens_per_turn=1000, max_length=20000),
  )
  (row,) = episode.rows
  arrays = [
    getattr(row, field.name)
    for field in dataclasses.fields(row)
    if field.name != "agent_id"
  ]
  assert len(row) > 8000
  assert sum(array.nbytes for array in arrays) == 17 * len(row)
  assert all(array.base is None for array in arrays)


@pytest.mark.parametrize(
  "name", [f.name for f in dataclasses.fields(Limits) if f.name != "context"]
)
def test_limits_must_be_positive(name):
  with pytest.raises(ValueError, match=f"{name} is 0"):
    Limits(**{name: 0})  # pyright: ignore[reportArgumentType]
