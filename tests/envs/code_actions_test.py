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


ANSWER = "<answer>1</answer>"
OPEN = "```python\nprint(1)"
UNCLOSED = "error the block is not closed"


@pytest.mark.parametrize(
  ("action", "expected"),
  [
    # Its program was never finished, so what it holds is no answer,
    (f"{OPEN}\n{ANSWER}", [UNCLOSED]),
    (f"Think.\n```\n{ANSWER}", [UNCLOSED]),
    (f"{OPEN}\n{ANSWER}\n{ANSWER}", [UNCLOSED]),
    # up to the next block; after that one, it is.
    (
      f"{OPEN}\n{ANSWER}\n{BLOCK}\n{ANSWER}",
      [UNCLOSED, "code print(1)", "answer 1"],
    ),
    (f"```python\nx<answer>\n{OPEN}</answer>", [UNCLOSED] * 2),
    # What came first stays an answer, and what it holds is a part of it.
    (f"{ANSWER}\n{OPEN}", ["answer 1", UNCLOSED]),
    (f"{ANSWER}\n{OPEN}\n{ANSWER}", ["answer 1", UNCLOSED]),
    (f"<answer>\n{OPEN}\n</answer>", [f"answer {OPEN}"]),
    (f"<answer>\n{OPEN}\n{OPEN}</answer>", [f"answer {OPEN}\n{OPEN}"]),
    (
      f"<answer>\n{OPEN}\n",
      ["error <answer> without </answer>", UNCLOSED],
    ),
    # A stop token may come right after the last fence.
    (f"{BLOCK}", ["code print(1)"]),
    ("```python\nprint(1)\n``", [UNCLOSED]),
    ("<answer>1</answe", ["error <answer> without </answer>"]),
  ],
)
def test_what_is_unclosed_holds_no_answer(action, expected):
  assert [one.partition(":")[0] for one in read(action)] == expected


def test_many_unclosed_blocks_take_no_quadratic_time():
  # A look at all tags for each block would take minutes.
  assert len(read_action(f"```python\n{ANSWER}\n" * 20_000)) == 20_000
