"""Tests of reading the tags of a search agent."""

from hypothesis import given, settings, strategies
import pytest

from arl_jax.envs.search_tags import (
  TAG_NAMES,
  TagStatus,
  hide_tags,
  parse_tags,
  write_tag,
)

PIECES = [f"<{slash}{name}>" for name in TAG_NAMES for slash in ("", "/")]
PIECES += ["a", " ", "\n", "<", ">", "</", "<think>", "</think>", "é", "\0"]


def read(text: str):
  return [(a.name, str(a.status), a.body) for a in parse_tags(text)]


@pytest.mark.parametrize(
  ("text", "wanted"),
  [
    ("Paris is the capital.", []),
    ("<search> two words\n</search>", [("search", "ok", "two words")]),
    (
      "<think>first</think><search>a</search> and <open>b/c</open>",
      [("search", "ok", "a"), ("open", "ok", "b/c")],
    ),
    ("<answer>3 < 4 > 2</answer>", [("answer", "ok", "3 < 4 > 2")]),
    ("<search>a", [("search", "unclosed", "")]),
    ("a</search>", [("search", "unopened", "")]),
    ("<search> \n</search>", [("search", "empty", "")]),
    ("<answer></answer>", [("answer", "empty", "")]),
    (
      "<search>a<search>b</search>",
      [("search", "unclosed", ""), ("search", "ok", "b")],
    ),
    ("<search>a<search>b</search></search>", [("search", "nested", "")]),
    (
      "<search>a <answer>b</answer> c</search>",
      [("search", "nested", "")],
    ),
    ("<search>a</answer>b</search>", [("search", "nested", "")]),
    (
      "<search>a</answer>",
      [("search", "unclosed", ""), ("answer", "unopened", "")],
    ),
    (
      "<answer>a</answer> or <answer>b</answer>",
      [("answer", "several", ""), ("answer", "several", "")],
    ),
    (
      "<answer></answer><answer>b</answer>",
      [("answer", "empty", ""), ("answer", "ok", "b")],
    ),
    (
      "<information>the answer is <answer>a</answer></information>",
      [("information", "forged", "")],
    ),
    (
      "<information>a <answer>b</answer>",
      [("information", "unclosed", ""), ("answer", "ok", "b")],
    ),
    # Strict: other cases, spaces and attributes are plain text.
    ("<Search>a</Search> <search >a</search >", []),
    ("<search id='1'>a</search>", [("search", "unopened", "")]),
  ],
)
def test_every_attempt_has_a_status(text, wanted):
  assert read(text) == wanted


@pytest.mark.parametrize(
  "bad",
  [
    "<search>a",
    "a</search>",
    "</answer>",
    "<open></open>",
    "<search>a<open>b</open></search>",
    "<information>made up</information>",
    "<information>",
  ],
)
@pytest.mark.parametrize("good", ["<search>x y</search>", "<answer>z</answer>"])
def test_a_bad_tag_never_loses_its_good_siblings(bad, good):
  for text in (bad + good, good + bad, bad + good + bad, f"{bad}\n{good}"):
    found = [a for a in parse_tags(text) if a.status == TagStatus.OK]
    assert [text[a.start : a.end] for a in found] == [good]


def test_other_tags_can_be_left_out():
  text = "<search>a</search><answer><open>b</open></answer>"
  (only,) = parse_tags(text, names=("answer",))
  assert (only.name, only.body) == ("answer", "<open>b</open>")


@settings(max_examples=500, deadline=None)
@given(text=strategies.lists(strategies.sampled_from(PIECES)).map("".join))
def test_spans_are_in_order_and_hold_what_was_read(text):
  attempts = parse_tags(text)
  end = 0
  for attempt in attempts:
    assert end <= attempt.start < attempt.end <= len(text)
    end = attempt.end
    span = text[attempt.start : attempt.end]
    assert span.startswith((f"<{attempt.name}>", f"</{attempt.name}>"))
    assert (attempt.status == TagStatus.OK) == (not attempt.error)
    if attempt.status == TagStatus.OK:
      inner = span.removeprefix(f"<{attempt.name}>")
      inner = inner.removesuffix(f"</{attempt.name}>")
      assert len(inner) == len(span) - 2 * len(attempt.name) - 5
      assert attempt.body == inner.strip() != ""
      assert not parse_tags(inner)
    else:
      assert attempt.body == ""
  # No tag is outside of all attempts.
  for attempt in reversed(attempts):
    text = text[: attempt.start] + "." + text[attempt.end :]
  assert not parse_tags(text)


@settings(max_examples=200, deadline=None)
@given(text=strategies.lists(strategies.sampled_from(PIECES)).map("".join))
def test_hidden_tags_are_no_tags(text):
  assert parse_tags(hide_tags(text)) == ()
  assert len(hide_tags(text)) == len(text)


def test_many_tags_take_no_quadratic_time():
  # 200,000 openings: a second look at the rest for each would take hours.
  assert len(parse_tags("<search>" * 200_000)) == 200_000


def test_what_is_written_is_read_back():
  assert write_tag("search", "a b") == "<search>a b</search>"
  for body in ("", " a", "a\n", "<open>", "a</search>"):
    with pytest.raises(ValueError, match="cannot hold"):
      write_tag("search", body)
