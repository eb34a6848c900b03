"""Which rows of a step learn, by the names of the filters that decide.

A filter runs at one of two times, and the time is what it means:

- before the advantages, it rejects: a rejected row gets no advantage and moves
  nobody's baseline, as if it had not been sampled;
- after them, it drops: a dropped row has had its part in the baselines, but is
  left out of every update. Its gradient is exactly 0, and it does not count in
  the loss's denominator.

Where an episode has several rows, they go together: one that a filter turns
away takes the others along.

A row without an advantage would add 0 to the numerator of a policy loss and
its tokens to the denominator, so that dropping it makes the steps of a batch
with few informative groups larger.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from arl_jax.learner import episodes, repetition
from arl_jax.ops import filters, importance, masking
from arl_jax.types import Array, TrajectoryBatch

_NEED_ADVANTAGES = ("nonzero_advantages", "negatives")
_NEEDS_LOGPROBS = "sequence_ratio"
_NEEDS_MAX_AGE = "age"
_NEEDS_LENGTH = "overlong"
_DROPS = ("none", "negative", "all")
_METRICS = ("geometric_ratio", "k3", "max_ratio")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterConfig:
  """Settings of the filters.

  Attributes:
    before_advantages: keys of `FILTERS`, or functions `(terms, config) ->
      [B]`; rows that one of them turns away are rejected.
    after_advantages: the same; rows that one of them turns away are dropped.
    truncation_drop: what `truncation` turns away: `all` truncated rows, those
      of `negative` advantage (after the advantages only), or `none`.
    keep_ratio: share of the groups that `top_variance_groups` keeps.
    ratio_metric: what `sequence_ratio` bounds: `geometric_ratio`, `k3` or
      `max_ratio` of the learner's policy to the behaviour policy.
    ratio_lower: its lower bound, None for none.
    ratio_upper: its upper bound. A geometric mean and a k3 are far closer to
      1 and to 0 than the ratio of one token.
    max_age: oldest that `age` lets an action token of a row be, in versions of
      the weights. 0 keeps rows of the newest weights alone.
    max_repetition: most that `repetition` lets an action repeat itself: share
      of its n-grams that stood in it before.
    repetition_ngram: n of these n-grams, in tokens.
    overlong_length: most action tokens that `overlong` lets an episode have.
    negative_keep_ratio: chance of a row of negative advantage to be kept by
      `negatives`.
    needs_logprobs: score the rows for filters of one's own, as is done for
      `sequence_ratio`; costs a forward pass over the step.
  """

  before_advantages: "tuple[str | Filter, ...]" = ()
  after_advantages: "tuple[str | Filter, ...]" = ("nonzero_advantages",)
  truncation_drop: str = "all"
  keep_ratio: float = 0.5
  ratio_metric: str = "geometric_ratio"
  ratio_lower: float | None = None
  ratio_upper: float = 1.01
  max_age: int | None = None
  max_repetition: float = 0.5
  repetition_ngram: int = 4
  overlong_length: int | None = None
  negative_keep_ratio: float = 1.0
  needs_logprobs: bool = False

  def __post_init__(self) -> None:
    for stage in ("before_advantages", "after_advantages"):
      for name in getattr(self, stage):
        if not callable(name) and name not in FILTERS:
          raise ValueError(
            f"filters {stage} has {name!r}; expected some of"
            f" {sorted(FILTERS)} or functions (terms, config) -> [B]"
          )
    early = self.before_advantages
    for name in _NEED_ADVANTAGES:
      if name in early:
        raise ValueError(
          f"filters before_advantages has {name!r}, which reads advantages;"
          " move it to after_advantages"
        )
    if "truncation" in early and self.truncation_drop == "negative":
      raise ValueError(
        "filters before_advantages has 'truncation', whose truncation_drop"
        " 'negative' reads advantages; move it to after_advantages, or use"
        " 'all'"
      )
    for field, allowed in (
      ("truncation_drop", _DROPS),
      ("ratio_metric", _METRICS),
    ):
      if getattr(self, field) not in allowed:
        raise ValueError(
          f"filters {field} is {getattr(self, field)!r}; expected one of"
          f" {allowed}"
        )
    names = (*early, *self.after_advantages)
    if _NEEDS_MAX_AGE in names and self.max_age is None:
      raise ValueError(
        "filters have 'age', which needs max_age, the versions that an action"
        " token may be old; found None"
      )
    if _NEEDS_LENGTH in names and self.overlong_length is None:
      raise ValueError(
        "filters have 'overlong', which needs overlong_length, the action"
        " tokens that an episode may have; found None"
      )
    readers = [name for name in names if callable(name) or name == "age"]
    if self.max_age is not None and not readers:
      raise ValueError(
        f"filters max_age is {self.max_age}, but no filter reads it; add 'age'"
        " to before_advantages or after_advantages, or use None"
      )
    if not 0 < self.keep_ratio <= 1:
      raise ValueError(
        f"filters keep_ratio is {self.keep_ratio}; expected 0 < ratio <= 1"
      )

  @property
  def reads_logprobs(self) -> bool:
    """True if the rows have to be scored before they are filtered."""
    names = (*self.before_advantages, *self.after_advantages)
    return self.needs_logprobs or _NEEDS_LOGPROBS in names


class RowFacts(NamedTuple):
  """What is known of rows besides their arrays.

  Attributes:
    truncated: bool `[B]` a limit, not the task, ended the episode.
    turn_is_void: bool `[B, K]` the turn has neither a complete tool call nor a
      final answer.
    age: int32 `[B]` versions between the weights that sampled the row's oldest
      action token and those before the step's updates; 0 without actions.
    draws: float32 `[B]` in [0, 1): one number for each episode, for filters
      that leave rows out at random.
  """

  truncated: jax.typing.ArrayLike
  turn_is_void: jax.typing.ArrayLike
  age: jax.typing.ArrayLike
  draws: jax.typing.ArrayLike


class FilterTerms(NamedTuple):
  """What a filter decides from.

  Attributes:
    batch: all rows of the step; its `row_mask` is False for those that were
      turned away by the filters before this one.
    facts: of those rows.
    advantages: float32 `[B, T]`; None before there are any.
    logprobs: float32 `[B, T]` under the learner's weights; None unless
      `FilterConfig.reads_logprobs`.
  """

  batch: TrajectoryBatch
  facts: RowFacts
  advantages: Array | None
  logprobs: Array | None


Filter = Callable[[FilterTerms, FilterConfig], Array]


class Filtered(NamedTuple):
  """What the filters of one time decided.

  Attributes:
    rows: bool `[B]` those that all of them kept.
    turned_away: int32 `[F]` rows that each filter turned away, which those
      before it had kept.
  """

  rows: Array
  turned_away: Array


@functools.partial(jax.jit, static_argnames=("config",))
def accepted_rows(
  batch: TrajectoryBatch,
  facts: RowFacts,
  logprobs: Array | None = None,
  *,
  config: FilterConfig,
) -> Filtered:
  """Runs the filters that come before the advantages.

  Args:
    batch: all rows of the step.
    facts: of those rows.
    logprobs: float32 `[B, T]` under the learner's weights, if a filter reads
      them.
    config: which filters, in which order.

  Returns:
    The `row_mask` to compute advantages with, and how it came about.
  """
  terms = FilterTerms(batch, facts, None, logprobs)
  return _filtered(terms, config.before_advantages, config)


@functools.partial(jax.jit, static_argnames=("config",))
def trained_rows(
  batch: TrajectoryBatch,
  facts: RowFacts,
  advantages: jax.typing.ArrayLike,
  logprobs: Array | None = None,
  *,
  config: FilterConfig,
) -> Filtered:
  """Runs the filters that come after the advantages.

  Args:
    batch: all rows of the step, `row_mask` from `accepted_rows`.
    facts: of those rows.
    advantages: float32 `[B, T]`.
    logprobs: as for `accepted_rows`.
    config: which filters, in which order.

  Returns:
    The rows to learn from, and how they came about.
  """
  terms = FilterTerms(batch, facts, jnp.asarray(advantages), logprobs)
  return _filtered(terms, config.after_advantages, config)


def _filtered(
  terms: FilterTerms, names: "tuple[str | Filter, ...]", config: FilterConfig
) -> Filtered:
  rows = jnp.asarray(terms.batch.row_mask)
  counts = [jnp.sum(rows)]
  for name in names:
    keeps = name if callable(name) else FILTERS[name]
    left = dataclasses.replace(terms.batch, row_mask=rows)
    kept = keeps(terms._replace(batch=left), config)
    rows = rows & episodes.all_rows(left, jnp.asarray(kept))
    counts.append(jnp.sum(rows))
  return Filtered(rows, -jnp.diff(jnp.stack(counts)))


def _nonzero_advantages(terms: FilterTerms, config: FilterConfig) -> Array:
  del config
  assert terms.advantages is not None
  return jnp.any(terms.advantages != 0, axis=1)


def _informative_groups(terms: FilterTerms, config: FilterConfig) -> Array:
  del config
  return _by_episode(terms.batch, filters.informative_groups)


def _top_variance_groups(terms: FilterTerms, config: FilterConfig) -> Array:
  keeps = functools.partial(
    filters.top_variance_groups, keep_ratio=config.keep_ratio
  )
  return _by_episode(terms.batch, keeps)


def _by_episode(batch: TrajectoryBatch, keeps: Callable[..., Array]) -> Array:
  """Judges each episode once, by its undiscounted return."""
  whole = episodes.of_rows(batch)
  kept = keeps(
    whole.returns,
    batch.group_ids,
    num_groups=batch.tokens.shape[0],
    row_mask=whole.counts,
  )
  return whole.live & kept[whole.leader]


def _truncation(terms: FilterTerms, config: FilterConfig) -> Array:
  actions = terms.batch.action_mask
  advantages = terms.advantages
  if advantages is None:
    advantages = jnp.zeros(actions.shape)
  return filters.truncation_keep_mask(
    terms.facts.truncated,
    masking.masked_mean(advantages, actions, axis=1),
    drop=config.truncation_drop,
  )


def _void_turns(terms: FilterTerms, config: FilterConfig) -> Array:
  del config
  return filters.void_turn_keep_mask(
    terms.facts.turn_is_void, terms.batch.turn_mask
  )


def _sequence_ratio(terms: FilterTerms, config: FilterConfig) -> Array:
  assert terms.logprobs is not None
  batch = terms.batch
  return importance.sequence_keep_mask(
    terms.logprobs,
    batch.behavior_logprobs,
    batch.action_mask,
    metric=config.ratio_metric,
    lower=config.ratio_lower,
    upper=config.ratio_upper,
  )


def _age(terms: FilterTerms, config: FilterConfig) -> Array:
  assert config.max_age is not None
  return jnp.asarray(terms.facts.age) <= config.max_age


def _repetition(terms: FilterTerms, config: FilterConfig) -> Array:
  shares = repetition.repeated_ngrams(terms.batch, size=config.repetition_ngram)
  return jnp.max(shares, axis=1) <= config.max_repetition


def _overlong(terms: FilterTerms, config: FilterConfig) -> Array:
  assert config.overlong_length is not None
  lengths = episodes.of_rows(terms.batch).lengths
  return lengths <= config.overlong_length


def _negatives(terms: FilterTerms, config: FilterConfig) -> Array:
  assert terms.advantages is not None
  means = masking.masked_mean(terms.advantages, terms.batch.action_mask, axis=1)
  lucky = jnp.asarray(terms.facts.draws) < config.negative_keep_ratio
  return (means >= 0) | lucky


FILTERS: Mapping[str, Filter] = {
  # Rows that have a policy gradient.
  "nonzero_advantages": _nonzero_advantages,
  # Groups whose episodes differ in return.
  "informative_groups": _informative_groups,
  # The groups whose episodes differ most.
  "top_variance_groups": _top_variance_groups,
  # Rows that no limit cut off.
  "truncation": _truncation,
  # Rows in which every turn calls a tool or answers.
  "void_turns": _void_turns,
  # Rows that the learner's policy could have sampled.
  "sequence_ratio": _sequence_ratio,
  # Rows that no weights sampled which are too old.
  "age": _age,
  # Rows whose actions don't go in circles.
  "repetition": _repetition,
  # Rows of episodes that are not too long.
  "overlong": _overlong,
  # All rows but some of those that did worse than their baseline.
  "negatives": _negatives,
}
