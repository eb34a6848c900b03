"""Wrong input is an error that names the argument."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import arl_jax as arl
from tests.ops import cases
from tests.ops.cases import Case

TWO = jnp.ones((2, 3))
ONE = jnp.ones(2)
MASK = jnp.ones((2, 3), bool)
IDS = jnp.zeros(2, int)
WORDS: Any = "words"


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_a_wrong_shape_is_named_for_every_function(case: Case):
  if case.name.startswith("masked_") and "x" in case.layouts:
    pytest.skip("takes any shape that broadcasts")
  given = cases.arrays(case)
  if case.takes_row_mask:
    broken = {**given, "row_mask": np.ones(5, bool)}
    with pytest.raises(ValueError, match="row_mask has shape"):
      case(broken)
  if case.name.startswith("effective_sample_size"):
    pytest.skip("takes any shape that broadcasts")
  for name, array in given.items():
    if name == "row_mask":
      continue
    with pytest.raises(ValueError, match="has shape|agree"):
      case({**given, name: array[None, None]})


MASKS = ("truncated", "turn_is_void", *cases.MASKS)
MASKED = [
  case
  for case in cases.CASES
  if case.takes_row_mask or any(name in MASKS for name in case.layouts)
]
WITH_IDS = [
  case
  for case in cases.CASES
  # turn_end_mask takes any id: it only tells equal from different.
  if case.name != "turn_end_mask"
  and any(name.endswith("_ids") for name in case.layouts)
]


@pytest.mark.parametrize("case", MASKED, ids=lambda case: case.name)
def test_a_mask_of_floats_is_named_for_every_function(case: Case):
  given = cases.arrays(case)
  arguments = [name for name in case.layouts if name in MASKS]
  for name in [*arguments, *["row_mask"] * case.takes_row_mask]:
    # Refused even though each is 0 or 1: a trace cannot look at values.
    floats = given[name].astype(np.float32)
    message = f"(mask|{name}) has dtype float32; expected bool"

    def call(floats: Any, name: str = name) -> Any:
      return case({**given, name: floats})

    with pytest.raises(ValueError, match=message):
      call(floats)
    with pytest.raises(ValueError, match=message):
      jax.eval_shape(call, floats)


@pytest.mark.parametrize("case", MASKED, ids=lambda case: case.name)
def test_a_mask_of_counts_is_named_for_every_function(case: Case):
  given = cases.arrays(case)
  arguments = [name for name in case.layouts if name in MASKS]
  for name in [*arguments, *["row_mask"] * case.takes_row_mask]:
    counts = given[name] * np.int32(2)
    with pytest.raises(ValueError, match=f"(mask|{name}) holds 2; expected 0"):
      case({**given, name: counts})


@pytest.mark.parametrize("case", WITH_IDS, ids=lambda case: case.name)
def test_an_id_out_of_range_is_named_for_every_function(case: Case):
  given = cases.arrays(case)
  places = cases.live_places(case, given)
  for name in (name for name in case.layouts if name.endswith("_ids")):
    for wrong in (-5, 99):
      ids = np.where(places[name], np.int32(wrong), given[name])
      with pytest.raises(ValueError, match=f"{name} holds {wrong}"):
        case({**given, name: ids})


@pytest.mark.parametrize("case", WITH_IDS, ids=lambda case: case.name)
def test_ids_that_are_no_integers_are_named_for_every_function(case: Case):
  given = cases.arrays(case)
  for name in (name for name in case.layouts if name.endswith("_ids")):
    with pytest.raises(ValueError, match=f"{name} has dtype float32"):
      case({**given, name: given[name].astype(np.float32)})


def test_ids_are_no_mask():
  with pytest.raises(ValueError, match="mask holds -1; expected 0 and 1"):
    arl.masked_mean(TWO, jnp.array([[-1, 0, 1]]))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.complex64])
def test_masks_are_bool_or_integers(dtype: Any):
  with pytest.raises(ValueError, match="multiply weights into the values, or"):
    arl.masked_sum(TWO, jnp.ones((2, 3), dtype))


def test_a_mask_may_be_a_list():
  truths: Any = [True, False]
  numbers: Any = [1, 0]
  floats: Any = [1.0, 0.0]
  assert arl.masked_sum(ONE, truths) == arl.masked_sum(ONE, numbers) == 1.0
  with pytest.raises(ValueError, match="mask has dtype float32"):
    arl.masked_sum(ONE, floats)


def test_integers_under_a_trace_are_a_mask():
  actual = jax.jit(lambda mask: arl.masked_sum(ONE, mask))(jnp.array([1, 0]))
  assert actual == 1.0


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (
      lambda: arl.group_relative_advantages(ONE, IDS, num_groups=0),
      "num_groups is 0",
    ),
    (
      lambda: arl.group_relative_advantages(
        ONE, jnp.array([0, 3]), num_groups=2
      ),
      "group_ids holds 3, but num_groups is 2",
    ),
    (
      lambda: arl.group_relative_advantages(
        ONE, jnp.array([0, -1]), num_groups=2
      ),
      "group_ids holds -1",
    ),
    (
      lambda: arl.group_relative_advantages(ONE, ONE, num_groups=2),
      "group_ids has dtype float32; expected integers",
    ),
    (
      lambda: arl.group_relative_advantages(
        ONE, IDS, num_groups=1, scale="mad"
      ),
      "scale is 'mad'",
    ),
    (
      lambda: arl.tree_advantages(
        ONE, jnp.array([0, 9]), IDS, num_trees=2, num_groups=1
      ),
      "tree_ids holds 9, but num_trees is 2",
    ),
    (
      lambda: arl.step_baseline_advantages(
        TWO, jnp.full((2, 3), 5), MASK, num_states=5
      ),
      "state_ids holds 5",
    ),
    (
      lambda: arl.sum_over_turns(TWO, jnp.full((2, 3), 4), num_turns=4),
      "turn_ids holds 4",
    ),
    (
      lambda: arl.broadcast_turns(TWO, jnp.full((2, 3), -2)),
      "turn_ids holds -2",
    ),
    (lambda: arl.turn_returns(TWO, MASK, discount=1.5), "discount is 1.5"),
    (lambda: arl.gae(TWO, TWO, MASK, lam=-0.1), "lam is -0.1"),
    (
      lambda: arl.token_logprobs(
        jnp.ones((1, 2, 3)), jnp.ones((1, 2), int), temperature=0.0
      ),
      "temperature is 0.0",
    ),
    (
      lambda: arl.token_logprobs(TWO, jnp.ones((2, 3), int)),
      "logits has shape",
    ),
    (
      lambda: arl.chunked_token_logprobs(
        jnp.ones((1, 2, 3)), jnp.ones((4, 5)), IDS[None], chunk_size=2
      ),
      "unembedding has shape",
    ),
    (
      lambda: arl.chunked_token_logprobs(
        jnp.ones((1, 2, 3)), jnp.ones((3, 5)), IDS[None], chunk_size=0
      ),
      "chunk_size is 0",
    ),
    (
      lambda: arl.policy_gradient_loss(TWO, jnp.ones(3), MASK),
      "advantages has shape",
    ),
    (
      lambda: arl.clipped_surrogate_loss(TWO, TWO, ONE, MASK, clip_low=1.5),
      "clip_low is 1.5",
    ),
    (
      lambda: arl.clipped_surrogate_loss(TWO, TWO, ONE, MASK, dual_clip=0.5),
      "dual_clip is 0.5",
    ),
    (
      lambda: arl.decoupled_surrogate_loss(
        TWO, TWO, TWO, ONE, MASK, cap_mode="drop"
      ),
      "cap_mode is 'drop'",
    ),
    (
      lambda: arl.token_importance_weights(
        TWO, TWO, MASK, mode="mask", lower=3.0, upper=2.0
      ),
      "lower is 3.0, above upper",
    ),
    (lambda: arl.aggregate(TWO, MASK, mode="mean"), "mode is 'mean'"),
    (lambda: arl.shapley_values(ONE, num_agents=2), "coalition_values"),
    (
      lambda: arl.top_variance_groups(ONE, IDS, num_groups=1, keep_ratio=0.0),
      "keep_ratio is 0.0",
    ),
    (
      lambda: arl.overlong_penalty(ONE, max_length=4, buffer=5),
      "max_length is 4",
    ),
    (lambda: arl.masked_mean(WORDS, MASK), "x is a str"),
  ],
)
def test_a_wrong_value_is_named(call: Callable[[], Any], message: str):
  with pytest.raises(ValueError, match=message):
    call()


def test_a_traced_count_says_how_to_pass_it():
  with pytest.raises(ValueError, match="static_argnames"):
    jax.jit(lambda n: arl.group_relative_advantages(ONE, IDS, num_groups=n))(2)


def test_values_are_not_looked_at_under_a_trace():
  ids = jnp.array([0, 7])  # 7 is no group: the row counts for nothing
  actual = jax.jit(
    lambda i: arl.group_relative_advantages(ONE, i, num_groups=2)
  )(ids)
  np.testing.assert_array_equal(actual, [0.0, 0.0])


def test_lists_are_arrays_too():
  returns: Any = [1.0, 0.0]
  groups: Any = [0, 0]
  actual = arl.group_relative_advantages(
    returns, groups, num_groups=1, scale="none"
  )
  np.testing.assert_array_equal(actual, [0.5, -0.5])


def test_functions_vectorise():
  returns = jnp.array([[1.0, 0.0], [0.0, 0.0]])
  actual = jax.vmap(
    lambda r: arl.group_relative_advantages(r, IDS, num_groups=1, scale="none")
  )(returns)
  np.testing.assert_array_equal(actual, [[0.5, -0.5], [0.0, 0.0]])
