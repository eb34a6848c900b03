"""Settings of the loss, with what each of their names stands for."""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from arl_jax.ops import (
  aggregation,
  importance,
  losses,
  masking,
  sequence_losses,
  turns,
)
from arl_jax.types import Array

_IMPORTANCE = ("none", "truncate", "mask", "clamp")
_PROXIMAL = ("recomputed", "interpolated")
_KL_ESTIMATORS = ("k2", "k3", "k3_unbiased")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig:
  """Settings of the objective.

  Attributes:
    surrogate: a key of `SURROGATES`, or `(terms, config) -> [B, T]`.
    clip_low: how far below 1 a ratio still counts. The ratio of `gspo` is of
      a sequence and wants about 3e-4; `cispo` wants 1.
    clip_high: how far above 1; about 4e-4 for `gspo` and 4 for `cispo`.
    dual_clip: bound on the loss of a negative advantage, `clipped` only.
    tau: pull of `mirror_descent` to the old policy.
    aggregation: a key of `AGGREGATIONS`, or `(values, mask, *, length) ->
      (numerator, denominator)`; both must add up over micro-batches.
    length: the constant of `fixed_length`.
    importance: correction for the engine that sampled: `none`, `truncate`,
      `mask` or `clamp` of the old policy's ratio to the behaviour policy; or
      `(terms, config) -> weights`, which broadcast to `[B, T]`.
    importance_level: a key of `IMPORTANCE_LEVELS`, what that ratio is of.
    importance_upper: bound on that ratio; `decoupled` reads it, too.
    importance_lower: the other bound, of `mask` and `clamp`.
    proximal: the policy that `decoupled` clips around: `recomputed` by a
      forward pass before the updates, or `interpolated` by the tokens' ages.
    kl_weight: of the divergence from the reference policy.
    kl_estimator: `k2`, `k3` or `k3_unbiased`.
    entropy_weight: of the entropy bonus.
    temperature: that the actions were sampled at.
    logprob_chunk: tokens whose logits exist at once, None for all.
  """

  surrogate: "str | Surrogate" = "clipped"
  clip_low: float = 0.2
  clip_high: float = 0.28
  dual_clip: float | None = None
  tau: float = 0.1
  aggregation: "str | Aggregation" = "token_mean"
  length: int | None = None
  importance: "str | ImportanceWeights" = "none"
  importance_level: str = "token"
  importance_upper: float = 2.0
  importance_lower: float | None = None
  proximal: Literal["recomputed", "interpolated"] = "recomputed"
  kl_weight: float = 0.0
  kl_estimator: str = "k2"
  entropy_weight: float = 0.0
  temperature: float = 1.0
  logprob_chunk: int | None = 128

  def __post_init__(self) -> None:
    if not callable(self.surrogate):
      _check_name("surrogate", self.surrogate, sorted(SURROGATES))
    if not callable(self.aggregation):
      _check_name("aggregation", self.aggregation, list(AGGREGATIONS))
    if not callable(self.importance):
      _check_name("importance", self.importance, _IMPORTANCE)
    _check_name(
      "importance_level", self.importance_level, list(IMPORTANCE_LEVELS)
    )
    _check_name("proximal", self.proximal, _PROXIMAL)
    _check_name("kl_estimator", self.kl_estimator, _KL_ESTIMATORS)
    if self.aggregation == "fixed_length" and self.length is None:
      raise ValueError(
        "loss aggregation 'fixed_length' needs length, a constant such as the"
        " most action tokens of an episode; found None"
      )
    if self.importance == "clamp" and self.importance_lower is None:
      raise ValueError("loss importance 'clamp' needs importance_lower")
    if self.surrogate == "decoupled" and self.importance != "none":
      raise ValueError(
        "loss surrogate 'decoupled' already corrects for the behaviour policy;"
        f" set importance to 'none', found {self.importance!r}"
      )
    has_proximal = callable(self.surrogate) or self.surrogate == "decoupled"
    if self.needs_ages and not has_proximal:
      raise ValueError(
        f"loss proximal is 'interpolated', which surrogate {self.surrogate!r}"
        " does not read; use surrogate 'decoupled', or proximal 'recomputed'"
      )
    if self.tau < 0:
      raise ValueError(f"loss tau is {self.tau}; expected 0 or more")
    if self.temperature <= 0:
      raise ValueError(
        f"loss temperature is {self.temperature}; expected the temperature"
        " above 0 that actions were sampled at"
      )
    if self.logprob_chunk is not None and self.logprob_chunk < 1:
      raise ValueError(
        f"loss logprob_chunk is {self.logprob_chunk}; expected at least 1, or"
        " None for all tokens at once"
      )

  @property
  def supervised(self) -> bool:
    """True if the loss imitates the actions, whatever their rewards."""
    return self.surrogate == "cross_entropy"

  @property
  def needs_ages(self) -> bool:
    """True if a micro-batch has to say how old its tokens are."""
    return self.proximal == "interpolated"


class Terms(NamedTuple):
  """What a surrogate is computed from; all but `turn_ids` float32 `[B, T]`.

  Attributes:
    logprobs: of the policy being trained; carries the gradient.
    entropies: of the distributions that tokens were drawn from.
    old_logprobs: denominator of the surrogate's ratio, interpolated if
      `LossConfig.proximal` says so. If a micro-batch brings none: the
      behaviour's, or under an importance correction the current ones without
      gradient, since the correction already divides by the behaviour's.
    behavior_logprobs: as sampled; where unknown (not finite), the current ones
      without gradient, so that every ratio there is 1.
    advantages: 0 for supervised learning.
    mask: bool, True on the action tokens that count.
    turn_ids: int32, -1 outside actions.
    num_turns: most turns of a row, static.
  """

  logprobs: Array
  entropies: Array
  old_logprobs: Array
  behavior_logprobs: Array
  advantages: Array
  mask: Array
  turn_ids: Array
  num_turns: int


Surrogate = Callable[[Terms, LossConfig], Array]


def _policy_gradient(terms: Terms, config: LossConfig) -> Array:
  del config
  return losses.policy_gradient_loss(
    terms.logprobs, terms.advantages, terms.mask
  )


def _clipped(terms: Terms, config: LossConfig) -> Array:
  return losses.clipped_surrogate_loss(
    terms.logprobs,
    terms.old_logprobs,
    terms.advantages,
    terms.mask,
    clip_low=config.clip_low,
    clip_high=config.clip_high,
    dual_clip=config.dual_clip,
  )


def _decoupled(terms: Terms, config: LossConfig) -> Array:
  return losses.decoupled_surrogate_loss(
    terms.logprobs,
    terms.old_logprobs,
    terms.behavior_logprobs,
    terms.advantages,
    terms.mask,
    clip_low=config.clip_low,
    clip_high=config.clip_high,
    behavior_cap=config.importance_upper,
  )


def _gspo(terms: Terms, config: LossConfig) -> Array:
  return sequence_losses.gspo_loss(
    terms.logprobs,
    terms.old_logprobs,
    terms.advantages,
    terms.mask,
    clip_low=config.clip_low,
    clip_high=config.clip_high,
  )


def _turn(terms: Terms, config: LossConfig) -> Array:
  return sequence_losses.turn_surrogate_loss(
    terms.logprobs,
    terms.old_logprobs,
    terms.advantages,
    terms.mask,
    terms.turn_ids,
    num_turns=terms.num_turns,
    clip_low=config.clip_low,
    clip_high=config.clip_high,
  )


def _cispo(terms: Terms, config: LossConfig) -> Array:
  return losses.cispo_loss(
    terms.logprobs,
    terms.old_logprobs,
    terms.advantages,
    terms.mask,
    clip_low=config.clip_low,
    clip_high=config.clip_high,
  )


def _sapo(terms: Terms, config: LossConfig) -> Array:
  del config
  return losses.sapo_loss(
    terms.logprobs, terms.old_logprobs, terms.advantages, terms.mask
  )


def _mirror_descent(terms: Terms, config: LossConfig) -> Array:
  per_row = sequence_losses.mirror_descent_loss(
    terms.logprobs,
    terms.old_logprobs,
    # A loss of rows has one advantage each: the mean over its tokens.
    masking.masked_mean(terms.advantages, terms.mask, axis=1),
    terms.mask,
    tau=config.tau,
  )
  # On each token, so that `sequence_mean` is the mean over rows.
  return jnp.where(terms.mask, per_row[:, None], 0.0)


def _cross_entropy(terms: Terms, config: LossConfig) -> Array:
  del config
  return losses.masked_cross_entropy(terms.logprobs, terms.mask)


SURROGATES: Mapping[str, Surrogate] = {
  "policy_gradient": _policy_gradient,
  "clipped": _clipped,
  "decoupled": _decoupled,
  "gspo": _gspo,
  "turn": _turn,
  "cispo": _cispo,
  "sapo": _sapo,
  # With `sequence_mean`. It pulls rows of no advantage to the old policy, too.
  "mirror_descent": _mirror_descent,
  "cross_entropy": _cross_entropy,
}


Aggregation = Callable[..., tuple[Array, Array]]

AGGREGATIONS: Mapping[str, Aggregation] = {
  mode: functools.partial(aggregation.aggregate_terms, mode=mode)
  for mode in ("token_mean", "sequence_mean", "sequence_sum", "fixed_length")
}


def aggregate_terms(
  values: Array, mask: Array, config: LossConfig
) -> tuple[Array, Array]:
  """Numerator and denominator of the loss over these rows.

  Args:
    values: `[B, T]` loss of each token.
    mask: bool `[B, T]` the tokens that count.
    config: which aggregation.
  """
  chosen = config.aggregation
  aggregate = chosen if callable(chosen) else AGGREGATIONS[chosen]
  return aggregate(values, mask, length=config.length)


ImportanceWeights = Callable[[Terms, LossConfig], Array]


def _token_weights(terms: Terms, config: LossConfig) -> Array:
  assert isinstance(config.importance, str)
  return importance.token_importance_weights(
    terms.old_logprobs,
    terms.behavior_logprobs,
    terms.mask,
    mode=config.importance,
    lower=config.importance_lower,
    upper=config.importance_upper,
  )


def _sequence_weights(
  terms: Terms, config: LossConfig, *, reduce: str
) -> Array:
  assert isinstance(config.importance, str)
  weights = importance.sequence_importance_weights(
    terms.old_logprobs,
    terms.behavior_logprobs,
    terms.mask,
    reduce=reduce,
    mode=config.importance,
    lower=config.importance_lower,
    upper=config.importance_upper,
  )
  return weights[:, None]


IMPORTANCE_LEVELS: Mapping[str, ImportanceWeights] = {
  "token": _token_weights,
  # The product over the row's tokens, without bias but far from 1 ...
  "sequence": functools.partial(_sequence_weights, reduce="sum"),
  # ... or their geometric mean.
  "sequence_mean": functools.partial(_sequence_weights, reduce="mean"),
}


def importance_weights(terms: Terms, config: LossConfig) -> Array | None:
  """Weights that correct for the engine, without gradient; None for none.

  Args:
    terms: of one micro-batch.
    config: which correction.

  Returns:
    float32, broadcasts to `[B, T]`.
  """
  if config.supervised or config.importance == "none":
    return None
  fixed = terms._replace(
    logprobs=jax.lax.stop_gradient(terms.logprobs),
    old_logprobs=jax.lax.stop_gradient(terms.old_logprobs),
    behavior_logprobs=jax.lax.stop_gradient(terms.behavior_logprobs),
  )
  if callable(config.importance):
    return jax.lax.stop_gradient(config.importance(fixed, config))
  return IMPORTANCE_LEVELS[config.importance_level](fixed, config)


def log_ratio(terms: Terms, config: LossConfig) -> Array:
  """Log-ratio `[B, T]` that the surrogate compares with its clip range.

  It is of the token; of its turn for `turn`, of its row for `gspo`.
  """
  values = jnp.where(terms.mask, terms.logprobs - terms.old_logprobs, 0.0)
  if config.surrogate == "gspo":
    row = masking.masked_mean(values, terms.mask, axis=1)
    values = jnp.where(terms.mask, row[:, None], 0.0)
  elif config.surrogate == "turn":
    ids = jnp.where(terms.mask, terms.turn_ids, -1)
    per_turn = turns.mean_over_turns(values, ids, num_turns=terms.num_turns)
    values = turns.broadcast_turns(per_turn, ids)
  return values


def _check_name(argument: str, found: str, allowed: Iterable[str]) -> None:
  if found not in allowed:
    raise ValueError(
      f"loss {argument} is {found!r}; expected one of {list(allowed)}"
    )
