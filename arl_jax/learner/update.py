"""One optimizer update from a minibatch of rows.

    advantages > token log-probs > surrogate > share of the loss > gradient
    summed over micro-batches > clip > optimizer

The gradient is compiled once per micro-batch shape, the optimizer once. Each
micro-batch is divided by the denominator of the whole minibatch, so their sum
is the minibatch's gradient exactly, however the rows are split.
"""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from arl_jax.learner import diagnostics, objective
from arl_jax.learner.diagnostics import Diagnostics
from arl_jax.learner.objective import MicroBatch, Packing
from arl_jax.learner.state import ModelFns
from arl_jax.learner.surrogates import LossConfig
from arl_jax.types import Array, LearnerState, PyTree, TrajectoryBatch


@dataclasses.dataclass(frozen=True)
class UpdateFns:
  """The compiled pieces of an update, see `make_update_fns`.

  Attributes:
    normalizer: `batch -> scalar`, the loss's denominator over these rows.
    zeros: `params -> gradients`, an empty accumulator; None where an update
      has one micro-batch, whose gradient then needs none.
    gradient: see `make_gradient_fn`.
    apply: see `make_apply_fn`.
    logprobs: `(params, batch, scored=None, packing=None) -> [B, T]`, for
      `MicroBatch.old_logprobs`, for filters, and for comparing the engine
      with the learner. `scored` and `packing` as in `MicroBatch`.
    needs_reference: True if the objective reads a reference policy.
  """

  normalizer: Callable[[TrajectoryBatch], Array]
  zeros: Callable[[PyTree], PyTree] | None
  gradient: Callable[..., tuple[PyTree, Diagnostics]]
  apply: Callable[[LearnerState, PyTree], tuple[LearnerState, dict[str, Array]]]
  logprobs: Callable[..., Array]
  needs_reference: bool


def update(
  state: LearnerState,
  microbatches: Sequence[tuple[Any, ...]],
  *,
  fns: UpdateFns,
  ref_params: PyTree | None = None,
) -> tuple[LearnerState, dict[str, float]]:
  """Takes one optimizer step on a minibatch.

  Args:
    state: donated; use only the returned one afterwards.
    microbatches: the minibatch in parts, each a `MicroBatch` or a tuple of its
      fields. Parts may differ in shape.
    fns: the compiled pieces.
    ref_params: of the reference policy, if `kl_weight` is above 0.

  Returns:
    The next state and the metrics of the step. A gradient that is not finite
    leaves the state as it was, and `skipped_updates` is then 1.

  Raises:
    ValueError: if there is nothing to train on, no reference policy, or more
      than one micro-batch without an accumulator.
  """
  if not microbatches:
    raise ValueError("microbatches is empty; an update needs at least one")
  if fns.zeros is None and len(microbatches) > 1:
    raise ValueError(
      f"there are {len(microbatches)} microbatches, but make_update_fns was"
      " called with accumulate=False, which allows one"
    )
  if fns.needs_reference and ref_params is None:
    raise ValueError(
      "kl_weight is above 0 but ref_params is None; pass the reference"
      " policy's parameters or set kl_weight to 0"
    )
  micros = [MicroBatch(*micro) for micro in microbatches]
  normalizer = np.sum(
    jax.device_get([fns.normalizer(micro.batch) for micro in micros])
  )
  reference = ref_params if fns.needs_reference else None
  gradients = None if fns.zeros is None else fns.zeros(state.params)
  parts = []
  for micro in micros:
    gradients, part = fns.gradient(
      state.params, reference, micro, normalizer, gradients
    )
    parts.append(part)
  state, applied = fns.apply(state, gradients)
  parts, applied = jax.device_get((parts, applied))
  metrics = diagnostics.summarize(parts)
  return state, metrics | {name: float(x) for name, x in applied.items()}


def make_update_fns(
  model: ModelFns,
  loss: LossConfig,
  optimizer: optax.GradientTransformation,
  *,
  shardings: LearnerState,
  schedule: optax.Schedule | None = None,
  accumulate: bool = True,
) -> UpdateFns:
  """Prepares the compiled pieces of an update.

  Args:
    model: the architecture.
    loss: settings of the objective.
    optimizer: what turns a gradient into an update.
    shardings: of a whole state, see `state.state_shardings`.
    schedule: learning rate by step, for the metric.
    accumulate: False if an update is always one micro-batch, which saves the
      memory of a second gradient.

  Returns:
    Functions that compile when first called.
  """

  def zeros(params: PyTree) -> PyTree:
    return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

  def logprobs(
    params: PyTree,
    batch: TrajectoryBatch,
    scored: Array | None = None,
    packing: Packing | None = None,
  ) -> Array:
    scores, _ = objective.row_logprobs(
      params, batch, scored, packing, model=model, loss=loss
    )
    return jnp.where(objective.loss_mask(batch), scores, 0.0)

  return UpdateFns(
    normalizer=jax.jit(lambda b: objective.loss_normalizer(b, loss)),
    zeros=jax.jit(zeros, out_shardings=shardings.params)
    if accumulate
    else None,
    gradient=make_gradient_fn(model, loss, shardings=shardings.params),
    apply=make_apply_fn(optimizer, shardings=shardings, schedule=schedule),
    logprobs=jax.jit(logprobs),
    needs_reference=loss.kl_weight > 0,
  )


def make_gradient_fn(
  model: ModelFns, loss: LossConfig, *, shardings: PyTree
) -> Callable[..., tuple[PyTree, Diagnostics]]:
  """Returns the jitted gradient of one micro-batch's share of the loss.

  Args:
    model: the architecture.
    loss: settings of the objective.
    shardings: of the parameters, and so of their gradients.

  Returns:
    `(params, ref_params, micro, normalizer, gradients)` to the gradients with
    this micro-batch's added, and its diagnostics. `gradients` is donated; it
    is None where there is nothing to add to.
  """

  def share_of(params, ref_params, micro, normalizer):
    share, (terms, ref_logprobs) = objective.objective(
      params, ref_params, micro, normalizer, model=model, loss=loss
    )
    reported = micro.batch.behavior_logprobs
    part = diagnostics.measure(terms, ref_logprobs, reported, share, loss=loss)
    return share, part

  def accumulate(params, ref_params, micro, normalizer, gradients):
    new, part = jax.grad(share_of, has_aux=True)(
      params, ref_params, micro, normalizer
    )
    if gradients is not None:
      new = jax.tree.map(jnp.add, gradients, new)
    return new, part

  return jax.jit(accumulate, donate_argnums=4, out_shardings=(shardings, None))


def make_apply_fn(
  optimizer: optax.GradientTransformation,
  *,
  shardings: LearnerState,
  schedule: optax.Schedule | None = None,
) -> Callable[[LearnerState, PyTree], tuple[LearnerState, dict[str, Array]]]:
  """Returns the jitted optimizer step.

  Args:
    optimizer: what turns a gradient into an update.
    shardings: of a whole state; pinned, so that no later step recompiles.
    schedule: learning rate by step, for the metric.

  Returns:
    `(state, gradients)` to the next state and the metrics `grad_norm`,
    `skipped_updates` and `learning_rate`. `state` is donated.
  """

  def step(state: LearnerState, gradients: PyTree) -> LearnerState:
    updates, opt_state = optimizer.update(
      gradients, state.opt_state, state.params
    )
    return LearnerState(
      params=optax.apply_updates(state.params, updates),
      opt_state=opt_state,
      step=state.step + 1,
    )

  def apply(state: LearnerState, gradients: PyTree):
    norm = optax.tree.norm(gradients)
    finite = jnp.isfinite(norm)
    # A branch, not a choice between two results: the state changes in place.
    kept = jax.lax.cond(finite, step, lambda state, _: state, state, gradients)
    metrics = {
      "grad_norm": norm,
      "skipped_updates": (~finite).astype(jnp.int32),
    }
    if schedule is not None:
      metrics["learning_rate"] = jnp.asarray(schedule(state.step))
    return kept, metrics

  return jax.jit(apply, donate_argnums=0, out_shardings=(shardings, None))
