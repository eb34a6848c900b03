"""Tests of the words of flight booking."""

import pytest

from arl_jax.envs import flight_text
from arl_jax.envs.flight_text import Request


def make_request(**changes):
  fields = {
    "kind": "cheapest",
    "cabin": "economy",
    "origin": "BOS",
    "destination": "LAX",
    "dates": ("May 12",),
    "passenger": "Ana Silva",
  }
  return Request(**fields | changes)


@pytest.mark.parametrize(
  ("changes", "sentence"),
  [
    (
      {},
      "Book the cheapest economy flight BOS to LAX on May 12 for Ana Silva.",
    ),
    (
      {"kind": "earliest", "cabin": "business"},
      "Book the earliest business flight BOS to LAX on May 12 for Ana Silva.",
    ),
    (
      {"kind": "before", "before": "09:00", "dates": ("May 12", "May 13")},
      "Book the cheapest economy flight BOS to LAX on May 12 or May 13"
      " before 09:00 for Ana Silva.",
    ),
  ],
)
def test_a_request_reads_back(changes, sentence):
  request = make_request(**changes)
  assert flight_text.write_request(request) == sentence
  assert flight_text.read_request(sentence) == request


def test_another_sentence_is_refused():
  with pytest.raises(ValueError, match="cannot read the request"):
    flight_text.read_request("Book me something nice.")


def test_rows_read_back():
  text = "0 seats\n" + "".join(
    [
      flight_text.write_row("KL215", 460, date=None, time="07:40"),
      flight_text.write_row("AF104", 120, date="May 13", time="10:10"),
      flight_text.write_row("BA327", 80, date=None, time=None),
    ]
  )
  assert (
    text == "0 seats\nKL215 07:40 $460\nAF104 May 13 10:10 $120\nBA327 $80\n"
  )
  assert flight_text.read_rows(text) == ["KL215", "AF104", "BA327"]
  assert flight_text.read_rows("2 seats") == []
  assert flight_text.read_rows("no flights\n") == []


@pytest.mark.parametrize(
  ("answer", "says_so"),
  [
    ("No flight fits.", True),
    ("There are no available flights.", True),
    ("Sorry, nothing fits", True),
    ("none is available", True),
    ("Booked.", False),
    ("Sold out.", False),
    ("Order ok", False),
  ],
)
def test_says_no_flight(answer, says_so):
  assert flight_text.says_no_flight(answer) == says_so


def split(text):
  from tokenizers import Regex, pre_tokenizers

  pattern = Regex(flight_text.FLIGHT_SPLIT_PATTERN)
  splitter = pre_tokenizers.Split(pattern, "isolated")
  return [piece for piece, _ in splitter.pre_tokenize_str(text)]


def test_the_split_isolates_values_and_keeps_boilerplate_whole():
  assert split(
    '<tool_call>\n{"name": "search", "arguments": {"from": "BOS", "to": "LAX",'
    ' "date": "May 12", "cabin": "economy"}}\n</tool_call>'
  ) == [
    '<tool_call>\n{"name": "search", "arguments": {"from": "',
    "BOS",
    '", "to": "',
    "LAX",
    '", "date": "',
    "May 12",
    '", "cabin": "',
    "economy",
    '"}}\n</tool_call>',
  ]
  assert split("KL215 07:40 $460\nAF104 May 13 10:10 $120\n") == [
    "KL215",
    " 07:40",
    " $460\n",
    "AF104",
    " May 13",
    " 10:10",
    " $120\n",
  ]


def test_a_value_is_the_same_piece_in_a_request_and_in_a_call():
  request = split(
    "Book the cheapest economy flight BOS to LAX on May 12 before 09:00 for"
    " Ana Silvas."
  )
  call = split(
    '"BOS", "LAX", "May 12", "economy", "09:00", "Ana Silvas", "before"'
  )
  values = {"BOS", "LAX", "May 12", "economy", "09:00", "Ana", " Silvas"}
  assert values <= set(request)
  assert values <= set(call)


def test_the_pools_leave_room_in_a_small_vocabulary():
  assert len(set(flight_text.FLIGHT_NUMBERS)) == 64
  for deadline in flight_text.DEADLINES:
    assert sum(time < deadline for time in flight_text.TIMES) >= 3
