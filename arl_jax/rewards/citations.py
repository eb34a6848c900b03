"""Rubrics that are satisfied by evidence and lead to the answer."""

from collections.abc import Callable, Sequence
import dataclasses

from arl_jax.episode import Episode
from arl_jax.rewards.compose import Reward, number
from arl_jax.rewards.outcome import success

# The entity that is asked for.
ANSWER = "answer"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Rubric:
  """One fact that leads to the answer, as judged in an episode.

  Attributes:
    entities: names of the entities that the fact is about, `ANSWER` for the
      answer itself.
    identified: whether the policy named all of them.
    supported: whether a passage that it cited supports the fact.
  """

  entities: tuple[str, ...]
  identified: bool
  supported: bool


def connected_share(rubrics: Sequence[Rubric]) -> float:
  """Share of the rubrics that are supported and lead to the answer.

  Supported rubrics and their entities are a graph. A rubric counts if a walk
  from the answer reaches it; facts about something else are worth nothing.

  Reference: CaRR (arXiv:2601.06021).

  Args:
    rubrics: of one episode.

  Returns:
    A number in [0, 1]; 0 without rubrics.
  """
  waiting = [r for r in rubrics if r.identified and r.supported]
  reached = {ANSWER}
  num_connected = 0
  while met := [r for r in waiting if reached.intersection(r.entities)]:
    num_connected += len(met)
    waiting = [r for r in waiting if not reached.intersection(r.entities)]
    reached.update(name for rubric in met for name in rubric.entities)
  return num_connected / len(rubrics) if rubrics else 0.0


def rubric_outcome(
  judge: Callable[[Episode], Sequence[Rubric]],
  *,
  rubric_weight: float = 0.3,
  outcome: Reward = success,
) -> Reward:
  """The outcome, of which a share is held back until it is proven.

  R = outcome · ((1 - α) + α · connected share): evidence without the right
  answer earns nothing.

  Args:
    judge: the rubrics of an episode, with their verdicts.
    rubric_weight: α.
    outcome: in [0, 1].

  Raises:
    ValueError: if the weight is outside [0, 1].
  """
  if not 0 <= rubric_weight <= 1:
    raise ValueError(f"rubric_weight is {rubric_weight}; expected 0 to 1")

  def value(episode: Episode) -> float:
    found = number(outcome, episode)
    if not found:
      return 0.0
    proven = connected_share(judge(episode))
    return found * (1.0 - rubric_weight + rubric_weight * proven)

  return value
