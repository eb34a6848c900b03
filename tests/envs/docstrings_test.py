"""Tests of reading Google-style docstrings."""

import pytest

from arl_jax.envs.docstrings import read_docstring


def read(text):
  return read_docstring(text)


def test_sections_end_the_description():
  text = """Finds flights.

  Cheapest first: at most ten.

  Args:
    origin (str): where from;
      one city.

      In capitals.
    day: when.

    seats (int, optional):
      how many.

  Returns:
    lines: one for each.

  Raises:
    ToolError: none found.
  """
  description, arguments = read(text)
  assert description == "Finds flights.\nCheapest first: at most ten."
  assert arguments == {
    "origin": "where from; one city. In capitals.",
    "day": "when.",
    "seats": "how many.",
  }


@pytest.mark.parametrize(
  ("text", "description"),
  [
    ("", ""),
    ("One line.", "One line."),
    ("It answers:\nyes or no.", "It answers: yes or no."),
    ("Note:\nnot indented.", "Note: not indented."),
    ("A.\n\nArgs:\n", "A.\nArgs:"),
  ],
)
def test_text_without_sections(text, description):
  assert read(text) == (description, {})


def test_lines_that_are_no_entry_belong_to_the_one_before():
  arguments = read("A.\n\nArgs:\n  lost text\n  a: one.\n  two three.\n")[1]
  assert arguments == {"a": "one. two three."}
