"""The rules that hold for every function, from one table of all of them."""

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import cases
from tests.ops.cases import Case

HOST_ONLY = {
  "dense_ids",
  "salt_edge_ids",
  "history_context_ids",
  "resample_on_correct",
  "pack_rows",
}
# No mask and no rows to permute: they have tests of their own.
ELSEWHERE = {
  "kl_k1",
  "kl_k2",
  "kl_k3",
  "shapley_values",
  "token_logprobs",
  "token_entropies",
  "chunked_token_logprobs",
  "aggregate_terms",
}

every_case = pytest.mark.parametrize(
  "case", cases.CASES, ids=lambda case: case.name
)


def _is_float(array: np.ndarray) -> bool:
  return array.dtype == np.float32


@functools.cache
def _compiled(name: str) -> Callable[..., Any]:
  """One compilation per case and shape: outputs, then gradients."""
  case = next(case for case in cases.CASES if case.name == name)

  def objective(floats: dict[str, Any], rest: dict[str, Any]) -> Any:
    outputs = case({**floats, **rest})
    score = sum(
      jnp.sum(out * jnp.cos(jnp.float32(index)))
      for index, out in enumerate(outputs)
    )
    return score, outputs

  def run(floats: dict[str, Any], rest: dict[str, Any]) -> Any:
    if not case.differentiable:
      return case({**floats, **rest}), {}
    grads, outputs = jax.grad(objective, has_aux=True)(floats, rest)
    return outputs, grads

  return jax.jit(run)


def _run(
  case: Case, given: dict[str, np.ndarray]
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
  floats = {n: a for n, a in given.items() if _is_float(a)}
  rest = {n: a for n, a in given.items() if n not in floats}
  outputs, grads = _compiled(case.name)(floats, rest)
  return [np.asarray(x) for x in outputs], jax.tree.map(np.asarray, grads)


def _assert_equal(actual: Any, expected: Any, case: Case) -> None:
  jax.tree.map(
    lambda a, e: np.testing.assert_allclose(
      a, e, rtol=2e-5, atol=2e-6, err_msg=case.name
    ),
    actual,
    expected,
  )


def test_the_table_holds_every_public_function():
  named = {case.name for case in cases.CASES}
  public = {name for name in arl.__all__ if name.islower()}
  missing = [
    name
    for name in public - HOST_ONLY - ELSEWHERE
    if not any(case.startswith(name) for case in named)
  ]
  assert missing == []


@every_case
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 3e38], ids=str)
def test_values_at_masked_places_never_matter(case: Case, poison: float):
  given = cases.arrays(case)
  places = cases.live_places(case, given)
  poisoned = dict(given)
  for name, live in places.items():
    if _is_float(given[name]):
      poisoned[name] = np.where(live, given[name], np.float32(poison))
    elif given[name].dtype == np.int32:
      poisoned[name] = np.where(live, given[name], np.int32(10**6))
    else:
      poisoned[name] = np.where(live, given[name], ~given[name])
  clean, clean_grads = _run(case, given)
  dirty, dirty_grads = _run(case, poisoned)
  for out in clean:
    assert np.isfinite(out).all()
  _assert_equal(dirty, clean, case)
  _assert_equal(dirty_grads, clean_grads, case)
  for name, grad in dirty_grads.items():
    assert np.isfinite(grad).all(), name
    assert (grad[~places[name]] == 0).all(), name


@every_case
def test_garbage_ids_at_masked_places_are_no_error(case: Case):
  given = cases.arrays(case)
  places = cases.live_places(case, given)
  poisoned = {
    name: np.where(places[name], array, np.int32(-77))
    if name in places and array.dtype == np.int32
    else array
    for name, array in given.items()
  }
  _assert_equal(case(poisoned), case(given), case)


@every_case
def test_row_order_never_matters(case: Case):
  given = cases.arrays(case)
  order = np.random.default_rng(1).permutation(cases.SIZES["B"])

  def shuffle(array: np.ndarray, layout: str) -> np.ndarray:
    return np.take(array, order, layout.index("B")) if "B" in layout else array

  layouts = {**case.layouts, "row_mask": "B"}
  shuffled = {n: shuffle(a, layouts[n]) for n, a in given.items()}
  straight, _ = _run(case, given)
  actual, _ = _run(case, shuffled)
  expected = [
    shuffle(out, layout) for out, layout in zip(straight, case.out, strict=True)
  ]
  _assert_equal(actual, expected, case)


@every_case
def test_padding_never_matters(case: Case):
  given = cases.arrays(case)
  layouts = {**case.layouts, "row_mask": "B"}
  pads_rows = case.takes_row_mask or any(n in layouts for n in cases.MASKS)
  extra = {"T": 2, "K": 1, "P": 1, "S": 1, "B": int(pads_rows)}

  def pad(name: str, array: np.ndarray) -> np.ndarray:
    widths = [(0, extra.get(axis, 0)) for axis in layouts[name]]
    fill: Any = -1 if array.dtype == np.int32 else False
    if _is_float(array):
      fill = np.float32("nan") if any(n in layouts for n in cases.MASKS) else 0
    return np.pad(array, widths, constant_values=fill)

  padded = {name: pad(name, array) for name, array in given.items()}
  if not pads_rows and not any(
    axis in layout for layout in layouts.values() for axis in "TKS"
  ):
    pytest.skip("no axis to pad")
  if case.name.startswith(("sum_over", "mean_over", "broadcast")):
    # The mask of these is turn_ids itself.
    padded["values"] = np.nan_to_num(padded["values"])
  straight, _ = _run(case, given)
  actual, _ = _run(case, padded)
  trimmed = [
    out[tuple(slice(cases.SIZES[axis]) for axis in layout)]
    for out, layout in zip(actual, case.out, strict=True)
  ]
  _assert_equal(trimmed, straight, case)


@every_case
def test_a_batch_of_nothing_is_zero(case: Case):
  given = cases.arrays(case)
  empty = {
    name: np.zeros_like(array) if name in cases.MASKS else array
    for name, array in given.items()
  }
  empty = {
    name: np.full_like(array, np.nan) if _is_float(array) else array
    for name, array in empty.items()
  }
  if not set(case.layouts) & set(cases.MASKS) and not case.takes_row_mask:
    pytest.skip("nothing to mask")
  outputs, grads = _run(case, empty)
  for out in outputs:
    # Nothing is void in an empty row, so that it is kept.
    expected = case.name == "void_turn_keep_mask"
    np.testing.assert_array_equal(out, np.full_like(out, expected))
  for name, grad in grads.items():
    np.testing.assert_array_equal(grad, np.zeros_like(grad), err_msg=name)


@every_case
@pytest.mark.parametrize("value", [0.0, 0.1, -3.7])
def test_equal_values_are_finite(case: Case, value: float):
  given = {
    name: np.full_like(array, value) if _is_float(array) else array
    for name, array in cases.arrays(case).items()
  }
  outputs, grads = _run(case, given)
  for out in [*outputs, *grads.values()]:
    assert np.isfinite(out).all()


@every_case
def test_extreme_values_are_finite(case: Case):
  given = {
    name: array * np.float32(1e4) if "logprobs" in name else array
    for name, array in cases.arrays(case).items()
  }
  outputs, grads = _run(case, given)
  for out in [*outputs, *grads.values()]:
    assert np.isfinite(out).all()


@every_case
def test_jit_equals_eager(case: Case):
  given = cases.arrays(case)
  _assert_equal(
    [np.asarray(x) for x in case(given)], _run(case, given)[0], case
  )


@every_case
def test_vmap_equals_one_call_for_each(case: Case):
  batches = [cases.arrays(case, seed) for seed in (0, 1)]
  stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *batches)
  actual = jax.jit(jax.vmap(case.__call__))(stacked)
  expected = [_run(case, given)[0] for given in batches]
  expected = [np.stack(outputs) for outputs in zip(*expected, strict=True)]
  _assert_equal(list(actual), expected, case)


LOSSES = [
  case
  for case in cases.CASES
  if case.out in (("BT",), ("B",))
  and ("_loss" in case.name or "cross_entropy" in case.name)
]


@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case.name)
def test_micro_batches_have_the_losses_of_the_batch(case: Case):
  given = cases.arrays(case)
  whole = _run(case, given)
  halves = [
    _run(case, {n: np.split(a, 2)[half] for n, a in given.items()})
    for half in (0, 1)
  ]
  joined = jax.tree.map(lambda *parts: np.concatenate(parts), *halves)
  _assert_equal(joined, whole, case)


@every_case
def test_lower_precision_gives_float32(case: Case):
  given = {
    name: jnp.asarray(array, jnp.bfloat16) if _is_float(array) else array
    for name, array in cases.arrays(case).items()
  }
  shapes = jax.eval_shape(lambda: case(given))
  for out in shapes:
    assert out.dtype in (jnp.float32, jnp.bool_)


GROUPED = [
  case
  for case in cases.CASES
  if "group_ids" in case.layouts and "returns" in case.layouts
]


@pytest.mark.parametrize("case", GROUPED, ids=lambda case: case.name)
def test_single_members_and_equal_returns_get_zero(case: Case):
  if case.name == "reinforce_plus_plus_baseline_advantages":
    pytest.skip("whitens over the batch")
  if case.name == "top_variance_groups":
    pytest.skip("keeps a share of the groups whatever they hold")
  given = cases.arrays(case)
  alone = {
    name: np.arange(array.size, dtype=np.int32)
    if name.endswith("_ids")
    else array
    for name, array in given.items()
  }
  equal = {**given, "returns": np.full_like(given["returns"], 0.1)}
  for degenerate in (alone, equal):
    for out in _run(case, degenerate)[0]:
      np.testing.assert_array_equal(out, np.zeros_like(out))


REJECTING = [case for case in cases.CASES if case.takes_row_mask]


@pytest.mark.parametrize("case", REJECTING, ids=lambda case: case.name)
def test_a_rejected_row_moves_nobody(case: Case):
  given = cases.arrays(case)
  live = np.flatnonzero(cases.ROW_MASK)
  layouts = {**case.layouts, "row_mask": "B"}
  without = {
    name: np.take(array, live, layouts[name].index("B"))
    for name, array in given.items()
  }
  expected = case(without)
  actual, _ = _run(case, given)
  for full, part in zip(actual, expected, strict=True):
    np.testing.assert_allclose(full[live], part, rtol=2e-5, atol=2e-6)
    dead = full[~cases.ROW_MASK]
    np.testing.assert_array_equal(dead, np.zeros_like(dead))


@pytest.mark.parametrize("case", REJECTING, ids=lambda case: case.name)
def test_an_unscored_row_is_a_rejected_row(case: Case):
  given = cases.arrays(case)
  scored = next(
    name
    for name in ("returns", "turn_rewards", "outcomes", "advantages")
    + ("token_rewards",)
    if name in case.layouts
  )
  unscored = dict(given)
  unscored[scored] = given[scored].copy()
  unscored[scored][0] = np.nan
  rejected = {**given, "row_mask": given["row_mask"] & (np.arange(6) != 0)}
  _assert_equal(_run(case, unscored)[0], _run(case, rejected)[0], case)
