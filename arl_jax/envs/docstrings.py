"""Reads what a Google-style docstring says of a function and its arguments."""

import inspect
import itertools
import re

_HEADER = re.compile(r"([A-Z][A-Za-z]+)( [a-z]+)?:\s*$")
_ARGUMENTS = {"Args", "Arguments", "Parameters", "Attributes"}
_ENTRY = re.compile(r"(\w+)\s*(?:\([^)]*\))?:(?:\s+|$)(.*)")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
  """Returns the text before the first section, and each argument's.

  Args:
    text: a docstring in Google's style. Sections start with a line such as
      `Args:` that is not indented; entries look like `name: text` or
      `name (type): text`, and go on in lines that are indented further.

  Returns:
    The description, a space for each line break and a line break between
    paragraphs; and descriptions by argument or attribute.
  """
  lines = inspect.cleandoc(text).splitlines()
  headers = [
    index
    for index, line in enumerate(lines)
    if _HEADER.match(line) and _is_section(lines[index + 1 :])
  ]
  end = headers[0] if headers else len(lines)
  paragraphs = re.split(r"\n\s*\n", "\n".join(lines[:end]).strip())
  description = "\n".join(" ".join(part.split()) for part in paragraphs)
  entries: dict[str, str] = {}
  for start, stop in itertools.pairwise([*headers, len(lines)]):
    if lines[start].split(":")[0] in _ARGUMENTS:
      entries |= _read_entries(lines[start + 1 : stop])
  return description, entries


def _is_section(following: list[str]) -> bool:
  """A section's text is indented; a sentence may end with a colon, too."""
  first = next((line for line in following if line.strip()), "")
  return first[:1].isspace()


def _read_entries(lines: list[str]) -> dict[str, str]:
  entries: dict[str, list[str]] = {}
  name, indent = "", None
  for line in lines:
    if not line.strip():
      continue
    depth = len(line) - len(line.lstrip())
    if depth == 0:
      break
    indent = depth if indent is None else indent
    entry = _ENTRY.match(line.strip()) if depth <= indent else None
    if entry is not None:
      name = entry[1]
      entries[name] = [entry[2]]
    elif name:
      entries[name].append(line)
  return {
    name: " ".join(" ".join(parts).split()) for name, parts in entries.items()
  }
