"""What an environment may answer, and what becomes of the rest."""

import math

import numpy as np
import pytest

from arl_jax.actors import answers
from arl_jax.actors.answers import AnswerError
from arl_jax.envs.environment import StepResult
from arl_jax.episode import Message


def tool(content):
  return Message(role="tool", content=content)


@pytest.mark.parametrize(
  ("text", "clean"),
  [
    ("", ""),
    ("fine \U0001f600", "fine \U0001f600"),
    ("a\ud800b", "a\ufffdb"),
    ("\udcff", "\ufffd"),
    ("\ud83d\ude00", "\ufffd\ufffd"),  # a pair is no text either
    ("x" * 30, "x" * 30),
    ("x" * 31, "x" * 30 + "\n[1 characters left out]"),
    ("\ud800" * 1030, "\ufffd" * 30 + "\n[1000 characters left out]"),
  ],
)
def test_a_clean_text_is_unicode_of_bounded_length(text, clean):
  found = answers.clean_text(text, max_chars=30)
  assert found == clean
  found.encode("utf-8")


def test_messages_are_cleaned_one_by_one():
  found = answers.clean_messages([tool("ab\udc00d"), tool("e")], max_chars=3)
  assert found == (tool("ab\ufffd\n[1 characters left out]"), tool("e"))
  assert answers.clean_messages((), max_chars=3) == ()


@pytest.mark.parametrize(
  ("found", "problem"),
  [
    (None, "expected a tuple of messages, found None"),
    ("text", "found str"),
    (tool("a"), "found Message"),
    ({"role": "tool"}, "found dict"),
    ((tool("a"), "b"), "message 1 is str, not a Message"),
    (({"role": "tool", "content": "a"},), "message 0 is dict"),
    ((Message(role="robot", content="a"),), "role 'robot'; expected one of"),
    ((tool(b"a"),), "content that is bytes, not a str"),
    ((tool(None),), "content that is None, not a str"),
  ],
)
def test_what_is_no_message_is_named(found, problem):
  with pytest.raises(AnswerError, match=problem):
    answers.clean_messages(found, max_chars=9)
  step = StepResult(observations=found)
  with pytest.raises(AnswerError, match=problem):
    answers.clean_step_result(step, max_chars=9)


def test_a_step_keeps_what_is_right():
  step = StepResult(
    observations=(tool("ab\ud800"),),
    terminated=np.bool_(True),  # pyright: ignore[reportArgumentType]
    rewards={"a": np.float32(0.5), "b": True, "c": np.asarray(2)},  # pyright: ignore[reportArgumentType]
    num_tool_calls=np.int64(2),  # pyright: ignore[reportArgumentType]
    num_tool_errors=1,
    state_key="k\ud800",
  )
  clean = answers.clean_step_result(step, max_chars=99)
  assert clean.observations == (tool("ab\ufffd"),)
  assert clean.terminated is True
  assert clean.rewards == {"a": 0.5, "b": 1.0, "c": 2.0}
  assert {type(value) for value in clean.rewards.values()} == {float}
  assert (clean.num_tool_calls, clean.num_tool_errors) == (2, 1)
  assert clean.state_key == "k\ufffd"


@pytest.mark.parametrize(
  ("found", "problem"),
  [
    (None, "expected a StepResult, found None"),
    ({"observations": ()}, "expected a StepResult, found dict"),
    (StepResult, "expected a StepResult, found type"),
    (StepResult(terminated="no"), "terminated is str, not a bool"),  # pyright: ignore[reportArgumentType]
    (StepResult(state_key=3), "state_key is int"),  # pyright: ignore[reportArgumentType]
    (StepResult(num_tool_calls=-1), "num_tool_calls is -1"),
    (StepResult(num_tool_errors=0.5), "num_tool_errors is 0.5"),  # pyright: ignore[reportArgumentType]
    (StepResult(rewards=None), "components by name, found None"),  # pyright: ignore[reportArgumentType]
  ],
)
def test_what_is_no_step_is_named(found, problem):
  with pytest.raises(AnswerError, match=problem):
    answers.clean_step_result(found, max_chars=9)


@pytest.mark.parametrize(
  ("found", "problem"),
  [
    (1.0, "components by name, found float"),
    ([("success", 1.0)], "found list"),
    ({3: 1.0}, "has the name 3"),
    ({"\ud800": 1.0}, "has the name"),
    ({"a": None}, "'a' is None; expected a finite number"),
    ({"a": "1.0"}, "'a' is '1.0'; expected a finite number"),
    ({"a": math.nan}, "'a' is nan"),
    ({"a": -math.inf}, "'a' is -inf"),
    ({"a": 10**400}, "expected a finite number"),
    ({"a": 1e39}, "expected a finite number in float32"),
    ({"a": np.zeros(2)}, "expected a finite number"),
    ({"a": 1j}, "expected a finite number"),
  ],
)
def test_what_is_no_score_is_named(found, problem):
  with pytest.raises(AnswerError, match=problem):
    answers.clean_components(found)
