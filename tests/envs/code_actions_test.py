"""Tests of what is read in an action of a code interpreter's policy."""

import pytest

from arl_jax.envs.code_actions import read_action, write_answer

BLOCK = "```python\nprint(1)\n```"


def read(action: str) -> list[str]:
  """Attempts in short: what they are, and what they hold."""
  return [
    f"code {each.code}"
    if each.code is not None
    else f"answer {each.answer}"
    if each.answer is not None
    else f"error {each.error}"
    for each in read_action(action)
  ]


@pytest.mark.parametrize(
  ("action", "expected"),
  [
    ("", []),
    ("Let me think.", []),
    (BLOCK, ["code print(1)"]),
    ("```py\nx\n```", ["code x"]),
    (write_answer("42"), ["answer 42"]),
    ("<answer> a\nb </answer>", ["answer a\nb"]),
    (f"{BLOCK}\n<answer>1</answer>", ["code print(1)", "answer 1"]),
    (f"<answer>1</answer>\n{BLOCK}", ["answer 1", "code print(1)"]),
    (f"{BLOCK}\nand\n{BLOCK}", ["code print(1)"] * 2),
    # What opens first holds the other.
    (f"<answer>\n{BLOCK}\n</answer>", [f"answer {BLOCK}"]),
    (
      "```python\nx = '<answer>1</answer>'\n```",
      ["code x = '<answer>1</answer>'"],
    ),
    # A fence that is not on a line of its own is part of the answer, too.
    ("<answer>```python\nx\n```\n</answer>", ["answer ```python\nx\n```"]),
    ("<answer>```python\nx\n```</answer>", ["answer ```python\nx\n```"]),
    (
      "<answer>1</answer><answer>2</answer>",
      ["error more than one <answer>; give one"] * 2,
    ),
    (
      f"<answer>\n{BLOCK}\n</answer><answer>2</answer>",
      ["error more than one <answer>; give one"] * 2,
    ),
    ("<answer></answer>", ["error <answer> is empty"]),
    ("<answer>1", ["error <answer> without </answer>"]),
    (
      "```\nx\n```",
      ["error the block has no language; expected python or py or python3"],
    ),
  ],
)
def test_attempts(action, expected):
  assert read(action) == expected


def test_an_unclosed_block_does_not_swallow_an_answer():
  unclosed, answer = read("```python\nprint(1)\n<answer>1</answer>")
  assert unclosed.startswith("error the block is not closed")
  assert answer == "answer 1"
