"""How well a short answer agrees with accepted ones, as SQuAD measures it."""

import collections
from collections.abc import Iterable
import re
import string

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
  """Lower case, without punctuation, articles and extra white space.

  Reference: Rajpurkar et al., "SQuAD" (arXiv:1606.05250).

  Example:
    >>> normalize_answer("The U.S. Capitol")
    'us capitol'
  """
  text = text.lower().translate(_PUNCTUATION)
  return " ".join(_ARTICLE.sub(" ", text).split())


def exact_match(answer: str | None, accepted: Iterable[str]) -> float:
  """1 if the answer equals an accepted one after normalisation, else 0.

  Args:
    answer: what was answered, None for nothing.
    accepted: the right answer in all its forms.
  """
  found = normalize_answer(answer or "")
  return float(
    bool(found) and any(found == normalize_answer(one) for one in accepted)
  )


def f1_score(answer: str | None, accepted: Iterable[str]) -> float:
  r"""Overlap of words with the closest accepted answer, in [0, 1].

  $F_1 = 2 P R / (P + R)$, where P is the share of the answer's words that are
  in the accepted one, and R the share of the accepted one's that are in the
  answer. A word counts as often as it comes.

  Args:
    answer: what was answered, None for nothing.
    accepted: the right answer in all its forms.

  Example:
    >>> f1_score("in Porto Novo", ["Porto-Novo", "Porto Novo"])
    0.8
  """
  found = normalize_answer(answer or "").split()
  return max(
    (_f1(found, normalize_answer(a).split()) for a in accepted), default=0.0
  )


def _f1(found: list[str], wanted: list[str]) -> float:
  common = collections.Counter(found) & collections.Counter(wanted)
  num_common = sum(common.values())
  # 2PR / (P + R) without a division by 0 where nothing is shared.
  return 2.0 * num_common / (len(found) + len(wanted)) if num_common else 0.0
