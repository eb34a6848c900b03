"""Tests that what the README shows can be done."""

import pathlib
import re
import shlex
import subprocess

import pytest

from arl_jax import command_line
from arl_jax.run import config_rules
from arl_jax.run.settings import read_settings

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
  return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _commands() -> list[list[str]]:
  text = "\n".join(_blocks("sh")).replace("\\\n", " ")
  lines = [shlex.split(line, comments=True) for line in text.splitlines()]
  return [words for words in lines if words]


PYTHON = [words for words in _commands() if words[0].endswith("python")]
MAKE = [words for words in _commands() if words[0] == "make"]


def test_commands_are_found():
  assert len(PYTHON) >= 4
  assert len(MAKE) >= 2


@pytest.mark.parametrize("words", PYTHON, ids=lambda words: words[-1])
def test_python_command_is_understood(words, tmp_path):
  assert words[1] == "-m"
  # A folder of the reader's own.
  words = [word.replace("path/to/folder", str(tmp_path)) for word in words]
  module = ROOT / (words[2].replace(".", "/") + ".py")
  assert module.is_file()
  config_rules.check(read_settings(command_line.parse(words[2:]).config))


@pytest.mark.parametrize("words", MAKE, ids=lambda words: words[-1])
def test_make_target_exists(words):
  done = subprocess.run(
    [*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr


def test_make_says_that_an_interpreter_cannot_be_run():
  done = subprocess.run(
    ["make", ".venv", "PYTHON=no-such-python"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 2
  assert "PYTHON is 'no-such-python' and could not be run" in done.stderr


def test_library_example_runs():
  for block in _blocks("python"):
    exec(block, {})


def test_links_lead_somewhere():
  links = re.findall(r"\]\(([^)]+)\)", README)
  assert links
  for link in links:
    assert (ROOT / link).exists(), link
