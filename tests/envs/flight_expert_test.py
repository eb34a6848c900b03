"""Tests of the scripted expert."""

from arl_jax.envs.flight_expert import CAREFUL, Habits, expert_script
from arl_jax.episode import ToolCall

PROMPT = (
  "Book the cheapest economy flight BOS to LAX on May 12 before 09:00 for"
  " Ana Silva."
)
ROWS = "AF104 08:10 $300\nBA104 06:10 $140\n"
SORTED = "BA104 06:10 $140\nAF104 08:10 $300\n"
REST = "AF104 08:10 $300\n"


def play(habits, *observations):
  """Names and last arguments of the actions that the observations lead to."""
  script = expert_script(PROMPT, habits=habits)
  actions = [next(script)]
  for observation in observations:
    actions.append(script.send(observation))
  return [
    f"{action.name} {list(action.arguments.values())[-1]}"
    if isinstance(action, ToolCall)
    else action
    for action in actions
  ]


def test_the_careful_expert():
  assert play(CAREFUL, ROWS, ROWS, SORTED, "2 seats", "booked BA104") == [
    "search economy",
    "filter 09:00",
    "sort price",
    "check BA104",
    "book economy",
    "Booked.",
  ]


def test_it_goes_on_with_the_rest():
  seen = [ROWS, ROWS, SORTED, f"0 seats\n{REST}", "1 seats"]
  assert play(CAREFUL, *seen)[-2:] == ["check AF104", "book economy"]


def test_it_checks_again_after_a_move():
  seen = [ROWS, ROWS, SORTED, "2 seats", f"price moved\n{ROWS}"]
  assert play(CAREFUL, *seen)[-1] == "check AF104"


def test_it_says_that_nothing_fits():
  assert play(CAREFUL, "no flights\n")[-1] == "No flight fits."
  seen = [REST, REST, REST, "0 seats\nno flights\n"]
  assert play(CAREFUL, *seen)[-1] == "No flight fits."


def test_careless_habits():
  hasty = Habits(sorts=False, filters=False, checks=False, retries=False)
  assert play(hasty, ROWS, f"0 seats\n{REST}") == [
    "search economy",
    "book economy",
    "Sold out.",
  ]
  no_sort = Habits(sorts=False)
  assert play(no_sort, ROWS, ROWS)[-1] == "check AF104"
