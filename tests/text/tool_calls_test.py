"""Tests of parsing tool calls in both styles."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from arl_jax.episode import ToolCall
from arl_jax.text.tool_calls import (
  CallStatus,
  parse_tool_calls,
  render_tool_call,
)

ORDER = {"search": ("from", "to", "date"), "sort": ("by",), "stop": ()}
GOOD = (
  '<tool_call>\n{"name": "sort", "arguments": {"by": "price"}}\n</tool_call>'
)
SORT = ToolCall(name="sort", arguments={"by": "price"})


def hermes(body):
  return f"<tool_call>\n{body}\n</tool_call>"


def test_a_good_call_has_its_span():
  text = f"Let me sort. {GOOD} Done."
  (attempt,) = parse_tool_calls(text, style="hermes")
  assert attempt.status == CallStatus.OK
  assert attempt.call == SORT
  assert text[attempt.start : attempt.end] == GOOD


def test_plain_text_has_no_attempts():
  assert parse_tool_calls("Booked.", style="hermes") == ()
  assert parse_tool_calls("", style="hermes") == ()
  assert (
    parse_tool_calls("booked\nBooked.", style="compact", parameters=ORDER) == ()
  )


@pytest.mark.parametrize(
  ("body", "status"),
  [
    ('{"name": "a", "arguments": {}', "malformed_json"),
    ("{'name': 'a', 'arguments': {}}", "malformed_json"),
    ('{"name": "a", "arguments": {"x": NaN}}', "malformed_json"),
    ('{"name": "a", "arguments": {"x": -Infinity}}', "malformed_json"),
    ('{"name": "a", "arguments": {"x": 1e999}}', "malformed_json"),
    ('{"name": "a", "name": "b", "arguments": {}}', "malformed_json"),
    ('{"name": "a", "arguments": {"x": 1, "x": 2}}', "malformed_json"),
    ('{"name": "a", "arguments": {"x": "\\ud800"}}', "malformed_json"),
    ('{"name": "a", "arguments": {}} and more', "malformed_json"),
    ('{"name": "a", "arguments": {"x": ' + "[" * 9999 + "}}", "malformed_json"),
    ('{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}", "malformed_json"),
    ("", "malformed_json"),
    ("[1]", "not_an_object"),
    ('"sort"', "not_an_object"),
    ('{"arguments": {}}', "missing_name"),
    ('{"name": "", "arguments": {}}', "missing_name"),
    ('{"name": 3, "arguments": {}}', "missing_name"),
    ('{"name": "a"}', "bad_arguments"),
    ('{"name": "a", "arguments": "{}"}', "bad_arguments"),
  ],
)
def test_a_bad_call_has_a_status_and_spares_its_siblings(body, status):
  text = GOOD + hermes(body) + GOOD
  first, bad, last = parse_tool_calls(text, style="hermes")
  assert (first.call, last.call) == (SORT, SORT)
  assert bad.status == status
  assert bad.call is None
  assert bad.error
  assert text[bad.start : bad.end] == hermes(body)


def test_an_unclosed_call_ends_at_the_next_tag():
  text = '<tool_call>{"name": "sort", "argu' + GOOD
  bad, good = parse_tool_calls(text, style="hermes")
  assert bad.status == CallStatus.UNCLOSED
  assert good.call == SORT
  (bad,) = parse_tool_calls(GOOD.removesuffix("</tool_call>"), style="hermes")
  assert bad.status == CallStatus.UNCLOSED


def test_a_closing_tag_alone_is_an_attempt():
  bad, good = parse_tool_calls("{}</tool_call>" + GOOD, style="hermes")
  assert bad.status == CallStatus.UNOPENED
  assert good.call == SORT


def test_an_argument_may_hold_the_tags():
  call = ToolCall(name="say", arguments={"text": "</tool_call><tool_call>"})
  text = render_tool_call(call, style="hermes") + GOOD
  assert [a.call for a in parse_tool_calls(text, style="hermes")] == [
    call,
    SORT,
  ]


def test_compact_reads_arguments_in_order():
  text = "search BOS | LAX|May 12\nthinking\n  sort price  \nstop"
  attempts = parse_tool_calls(text, style="compact", parameters=ORDER)
  assert [attempt.call for attempt in attempts] == [
    ToolCall(
      name="search", arguments={"from": "BOS", "to": "LAX", "date": "May 12"}
    ),
    SORT,
    ToolCall(name="stop", arguments={}),
  ]
  spans = [text[attempt.start : attempt.end] for attempt in attempts]
  assert spans == ["search BOS | LAX|May 12", "sort price", "stop"]


@pytest.mark.parametrize(
  ("line", "status"),
  [
    ("serch BOS | LAX", "unknown_name"),
    ("sort price | time", "bad_arguments"),
    ("search BOS | | May 12", "bad_arguments"),
    ("search BOS | LAX | May 12 |", "bad_arguments"),
  ],
)
def test_a_bad_compact_line_spares_its_siblings(line, status):
  bad, good = parse_tool_calls(
    f"{line}\nsort price", style="compact", parameters=ORDER
  )
  assert bad.status == status
  assert bad.call is None
  assert good.call == SORT


def test_bad_arguments_of_the_functions_are_explained():
  with pytest.raises(ValueError, match="style is 'xml'"):
    parse_tool_calls("", style="xml")  # pyright: ignore
  with pytest.raises(ValueError, match="needs `parameters`"):
    parse_tool_calls("", style="compact")
  with pytest.raises(ValueError, match="cannot write the argument 'a|b'"):
    render_tool_call(
      ToolCall(name="sort", arguments={"by": "a|b"}),
      style="compact",
      parameters=ORDER,
    )
  with pytest.raises(ValueError, match="can leave out only the last"):
    render_tool_call(
      ToolCall(name="search", arguments={"to": "LAX"}),
      style="compact",
      parameters=ORDER,
    )


JSON_VALUES = st.recursive(
  st.none()
  | st.booleans()
  | st.integers(-(10**18), 10**18)
  | st.floats(allow_nan=False, allow_infinity=False)
  | st.text(st.characters(exclude_categories=["Cs"])),
  lambda inner: (
    st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4), inner, max_size=3)
  ),
  max_leaves=8,
)
ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@settings(max_examples=150, deadline=None)
@given(name=ENCODABLE, arguments=st.dictionaries(ENCODABLE, JSON_VALUES))
def test_hermes_round_trips(name, arguments):
  call = ToolCall(name=name, arguments=arguments)
  text = render_tool_call(call, style="hermes")
  (attempt,) = parse_tool_calls(text, style="hermes")
  assert attempt.call == call
  assert (attempt.start, attempt.end) == (0, len(text))


PIECES = st.sampled_from(
  [
    "<tool_call>",
    "</tool_call>",
    '{"name": "a", "arguments": {}}',
    '{"name": "a"',
    "{",
    '"',
    "\\u",
    "\n",
    "sort",
    " | ",
    "search",
    "BOS",
  ]
)


@settings(max_examples=300, deadline=None)
@given(pieces=st.lists(PIECES | st.text(max_size=5), max_size=12))
def test_any_text_parses_to_ordered_disjoint_attempts(pieces):
  text = "".join(pieces)
  for style in ("hermes", "compact"):
    attempts = parse_tool_calls(text, style=style, parameters=ORDER)
    end = 0
    for attempt in attempts:
      assert end <= attempt.start < attempt.end <= len(text)
      end = attempt.end
      is_ok = attempt.status == CallStatus.OK
      assert is_ok == (attempt.call is not None) == (attempt.error == "")
      if attempt.call is not None:
        json.dumps(attempt.call.arguments).encode()
    if style == "hermes":
      has_tag = "<tool_call>" in text or "</tool_call>" in text
      assert bool(attempts) == has_tag


@settings(max_examples=100, deadline=None)
@given(
  values=st.lists(
    st.text("abc 12", min_size=1).filter(lambda v: v == v.strip()), max_size=3
  )
)
def test_compact_round_trips(values):
  call = ToolCall(
    name="search",
    arguments=dict(zip(ORDER["search"], values, strict=False)),
  )
  text = render_tool_call(call, style="compact", parameters=ORDER)
  (attempt,) = parse_tool_calls(text, style="compact", parameters=ORDER)
  assert attempt.call == call
