"""Filters that keep the episodes worth imitating, counting what each drops."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
import dataclasses
import math

from arl_jax.synthesis.synthetic_episode import SyntheticEpisode

COUNTS: tuple[str, ...] = (
  "given",
  "failed",
  "too_short",
  "too_long",
  "too_many_tokens",
  "low_quality",
  "duplicate",
  "kept",
)
_COST_OF_A_CALL = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FilterSettings:
  """What an episode has to be.

  Attributes:
    only_success: drop those that the environment did not judge a success.
    min_turns: fewest actions, the answer included.
    max_calls: most actions before the answer.
    max_tokens: longest row; needs `count_tokens`. None for no bound.
    min_quality: lowest `quality`.
    max_jaccard: an episode whose set of actions is more like that of a kept
      one is a duplicate; 1 keeps all.
  """

  only_success: bool = True
  min_turns: int = 2
  max_calls: int = 8
  max_tokens: int | None = None
  min_quality: float = 0.6
  max_jaccard: float = 0.85

  def __post_init__(self) -> None:
    if self.min_turns < 1 or self.max_calls < self.min_turns - 1:
      raise ValueError(
        f"min_turns is {self.min_turns} and max_calls is {self.max_calls};"
        " expected a turn or more, and room for them"
      )
    for name in ("min_quality", "max_jaccard"):
      if not 0.0 <= getattr(self, name) <= 1.0:
        raise ValueError(
          f"{name} is {getattr(self, name)}; expected a number from 0 to 1"
        )


def filter_episodes(
  episodes: Iterable[SyntheticEpisode],
  settings: FilterSettings | None = None,
  *,
  count_tokens: Callable[[SyntheticEpisode], int] | None = None,
  has_thought: Callable[[str], bool] | None = None,
) -> tuple[list[SyntheticEpisode], dict[str, int]]:
  """Drops what is not worth imitating.

  Args:
    episodes: in the order of preference: of two that are alike, the first is
      kept.
    settings: the bounds; the defaults if None.
    count_tokens: tokens of an episode's row.
    has_thought: see `quality`.

  Returns:
    The kept episodes in their order, and how many each filter dropped. An
    episode is counted under the first filter that drops it, in the order of
    `COUNTS`.

  Raises:
    ValueError: `max_tokens` is set without `count_tokens`.
  """
  settings = settings or FilterSettings()
  if settings.max_tokens is not None and count_tokens is None:
    raise ValueError(
      f"max_tokens is {settings.max_tokens} but count_tokens is None; pass a"
      " function that counts the tokens of an episode"
    )
  counts = {name: 0 for name in COUNTS}
  good: list[SyntheticEpisode] = []
  for episode in episodes:
    counts["given"] += 1
    reason = _reason(episode, settings, count_tokens, has_thought)
    if reason:
      counts[reason] += 1
    else:
      good.append(episode)
  kept = drop_duplicates(good, max_jaccard=settings.max_jaccard)
  counts["duplicate"] = len(good) - len(kept)
  counts["kept"] = len(kept)
  return kept, counts


def quality(
  episode: SyntheticEpisode,
  *,
  has_thought: Callable[[str], bool] | None = None,
) -> float:
  """Rates an episode: few calls, and every turn complete.

      0.5 max(0, 1 - 0.1 calls) + 0.5 (complete turns / turns)

  A turn is complete if it has an action that is not blank and that the
  environment answered with some text; the last one needs no answer.

  Args:
    episode: to rate.
    has_thought: says whether an action holds a thought, without which its turn
      is not complete; None asks for no thoughts.

  Returns:
    A number from 0 to 1. With complete turns it is 0.6 at 8 calls.
  """
  answers = [turn.observations for turn in episode.turns[1:]]
  complete = 0
  for index, turn in enumerate(episode.turns):
    answered = index == len(answers) or any(
      message.content.strip() for message in answers[index]
    )
    thought = has_thought is None or has_thought(turn.action)
    complete += bool(turn.action.strip()) and answered and thought
  short = max(0.0, 1.0 - _COST_OF_A_CALL * episode.num_calls)
  return 0.5 * short + 0.5 * complete / len(episode.turns)


def jaccard(one: Iterable[str], other: Iterable[str]) -> float:
  """|A and B| / |A or B| of two sets of actions; 1 where both are empty."""
  left, right = set(one), set(other)
  union = left | right
  return len(left & right) / len(union) if union else 1.0


def drop_duplicates(
  episodes: Sequence[SyntheticEpisode], *, max_jaccard: float
) -> list[SyntheticEpisode]:
  """Drops episodes whose set of actions is too much like a kept one's.

  Only sets that share one of their rarest actions are compared: with fewer in
  common they could not be that much alike.

  Args:
    episodes: the first of two that are alike is kept.
    max_jaccard: the most alike that two kept ones may be.
  """
  if max_jaccard >= 1.0:
    return list(episodes)
  sets = [frozenset(episode.actions) for episode in episodes]
  frequency = Counter(action for actions in sets for action in actions)
  holders: dict[str, list[int]] = {}
  kept: list[SyntheticEpisode] = []
  for index, actions in enumerate(sets):
    rarest = sorted(actions, key=lambda action: (frequency[action], action))
    needed = math.ceil(max_jaccard * len(actions))
    shared = rarest[: len(actions) - needed + 1]
    near = {other for action in shared for other in holders.get(action, ())}
    if any(jaccard(actions, sets[other]) > max_jaccard for other in near):
      continue
    kept.append(episodes[index])
    for action in shared:
      holders.setdefault(action, []).append(index)
  return kept


def _reason(
  episode: SyntheticEpisode,
  settings: FilterSettings,
  count_tokens: Callable[[SyntheticEpisode], int] | None,
  has_thought: Callable[[str], bool] | None,
) -> str:
  """The count of what drops an episode by itself; empty if nothing does."""
  if settings.only_success and not episode.success:
    return "failed"
  if len(episode.turns) < settings.min_turns:
    return "too_short"
  if episode.num_calls > settings.max_calls:
    return "too_long"
  if settings.max_tokens is not None and count_tokens is not None:
    if count_tokens(episode) > settings.max_tokens:
      return "too_many_tokens"
  if quality(episode, has_thought=has_thought) < settings.min_quality:
    return "low_quality"
  return ""
