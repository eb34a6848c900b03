"""Tests that BFCL's tasks are staged and judged as its own checker does."""

import asyncio
from collections.abc import Sequence
import contextlib
import importlib
import importlib.util
import json

import pytest

from arl_jax.envs import bfcl_environment, bfcl_tasks, check
from arl_jax.envs.bfcl_apis import BfclApis
from arl_jax.envs.bfcl_environment import BfclEnv, gold_actions
from arl_jax.envs.environment import StepResult
from arl_jax.envs.tools import ToolError
from arl_jax.episode import Task, ToolCall
from arl_jax.text.tool_calls import render_tool_call

HAS_BFCL = all(map(importlib.util.find_spec, ("bfcl_eval", "mpmath")))
pytestmark = pytest.mark.skipif(not HAS_BFCL, reason=bfcl_tasks.INSTALL)
# Calls of each turn.
Plan = list[list[ToolCall]]


def _gold(task: Task) -> Plan:
  turns = range(len(task.hidden["turns"]))
  return [list(bfcl_tasks.gold_calls(task, turn)) for turn in turns]


def _actions(plan: Plan) -> list[str]:
  actions = []
  for calls in plan:
    actions += [render_tool_call(call, style="hermes") for call in calls]
    actions.append("That is all.")
  return actions


async def _play(task: Task, actions: Sequence[str], **options):
  environment = BfclEnv(**options)
  await environment.reset(task, seed=0)
  steps: list[StepResult] = []
  for action in actions:
    steps.append(await environment.step(action))
    if steps[-1].terminated:
      break
  return await environment.score(), steps


def _score(task: Task, plan: Plan, **options):
  return asyncio.run(_play(task, _actions(plan), **options))[0]


def _without(plan: Plan, turn: int, index: int) -> Plan:
  calls = [*plan[turn][:index], *plan[turn][index + 1 :]]
  return [*plan[:turn], calls, *plan[turn + 1 :]]


def _changes_state(task: Task, plan: Plan) -> bool:
  """Whether a turn in which something is to do ends in a wrong state."""
  hidden = task.hidden
  found, gold = (BfclApis(hidden["apis"], hidden["config"]) for _ in range(2))
  for calls, gold_calls in zip(plan, _gold(task), strict=True):
    for apis, each in [(found, calls), (gold, gold_calls)]:
      for call in each:
        with contextlib.suppress(Exception):  # a wrong call may raise anything
          apis.call(call.name, call.arguments)
    if gold_calls and not found.has_state_of(gold):
      return True
  return False


@pytest.mark.parametrize("variant", bfcl_tasks.VARIANTS)
def test_gold_calls_of_all_tasks_score_1(variant: bfcl_tasks.Variant):
  tasks = bfcl_tasks.read_tasks(variant)
  assert len(tasks) >= 199
  for task in tasks:
    found, steps = asyncio.run(_play(task, gold_actions(task)))
    assert found == {"success": 1.0, "turns_right": 1.0, "states_right": 1.0}
    assert steps[-1].terminated
    assert len(steps) == len(gold_actions(task))


def test_leaving_out_a_call_that_changes_the_state_scores_less():
  num_wrong = 0
  for task in bfcl_tasks.read_tasks():
    gold = _gold(task)
    places = [(t, i) for t, calls in enumerate(gold) for i in range(len(calls))]
    for turn, index in places:
      plan = _without(gold, turn, index)
      if not _changes_state(task, plan):
        continue
      score = _score(task, plan)
      assert score["success"] == 0
      assert score["turns_right"] < 1
      assert score["states_right"] < 1
      assert _score(task, plan, compare_results=False)["success"] == 0
      num_wrong += 1
      break
  assert num_wrong > 150  # the other tasks only read


def test_swapping_arguments_scores_less():
  num_wrong = 0
  for task in bfcl_tasks.read_tasks():
    plan = _gold(task)
    for calls in plan:
      for index, call in enumerate(calls):
        texts = {k: v for k, v in call.arguments.items() if type(v) is str}
        first, last = [*texts][:1], [*texts][-1:]
        if len(set(texts.values())) < 2 or texts[first[0]] == texts[last[0]]:
          continue
        swapped = {first[0]: texts[last[0]], last[0]: texts[first[0]]}
        calls[index] = ToolCall(
          name=call.name, arguments={**call.arguments, **swapped}
        )
    if plan != _gold(task) and _changes_state(task, plan):
      assert _score(task, plan)["success"] == 0
      num_wrong += 1
  assert num_wrong > 100


def _official_verdict(task: Task, plan: Plan, raw_gold, name: str) -> bool:
  checker = importlib.import_module(
    "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
  )

  def write(call: ToolCall) -> str:
    arguments = [f"{key}={value!r}" for key, value in call.arguments.items()]
    return f"{call.name}({', '.join(arguments)})"

  entry = {
    "id": task.task_id,
    "initial_config": task.hidden["config"],
    "involved_classes": task.hidden["apis"],
  }
  result = checker.multi_turn_checker(
    [[[write(call)] for call in calls] for calls in plan],
    raw_gold,
    entry,
    task.task_id.rsplit("_", 1)[0],
    name,  # its instances live as long as the process, by name
  )
  return result["valid"]


@pytest.mark.parametrize("variant", ["base", "miss_func", "miss_param"])
def test_verdicts_are_those_of_the_official_checker(
  variant: bfcl_tasks.Variant,
):
  """On gold calls; without one of them; and with a call in another turn."""
  spec = importlib.util.find_spec("bfcl_eval.data.possible_answer")
  assert spec is not None
  assert spec.submodule_search_locations
  folder = next(iter(spec.submodule_search_locations))
  path = f"{folder}/BFCL_v4_multi_turn_{variant}.json"
  with open(path, encoding="utf-8") as lines:
    answers = [json.loads(line) for line in lines]
  raw_gold = {answer["id"]: answer["ground_truth"] for answer in answers}
  verdicts = []
  for number, task in enumerate(bfcl_tasks.read_tasks(variant)[::2]):
    gold = _gold(task)
    places = [(t, i) for t, calls in enumerate(gold) for i in range(len(calls))]
    turn, index = places[number % len(places)]
    missing = _without(gold, turn, index)
    moved = [list(calls) for calls in missing]
    moved[number % len(gold)].append(gold[turn][index])
    for case, plan in enumerate([gold, missing, moved]):
      verdict = _official_verdict(
        task, plan, raw_gold[task.task_id], f"{variant}_{case}"
      )
      if variant == "miss_func" and _calls_too_early(task, plan):
        continue  # the official tools run before they are shown
      assert _score(task, plan)["success"] == verdict
      verdicts.append(verdict)
  assert 0.3 < sum(verdicts) / len(verdicts) < 0.7


def _calls_too_early(task: Task, plan: Plan) -> bool:
  return any(
    call.name in names
    for turn, names in task.hidden["held_back"].items()
    for calls in plan[: int(turn)]
    for call in calls
  )


def test_only_the_turns_that_ended_right_count():
  task = bfcl_tasks.read_tasks()[0]
  gold = _gold(task)
  assert len(gold) == 4
  actions = _actions(gold)
  score, _ = asyncio.run(_play(task, actions[: actions.index("That is all.")]))
  assert score["turns_right"] == 0
  score, _ = asyncio.run(_play(task, actions[: len(gold[0]) + 1]))
  assert score == {"success": 0, "turns_right": 0.25, "states_right": 0.25}
  nothing = _score(task, [[] for _ in gold])
  assert nothing == {"success": 0, "turns_right": 0, "states_right": 0}


def test_reading_counts_unless_states_alone_are_compared():
  task = bfcl_tasks.read_tasks()[0]
  plan = _gold(task)
  assert plan[1][1].name == "grep"
  plan = _without(plan, 1, 1)
  assert _score(task, plan) == {
    "success": 0.0,
    "turns_right": 0.75,
    "states_right": 1.0,
  }
  assert _score(task, plan, compare_results=False)["success"] == 1


def test_user_speaks_when_an_action_has_no_call():
  task = bfcl_tasks.read_tasks()[0]
  _, steps = asyncio.run(_play(task, gold_actions(task)))
  users = [m for s in steps for m in s.observations if m.role == "user"]
  assert [m.content for m in users] == task.hidden["turns"][1:]
  assert [m.role for m in steps[0].observations] == ["tool"] * 3
  assert steps[0].num_tool_calls == 3
  assert steps[1].num_tool_calls == 0


def test_tools_that_are_held_back_come_with_their_turn():
  task = bfcl_tasks.read_tasks("miss_func")[0]
  assert task.hidden["held_back"] == {"3": ["sort"]}
  call = ToolCall(name="sort", arguments={"file_name": "final_report.pdf"})

  async def run():
    environment = BfclEnv()
    system, _ = await environment.reset(task, seed=0)
    assert '"name": "sort"' not in system.content
    assert '"name": "grep"' in system.content
    early = await environment.step(render_tool_call(call, style="hermes"))
    assert early.observations[0].content.startswith("error: no tool sort")
    assert early.num_tool_errors == 1
    said = [(await environment.step("Done.")).observations for _ in range(3)]
    assert '"name": "sort"' in said[2][0].content
    assert said[2][0].role == "user"
    late = await environment.step(render_tool_call(call, style="hermes"))
    assert not late.observations[0].content.startswith("error: no tool")

  asyncio.run(run())


def test_failures_are_answered_and_counted():
  task = bfcl_tasks.read_tasks()[0]
  calls = [
    ToolCall(name="cd", arguments={"folder": "nowhere"}),
    ToolCall(name="cd", arguments={"folder": 3}),
    ToolCall(name="_add_file", arguments={}),
    ToolCall(name="pwd", arguments={"folder": "x"}),
  ]
  actions = [render_tool_call(call, style="hermes") for call in calls]
  _, steps = asyncio.run(_play(task, [*actions, "<tool_call>{"]))
  texts = [step.observations[0].content for step in steps]
  assert [step.num_tool_errors for step in steps] == [1] * 5
  assert texts[0].startswith('{"error": "cd: \'nowhere')
  assert texts[1] == "error: folder must be string"
  assert texts[2].startswith("error: no tool _add_file")
  assert texts[3] == "error: unknown argument folder"
  assert not any(step.terminated for step in steps)


def test_too_many_actions_in_a_turn_end_the_episode():
  task = bfcl_tasks.read_tasks()[0]
  action = render_tool_call(ToolCall(name="pwd", arguments={}), style="hermes")
  score, steps = asyncio.run(_play(task, [action] * 9, max_actions_per_turn=3))
  assert [step.terminated for step in steps] == [False, False, False, True]
  assert score["success"] == 0
  with pytest.raises(ValueError, match="max_actions_per_turn is 0"):
    BfclEnv(max_actions_per_turn=0)


def test_numbers_of_too_many_digits_are_refused():
  apis = BfclApis(["MathAPI"], {})
  assert apis.call("power", {"base": 2, "exponent": 10}) == '{"result": 1024}'
  for name, arguments in [
    ("power", {"base": 10, "exponent": 10**9}),
    ("logarithm", {"value": 2.0, "base": 10.0, "precision": 10**9}),
    ("square_root", {"number": 2.0, "precision": 10**9}),
    ("round_number", {"number": 2, "decimal_places": -(10**9)}),
  ]:
    with pytest.raises(ToolError, match="1000"):
      apis.call(name, arguments)


def test_arguments_that_a_class_keeps_are_copies():
  apis = BfclApis(["TwitterAPI"], {})
  login = {"username": "john", "password": "john123"}
  apis.call("authenticate_twitter", login)
  arguments = {"content": "x", "tags": ["#a"], "mentions": ["@b"]}
  answer = json.loads(apis.call("post_tweet", arguments))
  apis.call(
    "mention", {"tweet_id": answer["id"], "mentioned_usernames": ["@c"]}
  )
  assert arguments["mentions"] == ["@b"]


def test_files_that_contain_themselves_are_a_wrong_state():
  config = {"root": {"a": {"type": "directory", "contents": {}}}}
  scenario = {
    "GorillaFileSystem": {
      "root": {"w": {"type": "directory", "contents": config["root"]}}
    }
  }
  gold = BfclApis(["GorillaFileSystem"], scenario)
  apis = BfclApis(["GorillaFileSystem"], scenario)
  assert apis.has_state_of(gold)
  assert apis.state_key() == gold.state_key()
  apis.call("cp", {"source": "a", "destination": "a"})
  assert not apis.has_state_of(gold)
  apis.state_key()  # ends


def test_filler_of_one_episode_is_not_changed_by_another():
  """The long variants add records that all instances would share."""
  task = next(
    task
    for task in bfcl_tasks.read_tasks("long_context", apis=["TravelAPI"])
    if any(call.name == "book_flight" for c in _gold(task) for call in c)
  )

  def stage() -> BfclApis:
    return BfclApis(["TravelAPI"], task.hidden["config"], long_context=True)

  before, used = stage(), stage()
  cards = used._instances["TravelAPI"].credit_card_list
  assert len(cards) > 5
  for card in cards.values():
    card["balance"] = -1
  assert stage().has_state_of(before)
  assert not used.has_state_of(before)


def test_check_command_holds_all_checks(capsys):
  assert check.main(["arl_jax.envs.bfcl_environment:BfclEnv"]) == 0
  assert "success is 1 on 6 tasks" in capsys.readouterr().out
  assert len(bfcl_environment.example_tasks()) == 6
