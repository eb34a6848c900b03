"""What a search agent's episode is worth, from plain values."""

from collections.abc import Iterable, Mapping

from arl_jax.rewards.answers import f1_score


def f1_or_penalty(
  answer: str | None,
  accepted: Iterable[str],
  *,
  is_well_formed: bool,
  penalty: float = -1.0,
) -> float:
  """F1 of the answer; `penalty` if anything was malformed or unanswered.

  Reference: DeepResearcher (arXiv:2504.03160), equation of the reward.

  Args:
    answer: what was answered, None for nothing.
    accepted: the right answer in all its forms.
    is_well_formed: whether every tag of the episode was.
    penalty: of the wrong format.
  """
  if answer is None or not is_well_formed:
    return penalty
  return f1_score(answer, accepted)


def format_penalty(answer: str | None, *, is_well_formed: bool) -> float:
  """-1 if there is no answer or a tag was malformed, else 0."""
  return 0.0 if answer is not None and is_well_formed else -1.0


def search_cost(
  num_searches: int, *, cost: float = 0.05, max_searches: int = 5
) -> float:
  """Minus `cost` for each search, up to `max_searches` of them."""
  return -cost * min(num_searches, max_searches)


def citation_support(
  evidence: Iterable[tuple[str, str]], shown: Mapping[str, str]
) -> float:
  """Share of the evidence that was shown, in [0, 1]; 0 if there is none.

  A passage that was cut off before what matters does not count.

  Args:
    evidence: id of a passage, and the words of it that matter.
    shown: the text that was shown of each passage, in one line, by its id.
  """
  found = [
    " ".join(words.split()) in shown.get(name, "") for name, words in evidence
  ]
  return sum(found) / len(found) if found else 0.0
