"""Tests of question answering with a search tool."""

import asyncio
import json

import pytest

from arl_jax.envs.inline import run_inline
from arl_jax.envs.search_environment import (
  NO_TAG,
  PREMATURE,
  REWARDS,
  TOO_MANY,
  SearchEnv,
  read_information,
)
from arl_jax.episode import Task
from tests.envs import tiny_world

NUMBER = 3
NAME, CAPITAL = tiny_world.name_of(NUMBER), tiny_world.capital_of(NUMBER)
PASSAGE = f"c{NUMBER:02d}/government/capital"
TASK = Task(
  task_id="t",
  prompt=f"What is the capital of {NAME}?",
  hidden={
    "answers": [CAPITAL, f"{CAPITAL} (old)"],
    "evidence": [[PASSAGE, f"name: {CAPITAL}"]],
  },
)
SEARCH = f"<search>{NAME} capital</search>"
OPEN = f"<open>{PASSAGE}</open>"
RIGHT = f"<answer>{CAPITAL}</answer>"
WRONG = "<answer>Rome</answer>"


def call(name: str, **arguments: str) -> str:
  body = json.dumps({"name": name, "arguments": arguments})
  return f"<tool_call>\n{body}\n</tool_call>"


def play(*actions: str, task: Task = TASK, **options):
  """Returns the steps and the scores."""
  environment = SearchEnv(tiny_world.index(), inline=True, **options)
  run_inline(environment.reset(task, seed=0))
  steps = [run_inline(environment.step(action)) for action in actions]
  return steps, run_inline(environment.score())


def texts(step) -> list[str]:
  return [read_information(message.content) for message in step.observations]


def test_a_supported_right_answer_scores_all():
  steps, scores = play(SEARCH, OPEN, RIGHT)
  assert [step.terminated for step in steps] == [False, False, True]
  assert scores == {
    "success": 1.0,
    "f1": 1.0,
    "f1_or_penalty": 1.0,
    "format": 0.0,
    "support": 1.0,
    "search_cost": -0.05,
    "answered": 1.0,
  }
  assert {*scores, *steps[0].rewards} == set(REWARDS)


def test_what_is_found_comes_as_information():
  (step,), _ = play(SEARCH)
  (message,) = step.observations
  assert message.role == "tool"
  assert message.content.startswith("<information>\n[")
  assert message.content.endswith("\n</information>")
  assert f"[{PASSAGE}] {NAME}: Capital" in message.content


def test_a_wrong_answer_and_a_guess_score_less():
  assert play(SEARCH, WRONG)[1]["success"] == 0.0
  assert play(SEARCH, "<answer>City</answer>")[1]["f1"] == pytest.approx(2 / 3)
  scores = play(RIGHT)[1]
  assert (scores["success"], scores["support"]) == (1.0, 0.0)


def test_the_answer_never_comes_from_what_a_tool_said():
  """A scorer that reads the whole episode finds the answer (verl#6392)."""
  steps, scores = play(SEARCH, OPEN, "I have seen it.")
  assert CAPITAL in texts(steps[1])[0]
  assert not any(step.terminated for step in steps)
  assert scores["support"] == 1.0
  for name in ("success", "f1", "answered"):
    assert scores[name] == 0.0
  assert scores["format"] == scores["f1_or_penalty"] == -1.0


def test_a_query_that_holds_the_answer_is_no_answer():
  _, scores = play(f"<search>{CAPITAL}</search>", CAPITAL, "<answer> </answer>")
  assert scores["success"] == scores["answered"] == 0.0


def test_an_answer_beside_a_call_came_before_it_was_read():
  """Such as a whole episode written in one action, its results made up."""
  invented = f"<information>{CAPITAL}</information>"
  (step,), scores = play(SEARCH + invented + RIGHT)
  assert not step.terminated
  found, forged, answer = texts(step)
  assert found.startswith("[")
  assert forged == "error: <information> is not yours to write"
  assert answer == PREMATURE
  assert (step.num_tool_calls, step.num_tool_errors) == (3, 2)
  assert scores["answered"] == 0.0
  # It may be given again.
  assert play(SEARCH + RIGHT, RIGHT)[1]["success"] == 1.0


def test_several_answers_are_none():
  (step,), scores = play(f"{RIGHT} or {WRONG}")
  assert texts(step) == ["error: more than one <answer>; give one"] * 2
  assert scores["success"] == 0.0


def test_a_bad_tag_loses_neither_call_nor_answer():
  (step,), _ = play(f"<search>oops {SEARCH} </open>")
  assert [text.startswith("error") for text in texts(step)] == [
    True,
    False,
    True,
  ]
  (step,), scores = play(f"<open></open>{RIGHT}")
  assert step.terminated
  assert step.observations == ()
  assert (step.num_tool_calls, step.num_tool_errors) == (1, 1)
  assert scores["success"] == 1.0
  assert scores["format"] == scores["f1_or_penalty"] == -1.0


def test_an_action_without_a_tag_is_told_what_is_expected():
  (step,), _ = play(f"It is {CAPITAL}.")
  assert texts(step) == [NO_TAG]
  assert (step.num_tool_calls, step.num_tool_errors) == (1, 1)
  assert not step.terminated


def test_an_unknown_id_is_an_error_but_well_formed():
  steps, scores = play("<open>c99/none</open>", RIGHT)
  assert texts(steps[0])[0].startswith("error: no passage c99/none")
  assert steps[0].rewards == {"turns": 1.0, "tool_errors": 1.0}
  assert scores["format"] == 0.0


def test_calls_in_json():
  find = call("search", query=f"{NAME} capital")
  steps, scores = play(find, call("open", id=PASSAGE), RIGHT, style="hermes")
  assert steps[0].observations[0].content.startswith("[")
  assert scores["success"] == scores["support"] == 1.0
  # Tags that only the other style knows are plain text.
  assert texts(play(SEARCH, style="hermes")[0][0]) == [NO_TAG]


def test_mistakes_in_json_are_answered_and_malformed():
  for action, text in (
    (call("find", query="a"), "error: no tool find; use search, open"),
    (call("search", words="a"), "error: missing argument query"),
    (call("search", query=""), "error: "),
    ("<tool_call>{</tool_call>", "error: invalid JSON"),
  ):
    steps, scores = play(action, RIGHT, style="hermes")
    assert texts(steps[0])[0].startswith(text)
    assert (scores["success"], scores["format"]) == (1.0, -1.0)


def test_an_answer_in_an_argument_is_no_answer():
  (step,), scores = play(call("search", query=RIGHT), style="hermes")
  assert not step.terminated
  assert scores["answered"] == 0.0


def test_an_answer_in_what_is_unclosed_is_none():
  unclosed = f"<tool_call>{{ {RIGHT}"
  (step,), scores = play(unclosed, style="hermes")
  assert texts(step) == ["error: <tool_call> without </tool_call>"]
  assert scores["answered"] == 0.0
  # It may be given again; before such a call it was one.
  assert play(unclosed, RIGHT, style="hermes")[1]["success"] == 1.0
  assert play(f"{RIGHT} {unclosed}", style="hermes")[1]["success"] == 1.0
  for style in ("tags", "hermes"):
    (step,), scores = play(f"<answer>{CAPITAL}", style=style)
    assert texts(step) == ["error: <answer> without </answer>"]
    assert scores["answered"] == 0.0


@pytest.mark.parametrize("style", ["tags", "hermes"])
def test_no_more_calls_of_an_action_run_than_may(style):
  one = SEARCH if style == "tags" else call("search", query=f"{NAME} capital")
  (step,), scores = play(one * 50, style=style)
  found = texts(step)
  assert all(text.startswith("[") for text in found[:4])
  refused = f"error: {TOO_MANY}"
  assert found[4:] == [refused.format(4)]
  assert (step.num_tool_calls, step.num_tool_errors) == (5, 1)
  assert scores["search_cost"] == pytest.approx(-0.2)  # of four searches
  (step,), _ = play(one * 2 + RIGHT, style=style, max_calls_per_turn=1)
  assert not step.terminated
  assert texts(step)[1:] == [refused.format(1), PREMATURE]
  # What cannot be read is bounded, too.
  broken = "<search>x" if style == "tags" else "<tool_call>{</tool_call>"
  (step,), _ = play(broken * 50, style=style)
  assert texts(step)[4:] == [refused.format(4)]


def test_evidence_counts_once_enough_of_it_was_shown():
  assert play(SEARCH)[1]["support"] == 1.0
  assert play(SEARCH, snippet_chars=8)[1]["support"] == 0.0
  assert play(SEARCH, OPEN, snippet_chars=8)[1]["support"] == 1.0
  assert play(OPEN, max_passage_chars=8)[1]["support"] == 0.0


def test_the_prompt_says_how_to_call():
  def prompt(**options):
    environment = SearchEnv(tiny_world.index(), **options)
    return run_inline(environment.reset(TASK, seed=0))

  system, user = prompt()
  assert (system.role, user.content) == ("system", TASK.prompt)
  assert "<search>" in system.content
  assert "<tool_call>" in prompt(style="hermes")[0].content
  assert "<answer>" in prompt(style="hermes")[0].content
  assert prompt(show_tools=False) == (user,)
  assert prompt(show_tools=False, system_prompt="")[0].content == ""
  assert prompt(system_prompt="Be brief.")[0].content.startswith("Be brief.\n")


def test_equal_states_have_equal_keys_and_others_differ():
  def key(*actions):
    return play(*actions)[0][-1].state_key

  other = "<search>climate</search>"
  assert key(SEARCH, other) == key(other, SEARCH) == key(other + SEARCH)
  assert key(SEARCH) == key(SEARCH, "nothing")
  assert len({key("nothing"), key(SEARCH), key(SEARCH, OPEN), key(other)}) == 4


def test_concurrent_episodes_share_nothing_but_the_index():
  """Two members of a group in turn, each in the middle of the other."""
  barrier = asyncio.Barrier(2)

  async def episode(*actions):
    environment = SearchEnv(tiny_world.index())
    await environment.reset(TASK, seed=0)
    for action in actions:
      await barrier.wait()
      await environment.step(action)
    await barrier.wait()
    return await environment.score()

  async def both():
    return await asyncio.gather(
      episode(SEARCH, OPEN, RIGHT), episode("<open>x</open>", "hm", WRONG)
    )

  good, bad = asyncio.run(both())
  assert good == play(SEARCH, OPEN, RIGHT)[1]
  assert bad == play("<open>x</open>", "hm", WRONG)[1]
  assert (bad["success"], bad["support"], bad["search_cost"]) == (0, 0, 0)


def test_a_second_reset_forgets_the_first_episode():
  environment = SearchEnv(tiny_world.index(), inline=True)
  run_inline(environment.reset(TASK, seed=0))
  for action in (SEARCH, "hm", RIGHT):
    run_inline(environment.step(action))
  run_inline(environment.reset(TASK, seed=0))
  fresh = run_inline(environment.score())
  assert fresh == play()[1]
  assert not any(fresh[name] for name in ("success", "support", "search_cost"))


def test_misuse_is_explained():
  environment = SearchEnv(tiny_world.index(), inline=True)
  with pytest.raises(RuntimeError, match="reset"):
    run_inline(environment.step(SEARCH))
  with pytest.raises(RuntimeError, match="reset"):
    run_inline(environment.score())
  with pytest.raises(ValueError, match="hidden.answers of task u"):
    run_inline(environment.reset(Task(task_id="u", prompt=""), seed=0))
  run_inline(environment.reset(TASK, seed=0))
  run_inline(environment.step(RIGHT))
  with pytest.raises(RuntimeError, match="after the final answer"):
    run_inline(environment.step(RIGHT))
  with pytest.raises(ValueError, match="max_calls_per_turn is 0; expected 1"):
    SearchEnv(tiny_world.index(), max_calls_per_turn=0)
  with pytest.raises(ValueError, match="style is 'compact'"):
    SearchEnv(tiny_world.index(), style="compact")  # pyright: ignore
