"""What an answer achieved: the questions to which it is right."""

from collections.abc import Iterator, Mapping, Sequence
import hashlib
import re

from arl_jax.envs import search_questions, search_tags, search_tasks
from arl_jax.envs.search_facts import Atlas
from arl_jax.envs.search_tasks import LEVELS, Solved
from arl_jax.episode import Task
from arl_jax.rewards import answers
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode

_SHOWN = re.compile(r"^\[([^\]\n]+)\] ", re.MULTILINE)
# Questions to evaluate on are not for training, relabelled or not.
_SPLITS = ("warmup", "train")


class AnsweredQuestions:
  """The questions of a corpus by their answers; never held-out ones.

  Args:
    atlas: the countries of the corpus.
  """

  def __init__(self, atlas: Atlas):
    self._by_answer: dict[str, list[tuple[int, Solved]]] = {}
    for split in _SPLITS:
      for level in LEVELS:
        for solved in search_tasks.split_questions(
          atlas, split=split, level=level
        ):
          names = {answers.normalize_answer(one) for one in solved.accepted}
          for name in names:
            self._by_answer.setdefault(name, []).append((level, solved))

  def relabel(self, episode: SyntheticEpisode) -> Iterator[Task]:
    """Yields the questions that an episode answered, for `hindsight_relabel`.

    The first action looked for the country that they name first, the answer
    is theirs, and passages that say why were listed. The likest to the
    question that was asked come first.
    """
    given = _given_answer(episode.actions[-1])
    if given is None:
      return
    shown = {
      name
      for turn in episode.turns[1:]
      for message in turn.observations
      for name in _SHOWN.findall(message.content)
    }
    found = [
      (level, solved)
      for level, solved in self._by_answer.get(
        answers.normalize_answer(given), ()
      )
      if solved.question.names[0] in episode.actions[0]
      and all(name in shown for name, _ in solved.evidence)
    ]
    asked = episode.task.hidden.get("kind")
    found.sort(
      key=lambda pair: (pair[1].question.kind != asked, pair[1].question.key)
    )
    for level, solved in found:
      yield question_task(solved, level=level, purpose="hindsight")


def question_task(solved: Solved, *, level: int, purpose: str) -> Task:
  """The task of a question; `purpose` begins its id."""
  question = solved.question
  digest = hashlib.sha256(f"{purpose}/{question.key}".encode()).hexdigest()
  form = int(digest, 16) % len(search_questions.FORMS[question.kind])
  return Task(
    task_id=f"search-{purpose}-{digest[:12]}",
    prompt=search_questions.write_question(question, form=form),
    level=level,
    hidden={
      "kind": question.kind,
      "answers": list(solved.accepted),
      "evidence": [list(pair) for pair in solved.evidence],
    },
  )


def is_supported(scores: Mapping[str, float]) -> bool:
  """True if all that an answer follows from was read."""
  return scores.get("support", 0.0) >= 1.0


def _given_answer(action: str) -> str | None:
  attempts: Sequence[search_tags.TagAttempt] = search_tags.parse_tags(
    action, names=(search_tags.ANSWER,)
  )
  good = [a.body for a in attempts if a.status == search_tags.TagStatus.OK]
  return good[0] if len(good) == 1 else None
