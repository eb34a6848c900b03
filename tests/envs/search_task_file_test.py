"""Tests of questions as lines of JSON."""

import pytest

from arl_jax.envs.search_task_file import load_tasks


def test_lines_are_tasks(tmp_path):
  path = tmp_path / "tasks.jsonl"
  path.write_text(
    '{"question": "Who?", "answers": ["me", "I"]}\n\n'
    '{"id": "b", "level": 2, "question": "What?", "answers": ["it"],'
    ' "evidence": [["p/1", "it is"]]}\n',
    encoding="utf-8",
  )
  one, other = load_tasks(path)
  assert (one.task_id, one.prompt, one.level) == ("line-1", "Who?", 0)
  assert one.hidden == {"answers": ["me", "I"], "evidence": []}
  assert (other.task_id, other.level) == ("b", 2)
  assert other.hidden["evidence"] == [["p/1", "it is"]]


@pytest.mark.parametrize(
  ("content", "message"),
  [
    ("", "holds no questions"),
    ("\n{", "line 2: not JSON"),
    ("3", "line 1: found int"),
    (
      '{"question": "Q", "answer": "A"}',
      r"line 1: unknown fields \['answer'\]",
    ),
    ('{"answers": ["A"]}', "line 1: question is None"),
    ('{"question": " ", "answers": ["A"]}', "line 1: question is ' '"),
    ('{"question": "Q"}', "line 1: hidden.answers of task line-1 is None"),
    ('{"question": "Q", "answers": []}', "expected texts, at least one"),
    ('{"question": "Q", "answers": "A"}', "hidden.answers"),
    ('{"question": "Q", "answers": [" "]}', "hidden.answers"),
    ('{"question": "Q", "answers": ["A"], "evidence": 3}', "hidden.evidence"),
    ('{"question": "Q", "answers": ["A"], "evidence": [["a"]]}', "pairs of"),
    ('{"question": "Q", "answers": ["A"], "evidence": [["a", 1]]}', "pairs of"),
    ('{"question": "Q", "answers": ["A"], "level": true}', "level is True"),
    ('{"question": "Q", "answers": ["A"], "id": ""}', "id is ''"),
    (
      '{"question": "Q", "answers": ["A"], "id": "x"}\n' * 2,
      "line 2: id 'x' comes twice",
    ),
  ],
)
def test_mistakes_are_named(tmp_path, content, message):
  path = tmp_path / "tasks.jsonl"
  path.write_text(content, encoding="utf-8")
  with pytest.raises(ValueError, match=message):
    load_tasks(path)


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(ValueError, match="none is not a file"):
    load_tasks(tmp_path / "none")
