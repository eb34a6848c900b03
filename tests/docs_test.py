"""Tests that what the documentation shows runs, prints and is there."""

import contextlib
import io
import pathlib
import re
from typing import Any

import numpy as np
import pytest

import arl_jax

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

# A block of Python, and what it prints where a block of text follows it.
_EXAMPLE = re.compile(
  r"^```python\n(?P<code>.*?)^```\n(\n```text\n(?P<printed>.*?)^```$)?",
  re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def _examples(page: pathlib.Path) -> list[re.Match[str]]:
  text = page.read_text(encoding="utf-8")
  found = list(_EXAMPLE.finditer(text))
  assert len(found) == text.count("```python")
  return [e for e in found if not e["code"].startswith("# not run")]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_examples_run_and_print_what_is_shown(page: pathlib.Path):
  namespace: dict[str, Any] = {}
  with np.printoptions():  # a page may set its own
    _run(page, namespace)


def _run(page: pathlib.Path, namespace: dict[str, Any]) -> None:
  for example in _examples(page):
    # Blank lines in front give a traceback the lines of the page.
    line = example.string.count("\n", 0, example.start("code"))
    code = compile("\n" * line + example["code"], str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
      exec(code, namespace)
    if example["printed"] is not None:
      assert printed.getvalue() == example["printed"]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: pathlib.Path):
  for link in _LINK.findall(page.read_text(encoding="utf-8")):
    assert "://" in link or (page.parent / link).exists(), link


def test_every_page_on_the_numerics_has_an_example():
  pages = sorted((ROOT / "docs" / "ops").glob("*.md"))
  assert len(pages) >= 9
  assert all(_examples(page) for page in pages)


def test_every_function_of_the_numerics_is_described():
  names = [
    name
    for name in arl_jax.__all__
    if getattr(arl_jax, name).__module__.startswith("arl_jax.ops.")
  ]
  assert len(names) > 50
  pages = (ROOT / "docs" / "ops").glob("*.md")
  text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
  missing = [n for n in names if not re.search(rf"\b{n}\b", text)]
  assert not missing
