"""Tests of the airline's desk: the reward, the customer, and its isolation."""

import asyncio
import copy
import dataclasses

import pytest

from arl_jax.envs import airline_tau
from arl_jax.envs.airline_environment import REWARDS, AirlineEnv
from arl_jax.envs.airline_gold import gold_of, is_answer, is_told
from arl_jax.envs.airline_tasks import TaskSource
from arl_jax.envs.airline_tools import write_names
from arl_jax.envs.check import check_environment, format_report
from arl_jax.episode import Task, ToolCall
from arl_jax.synthesis.airline_experts import gold_actions, play_gold
from arl_jax.text.tool_calls import render_tool_call
from tests.envs import airline_package

DATA = airline_package.load()
TASKS = {
  user: airline_tau.tau_tasks(DATA, split="base", user=user)
  for user in airline_tau.USERS
}
WRITES = write_names(DATA.toolkit)


def make(**options):
  return AirlineEnv(DATA, **{"show_tools": False, **options})


def call(name, **arguments):
  return render_tool_call(
    ToolCall(name=name, arguments=arguments), style="hermes"
  )


def play(task, actions, **options):
  """Returns the scores and the steps of an episode."""

  async def run():
    environment = make(**options)
    await environment.reset(task, seed=0)
    steps = []
    for action in actions:
      steps.append(await environment.step(action))
      if steps[-1].terminated:
        break
    return await environment.score(), steps

  return asyncio.run(run())


def with_calls(task, calls):
  """The actions of the gold episode, with other calls instead of its own."""
  gold = gold_of(task)
  hidden = dataclasses.replace(gold, calls=tuple(calls)).as_hidden()
  return gold_actions(dataclasses.replace(task, hidden=hidden))


@pytest.mark.parametrize("user", airline_tau.USERS)
def test_gold_calls_solve_all_tasks(user):
  assert len(TASKS[user]) == 50
  failed = [t.task_id for t in TASKS[user] if not play_gold(make(), t).success]
  assert not failed


def test_wrong_calls_solve_no_task_that_changes_something():
  num_changing = 0
  for task in TASKS["prompt"]:
    calls = list(gold_of(task).calls)
    places = [i for i, each in enumerate(calls) if each.name in WRITES]
    if not places:
      continue
    num_changing += 1
    last = places[-1]
    dropped = calls[:last] + calls[last + 1 :]
    gift = {"user_id": gold_of(task).user_id, "amount": 50}
    extra = [*calls, ToolCall(name="send_certificate", arguments=gift)]
    for wrong in (dropped, extra, _with_another_argument(calls, last)):
      scores, _ = play(task, with_calls(task, wrong))
      assert (scores["success"], scores["db"]) == (0.0, 0.0), task.task_id
  assert num_changing == 26


def _with_another_argument(calls, place):
  arguments = copy.deepcopy(dict(calls[place].arguments))
  if "passengers" in arguments:
    arguments["passengers"][0]["dob"] = "1999-12-31"
  elif "total_baggages" in arguments:
    arguments["total_baggages"] += 1
  elif "cabin" in arguments:
    others = {"business", "economy"} - {arguments["cabin"]}
    arguments["cabin"] = min(others)
  else:
    arguments["reservation_id"] = "4WQ150"
  changed = ToolCall(name=calls[place].name, arguments=arguments)
  return [*calls[:place], changed, *calls[place + 1 :]]


def test_a_refusal_needs_a_look_at_the_facts_and_a_message():
  task = next(t for t in TASKS["prompt"] if t.task_id == "tau-prompt-0")
  look = call("get_user_details", user_id="emma_kim_9957")
  other = call("get_user_details", user_id="mia_li_3668")
  scores, _ = play(task, [look, "That cannot be cancelled."])
  assert scores["success"] == 1.0
  for actions, missing in (
    (["That cannot be cancelled."], "grounded"),
    ([other, "That cannot be cancelled."], "grounded"),
    ([look, ""], "answered"),
    ([look], "answered"),
    ([look, call("cancel_reservation", reservation_id="EHGLP3"), "No."], "db"),
  ):
    scores, _ = play(task, actions)
    assert (scores["success"], scores[missing]) == (0.0, 0.0)
  transfer = call("transfer_to_human_agents", summary="a refund")
  assert play(task, [look, transfer])[0]["success"] == 1.0


def test_what_has_to_be_told_counts_as_whole_numbers():
  task = next(t for t in TASKS["prompt"] if t.task_id == "tau-prompt-7")
  assert gold_of(task).communicate == ("1628",)
  actions = gold_actions(task)
  for message, told in (("It is $1,628.", 1.0), ("It is 11628.", 0.0)):
    scores, _ = play(task, [*actions[:-1], message])
    assert (scores["communicated"], scores["success"]) == (told, told)
  assert is_told("4", ["4 bags"])
  assert not is_told("4", ["14 bags, 4.5 kg, 4th"])
  assert is_answer("economy", " Economy. ")
  assert not is_answer("economy", "economy or business")


def test_errors_of_tools_are_observations():
  task = TASKS["prompt"][0]
  _, (step,) = play(
    task,
    [
      call("get_user_details", user_id="nobody")
      + call("get_user_details")
      + call("calculate", expression="9**9**9**9")
      + call("calculate", expression="1(2)")
      + call("calculate", expression="1 / 0")
      + call("calculate", expression="2 * (3 + 4)")
      + call("open_door")
    ],
  )
  texts = [message.content for message in step.observations]
  assert texts[0] == "error: User nobody not found"
  assert all(text.startswith("error: ") for text in texts[:5])
  assert texts[5] == "14.0"
  assert texts[6].startswith("error: no tool open_door")
  assert (step.num_tool_calls, step.num_tool_errors) == (7, 6)
  assert step.rewards == {"turns": 1.0, "tool_errors": 6.0}


def test_prompts_show_what_is_asked_for():
  async def open_with(**options):
    return await make(**options).reset(TASKS["prompt"][0], seed=0)

  (user,) = asyncio.run(open_with())
  assert "emma_kim_9957" in user.content
  system, _ = asyncio.run(open_with(show_tools=True, show_policy=True))
  assert DATA.policy in system.content
  assert system.content.count('"type": "function"') == 14


def test_state_names_change_with_what_was_seen_changed_or_told():
  task = TASKS["scripted"][0]
  look = call("get_user_details", user_id="emma_kim_9957")
  cancel = call("cancel_reservation", reservation_id="EHGLP3")
  _, steps = play(task, [look, look, cancel, "What is your user id?"])
  keys = [step.state_key for step in steps]
  assert keys[0] == keys[1]
  assert len(set(keys)) == 3


def test_a_task_of_another_kind_is_named():
  task = Task(task_id="flight", prompt="?", hidden={"market": 1})
  with pytest.raises(ValueError, match=r"'flight' hides \['market'\]"):
    play(task, [])


def test_environment_passes_the_checks():
  tasks = [
    *TASKS["prompt"][:6],
    *TASKS["scripted"][6:10],
    *TaskSource(DATA).tasks(6, seed=0, split="train"),
  ]
  results = check_environment(make, tasks, gold_actions=gold_actions)
  assert all(result.status == "ok" for result in results), format_report(
    results
  )


def test_scores_name_the_rewards():
  scores, steps = play(TASKS["prompt"][0], ["Hello."])
  assert {*scores, *steps[0].rewards} == set(REWARDS)
