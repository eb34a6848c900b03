"""Tests of flight booking as a policy meets it."""

import asyncio
import json

import pytest

from arl_jax.envs import flight_json
from arl_jax.envs.flight_booking import FlightBookingEnv
from arl_jax.envs.flight_text import Request, write_request
from arl_jax.envs.flight_tools import TOOL_PARAMETERS
from arl_jax.envs.flight_world import Fare, Flight, MarketEvent, World
from arl_jax.envs.inline import run_inline
from arl_jax.episode import Task, ToolCall
from arl_jax.text.tool_calls import Style, render_tool_call


def make_flight(number, time, price, *, seats=2, date="May 12"):
  fares = {
    "economy": Fare(price=price, seats=seats),
    "business": Fare(price=price + 300, seats=1),
  }
  return Flight(
    number=number,
    origin="BOS",
    destination="LAX",
    date=date,
    time=time,
    fares=fares,
  )


FLIGHTS = (
  make_flight("AF104", "08:10", 300),
  make_flight("BA104", "06:10", 140),
  make_flight("DL104", "10:10", 200, seats=1),
)


def make_task(*, events=(), flights=FLIGHTS, dates=("May 12",)):
  request = Request(
    kind="cheapest",
    cabin="economy",
    origin="BOS",
    destination="LAX",
    dates=dates,
    passenger="Ana Silva",
  )
  world = World(
    flights=flights,
    passengers=("Ana Silva", "Ana Silvas", "Ben Meyer"),
    events=tuple(events),
  )
  return Task(
    task_id="hand-made",
    prompt=write_request(request),
    hidden=flight_json.write_hidden(world, request),
  )


def move(turn, number, *, price, seats=2, cabin="economy"):
  new = Fare(price=price, seats=seats)
  return MarketEvent(turn=turn, number=number, cabin=cabin, fare=new)


def call(name, *values, style: Style = "hermes"):
  arguments = dict(zip(TOOL_PARAMETERS[name], values, strict=False))
  return render_tool_call(
    ToolCall(name=name, arguments=arguments),
    style=style,
    parameters=TOOL_PARAMETERS,
  )


SEARCH = call("search", "BOS", "LAX", "May 12", "economy")
SORT = call("sort", "price")
BOOK_BEST = call("book", "Ana Silva", "BA104", "economy")
LISTED = "AF104 08:10 $300\nBA104 06:10 $140\nDL104 10:10 $200\n"
SORTED = "BA104 06:10 $140\nDL104 10:10 $200\nAF104 08:10 $300\n"


def play(task, *actions, **options):
  """The observations of each action, and the environment after them."""
  environment = FlightBookingEnv(**options)
  run_inline(environment.reset(task, seed=0))
  steps = [run_inline(environment.step(action)) for action in actions]
  texts = [
    "|".join(message.content for message in step.observations) for step in steps
  ]
  return texts, environment


def test_a_whole_episode():
  texts, environment = play(
    make_task(),
    SEARCH,
    SORT,
    call("check", "BA104"),
    BOOK_BEST,
    "Booked.",
  )
  assert texts == [LISTED, SORTED, "2 seats", "booked BA104", ""]
  assert environment.verdict().reason == "booked"
  score = run_inline(environment.score())
  assert score == {"success": 1.0, "booked": 1.0}
  (booking,) = environment.bookings
  assert (booking.price, booking.turn) == (140, 3)


def test_the_prompt_is_short_and_may_show_the_tools():
  environment = FlightBookingEnv()
  (user,) = run_inline(environment.reset(make_task(), seed=0))
  assert user.role == "user"
  assert user.content == (
    "Book the cheapest economy flight BOS to LAX on May 12 for Ana Silva."
  )
  environment = FlightBookingEnv(show_tools=True)
  system, _ = run_inline(environment.reset(make_task(), seed=0))
  lines = system.content.splitlines()
  names = [json.loads(line)["function"]["name"] for line in lines[1:6]]
  assert names == ["search", "sort", "filter", "check", "book"]


def test_order_ok_on_the_wrong_flight_is_nothing():
  wrong = call("book", "Ana Silva", "AF104", "economy")
  _, environment = play(make_task(), SEARCH, wrong, "Order ok")
  assert environment.verdict().reason == "not_the_best"


def test_filter_keeps_what_leaves_before():
  texts, _ = play(make_task(), SEARCH, SORT, call("filter", "09:00"))
  assert texts[2] == "BA104 06:10 $140\nAF104 08:10 $300\n"
  texts, _ = play(make_task(), SEARCH, call("filter", "06:10"))
  assert texts[1] == "no flights\n"


def test_a_sale_between_turns_is_met_at_check_with_what_remains():
  task = make_task(events=[move(2, "BA104", price=140, seats=0)])
  check = call("check", "BA104")
  second = call("book", "Ana Silva", "DL104", "economy")
  texts, environment = play(task, SEARCH, SORT, check, check, second, "ok")
  assert texts[2] == "0 seats\nDL104 10:10 $200\nAF104 08:10 $300\n"
  assert texts[3] == "error: BA104 is not in the list"
  assert environment.verdict().reason == "booked"


def test_a_sale_between_turns_is_met_at_book_with_what_remains():
  task = make_task(events=[move(3, "BA104", price=140, seats=0)])
  check = call("check", "BA104")
  texts, environment = play(task, SEARCH, SORT, check, BOOK_BEST)
  assert texts[2] == "2 seats"
  assert texts[3] == "0 seats\nDL104 10:10 $200\nAF104 08:10 $300\n"
  assert environment.bookings == ()


def test_nobody_books_on_a_stale_list():
  # DL104 becomes the cheapest after the list was shown.
  task = make_task(events=[move(2, "DL104", price=120, seats=1)])
  texts, environment = play(task, SEARCH, SORT, BOOK_BEST, BOOK_BEST)
  fresh = "DL104 10:10 $120\nBA104 06:10 $140\nAF104 08:10 $300\n"
  assert texts[2] == f"price moved\n{fresh}"
  assert texts[3] == "booked BA104"
  assert environment.verdict().reason == "not_the_best"
  better = call("book", "Ana Silva", "DL104", "economy")
  texts, environment = play(task, SEARCH, SORT, BOOK_BEST, better)
  assert environment.verdict().reason == "booked"
  assert environment.bookings[0].price == 120


def test_a_move_outside_the_list_does_not_disturb_it():
  task = make_task(events=[move(2, "DL104", price=100, cabin="business")])
  texts, _ = play(task, SEARCH, SORT, BOOK_BEST)
  assert texts[2] == "booked BA104"


def test_similar_names():
  similar = call("book", "Ana Silvas", "BA104", "economy")
  _, environment = play(make_task(), SEARCH, similar)
  assert environment.verdict().reason == "wrong_passenger"
  texts, environment = play(
    make_task(),
    SEARCH,
    call("book", "Ana", "BA104", "economy"),
    call("book", "Eva Silva", "BA104", "economy"),
  )
  assert texts[1] == "error: Ana may be Ana Silva or Ana Silvas"
  assert texts[2] == "error: no passenger Eva Silva"
  assert environment.bookings == ()


def test_a_double_booking_fails():
  _, environment = play(make_task(), SEARCH, BOOK_BEST, BOOK_BEST, "Booked.")
  assert environment.verdict().reason == "booked_several"
  texts, environment = play(make_task(), SEARCH, BOOK_BEST + BOOK_BEST)
  assert texts[1] == "booked BA104|booked BA104"
  assert environment.verdict().reason == "booked_several"


def test_own_bookings_take_seats():
  last = call("book", "Ben Meyer", "DL104", "economy")
  texts, environment = play(make_task(), SEARCH, last, last)
  assert texts[1:] == [
    "booked DL104",
    "0 seats\nAF104 08:10 $300\nBA104 06:10 $140\n",
  ]
  assert len(environment.bookings) == 1


def test_a_second_date_adds_to_the_list():
  flights = (*FLIGHTS, make_flight("KL104", "07:40", 120, date="May 13"))
  task = make_task(flights=flights, dates=("May 12", "May 13"))
  other = call("search", "BOS", "LAX", "May 13", "economy")
  texts, environment = play(
    task,
    SEARCH,
    other,
    SORT,
    call("book", "Ana Silva", "KL104", "economy"),
  )
  assert texts[0] == LISTED
  assert texts[2].startswith(
    "KL104 May 13 07:40 $120\nBA104 May 12 06:10 $140\n"
  )
  assert environment.verdict().reason == "booked"
  # A date that is in the list already starts a new one.
  texts, _ = play(task, SEARCH, other, other)
  assert texts[2] == "KL104 07:40 $120\n"


def test_nothing_fits_and_the_policy_says_so():
  flights = tuple(
    make_flight(flight.number, flight.time, 200, seats=0) for flight in FLIGHTS
  )
  task = make_task(flights=flights)
  checks = [call("check", number) for number in ("AF104", "BA104", "DL104")]
  texts, environment = play(task, SEARCH, *checks, "No flight fits.")
  assert texts[3] == "0 seats\nno flights\n"
  assert environment.verdict().reason == "rightly_refused"
  _, environment = play(task, SEARCH, *checks, "Booked.")
  assert run_inline(environment.score())["success"] == 0.0


@pytest.mark.parametrize(
  ("action", "text"),
  [
    (call("check", "AF104"), "error: search first"),
    (SORT, "error: search first"),
    (SEARCH.replace("LAX", "LAZ"), "error: no airport LAZ"),
    (SEARCH.replace("May 12", "12"), "error: 12 is not a date like May 12"),
    (
      SEARCH.replace("economy", "first"),
      "error: cabin must be economy or business",
    ),
    (BOOK_BEST.replace("BA104", "BA999"), "error: no flight BA999"),
    ("<tool_call>{}</tool_call>", 'error: the call has no "name"'),
    (call("search", "BOS"), "error: missing argument to"),
  ],
)
def test_refusals_are_observations_and_change_nothing(action, text):
  environment = FlightBookingEnv()
  run_inline(environment.reset(make_task(), seed=0))
  before = environment.state_key
  step = run_inline(environment.step(action))
  assert [message.content for message in step.observations] == [text]
  assert (step.num_tool_calls, step.num_tool_errors) == (1, 1)
  assert not step.terminated
  assert step.state_key == before


def test_sold_out_is_an_answer_not_an_error():
  task = make_task(events=[move(1, "BA104", price=140, seats=0)])
  environment = FlightBookingEnv()
  run_inline(environment.reset(task, seed=0))
  run_inline(environment.step(SEARCH))
  assert run_inline(environment.step(BOOK_BEST)).num_tool_errors == 0


def test_compact_style_and_lists_without_times():
  texts, environment = play(
    make_task(),
    "search BOS | LAX | May 12 | economy",
    "sort price",
    "book Ana Silva | BA104 | economy",
    style="compact",
    show_times=False,
  )
  assert texts == [
    "AF104 $300\nBA104 $140\nDL104 $200\n",
    "BA104 $140\nDL104 $200\nAF104 $300\n",
    "booked BA104",
  ]
  assert environment.verdict().success


def test_equal_states_have_equal_keys_and_others_differ():
  def key(*actions):
    return play(make_task(), *actions)[1].state_key

  assert key(SEARCH, SORT) == key(SEARCH, SORT, SORT)
  assert key(SEARCH, call("check", "AF104")) == key(SEARCH)
  keys = [
    key(),
    key(SEARCH),
    key(SEARCH, SORT),
    key(SEARCH, call("filter", "09:00")),
    key(SEARCH, SORT, BOOK_BEST),
    key(SEARCH, SORT, BOOK_BEST, BOOK_BEST),
  ]
  assert len(set(keys)) == len(keys)


def test_concurrent_episodes_of_one_task_share_nothing():
  """Two members book the same last seat, and each finds it free."""
  task = make_task()
  last = call("book", "Ana Silva", "DL104", "economy")
  barrier = asyncio.Barrier(2)

  async def episode():
    environment = FlightBookingEnv()
    await environment.reset(task, seed=0)
    await environment.step(SEARCH)
    await barrier.wait()
    step = await environment.step(last)
    await barrier.wait()
    return step.observations[0].content, environment.bookings

  async def run_both():
    return await asyncio.gather(episode(), episode())

  (first, first_rows), (second, second_rows) = asyncio.run(run_both())
  assert first == second == "booked DL104"
  assert first_rows == second_rows
  assert len(first_rows) == 1


def test_misuse_is_explained():
  environment = FlightBookingEnv()
  with pytest.raises(RuntimeError, match="reset"):
    run_inline(environment.step("hello"))
  run_inline(environment.reset(make_task(), seed=0))
  run_inline(environment.step("Booked."))
  with pytest.raises(RuntimeError, match="after the final answer"):
    run_inline(environment.step("Booked."))
  with pytest.raises(ValueError, match=r"hidden\.world is missing"):
    run_inline(environment.reset(Task(task_id="t", prompt=""), seed=0))
