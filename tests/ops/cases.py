"""One row per public function: what the rules of the library are checked on."""

from collections.abc import Callable
import dataclasses
from typing import Any

import numpy as np

import arl_jax as arl

# Rows, tokens, turns, turns plus one, levels, agents, stages.
SIZES = {"B": 6, "T": 7, "K": 3, "P": 4, "C": 2, "A": 2, "S": 3}
NUM_IDS = 9

ROW_MASK = np.array([1, 1, 1, 1, 0, 1], bool)
# Row 2 has no action at all, row 0 an observation between two turns.
TURN_IDS = np.array(
  [
    [-1, 0, 0, -1, 1, 1, 2],
    [0, 0, 1, 1, 1, -1, -1],
    [-1, -1, -1, -1, -1, -1, -1],
    [-1, 0, -1, 1, -1, 2, 2],
    [0, 0, 0, -1, 1, 1, 1],
    [-1, -1, 0, 0, 0, 0, -1],
  ],
  np.int32,
)
ACTION_MASK = TURN_IDS >= 0
TURN_MASK = np.arange(3) <= TURN_IDS.max(axis=1)[:, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
  """A function, the layout of its arguments, its options.

  Attributes:
    call: the function with its options bound.
    layouts: per argument its axes; the order is that of the call.
    out: the axes of each output.
    takes_row_mask: whether `row_mask` is passed.
    differentiable: whether gradients are checked.
  """

  name: str
  call: Callable[..., Any]
  layouts: dict[str, str]
  out: tuple[str, ...]
  takes_row_mask: bool = False
  differentiable: bool = True

  def __call__(self, arrays: dict[str, Any]) -> tuple[Any, ...]:
    """Calls the function on named arrays; always returns a tuple."""
    keywords = {}
    if self.takes_row_mask:
      keywords["row_mask"] = arrays["row_mask"]
    result = self.call(*(arrays[name] for name in self.layouts), **keywords)
    return result if isinstance(result, tuple) else (result,)


def _case(
  name: str, arguments: str, out: str, *, label: str = "", **options: Any
) -> Case:
  rows = options.pop("rows", False)
  differentiable = options.pop("differentiable", True)
  function = getattr(arl, name)
  return Case(
    name=f"{name}{label}",
    call=lambda *arrays, **keywords: function(*arrays, **options, **keywords),
    layouts=dict(part.split(":") for part in arguments.split()),
    out=tuple(out.split()) if out != "scalar" else ("",),
    takes_row_mask=rows,
    differentiable=differentiable,
  )


_GROUP = "returns:B group_ids:B"
_LOSS = "logprobs:BT old_logprobs:BT advantages:BT mask:BT"
_PAIR = "logprobs:BT behavior_logprobs:BT mask:BT"
_CRITIC = "rewards:BT values:BT action_mask:BT"

CASES = [
  _case("masked_sum", "x:BT mask:BT", "scalar"),
  _case("masked_mean", "x:BT mask:BT", "B", label="_rows", axis=1),
  _case("masked_var", "x:BT mask:BT", "scalar", ddof=1),
  _case("masked_whiten", "x:BT mask:BT", "BT"),
  _case("sum_over_turns", "values:BT turn_ids:BT", "BK", num_turns=3),
  _case("mean_over_turns", "values:BT turn_ids:BT", "BK", num_turns=3),
  _case("broadcast_turns", "values:BK turn_ids:BT", "BT"),
  _case("turn_end_mask", "turn_ids:BT", "BT", differentiable=False),
  _case("episode_returns", "turn_rewards:BK turn_mask:BK", "B", discount=0.9),
  _case("turn_returns", "turn_rewards:BK turn_mask:BK", "BK", discount=0.9),
  _case("outcome_to_turns", "outcomes:B turn_mask:BK", "BK", discount=0.9),
  _case("token_returns", "token_rewards:BT action_mask:BT", "BT", discount=0.9),
  _case(
    "group_relative_advantages", _GROUP, "B", rows=True, num_groups=NUM_IDS
  ),
  _case("leave_one_out_advantages", _GROUP, "B", rows=True, num_groups=NUM_IDS),
  _case(
    "length_weighted_advantages",
    "returns:B lengths:B group_ids:B",
    "B",
    rows=True,
    num_groups=NUM_IDS,
  ),
  _case(
    "group_policy_gradient_advantages",
    _GROUP,
    "B",
    rows=True,
    num_groups=NUM_IDS,
  ),
  _case("pass_at_k_advantages", _GROUP, "B", rows=True, num_groups=NUM_IDS),
  _case(
    "reinforce_plus_plus_advantages",
    "token_rewards:BT action_mask:BT",
    "BT",
    rows=True,
    discount=0.9,
  ),
  _case(
    "reinforce_plus_plus_baseline_advantages",
    "returns:B group_ids:B action_mask:BT",
    "BT",
    rows=True,
    num_groups=NUM_IDS,
  ),
  _case(
    "tree_advantages",
    "returns:B tree_ids:B group_ids:B",
    "B",
    rows=True,
    num_trees=NUM_IDS,
    num_groups=NUM_IDS,
  ),
  _case(
    "step_baseline_advantages",
    "returns:BK state_ids:BK turn_mask:BK",
    "BK",
    rows=True,
    num_states=NUM_IDS,
  ),
  _case(
    "gigpo_advantages",
    "turn_rewards:BK state_ids:BK group_ids:B turn_mask:BK",
    "BK",
    rows=True,
    num_groups=NUM_IDS,
    num_states=NUM_IDS,
  ),
  _case(
    "hgpo_advantages",
    "returns:BK context_ids:CBK turn_mask:BK",
    "BK",
    rows=True,
    num_contexts=NUM_IDS,
    scale="std",
  ),
  _case(
    "salt_advantages",
    "advantages:B edge_ids:BK turn_mask:BK",
    "BK",
    rows=True,
    num_edges=NUM_IDS,
  ),
  _case(
    "mt_grpo_advantages",
    "turn_rewards:BK outcomes:B group_ids:B turn_mask:BK",
    "BK",
    rows=True,
    num_groups=NUM_IDS,
  ),
  _case(
    "igpo_advantages",
    "answer_logprobs:BP outcomes:B group_ids:B turn_mask:BK",
    "BK",
    rows=True,
    num_groups=NUM_IDS,
    discount=0.9,
  ),
  _case(
    "state_value_advantages",
    "values:BP turn_rewards:BK turn_mask:BK",
    "BK",
    discount=0.9,
  ),
  _case("gae", _CRITIC, "BT BT", discount=0.9, lam=0.8),
  _case(
    "turn_gae",
    "turn_rewards:BK turn_values:BK turn_mask:BK",
    "BK BK",
    discount=0.9,
    lam=0.8,
  ),
  _case(
    "bi_level_gae",
    f"{_CRITIC} turn_ids:BT",
    "BT BT",
    discount=0.9,
    lam=0.8,
    turn_discount=0.7,
    turn_lam=0.6,
  ),
  _case("length_adaptive_lambda", "all_lengths:B", "B", alpha=0.5),
  _case(
    "value_loss",
    "values:BT old_values:BT returns:BT mask:BT",
    "BT",
    clip=0.2,
  ),
  _case(
    "soft_min_process_rewards", "scores:BK turn_mask:BK", "BK", temperature=0.5
  ),
  _case(
    "implicit_process_rewards",
    "logprobs:BT ref_logprobs:BT mask:BT",
    "BT",
  ),
  _case("progress_loss", "contributions:BK turn_mask:BK returns:B", "B"),
  _case(
    "monte_carlo_targets",
    "turn_rewards:BK state_ids:BK turn_mask:BK",
    "BK",
    rows=True,
    num_states=NUM_IDS,
    discount=0.9,
  ),
  _case("process_score_loss", "logits:BK targets:BK turn_mask:BK", "BK"),
  _case("potential_rewards", "values:BK turn_mask:BK", "BK", discount=0.9),
  _case("brier_score", "probabilities:BT targets:BT mask:BT", "scalar"),
  _case(
    "calibration_error",
    "probabilities:BT targets:BT mask:BT",
    "scalar",
    num_bins=4,
  ),
  _case(
    "team_average_rewards", "turn_rewards:BK turn_mask:BK", "BA", num_agents=2
  ),
  _case("weighted_team_rewards", "all_rewards:B weights:BA", "BA"),
  _case("critical_steps", "main_steps:BS sub_steps:BSA stage_mask:BS", "B"),
  _case(
    "parallel_agent_rewards",
    "all_parallel:B all_finished:B all_outcomes:B",
    "B",
    parallel_weight=0.1,
    finish_weight=0.2,
  ),
  _case("effective_sample_size", "weights:BT mask:BT", "scalar"),
  _case(
    "interpolated_logprobs",
    "logprobs:BT behavior_logprobs:BT ages:BT mask:BT",
    "BT",
  ),
  _case("policy_gradient_loss", "logprobs:BT advantages:B mask:BT", "BT"),
  _case("clipped_surrogate_loss", _LOSS, "BT", dual_clip=3.0),
  _case(
    "decoupled_surrogate_loss",
    "logprobs:BT proximal_logprobs:BT behavior_logprobs:BT advantages:BT "
    "mask:BT",
    "BT",
    behavior_cap=1.5,
    cap_mode="mask",
  ),
  _case("gspo_loss", _LOSS, "BT", clip_low=0.5, clip_high=0.5),
  _case("turn_surrogate_loss", f"{_LOSS} turn_ids:BT", "BT", num_turns=3),
  _case("cispo_loss", _LOSS, "BT"),
  _case("sapo_loss", _LOSS, "BT"),
  _case(
    "mirror_descent_loss",
    "logprobs:BT old_logprobs:BT advantages:B mask:BT",
    "B",
    tau=0.5,
  ),
  _case("masked_cross_entropy", "logprobs:BT mask:BT", "BT"),
  _case(
    "void_turn_keep_mask",
    "turn_is_void:BK turn_mask:BK",
    "B",
    differentiable=False,
  ),
  _case(
    "truncation_keep_mask",
    "truncated:B all_advantages:B",
    "B",
    differentiable=False,
    drop="negative",
  ),
  _case("overlong_penalty", "all_lengths:B", "B", max_length=6, buffer=4),
  _case(
    "informative_groups",
    _GROUP,
    "B",
    rows=True,
    differentiable=False,
    num_groups=NUM_IDS,
  ),
  _case(
    "top_variance_groups",
    _GROUP,
    "B",
    rows=True,
    differentiable=False,
    num_groups=NUM_IDS,
    keep_ratio=0.5,
  ),
]
CASES += [
  _case(
    "aggregate_process_rewards",
    "scores:BK turn_mask:BK",
    "B",
    label=f"_{mode}",
    mode=mode,
  )
  for mode in ("sum", "mean", "min", "prod", "last")
]
CASES += [
  _case(
    "kl_penalty_loss",
    "logprobs:BT ref_logprobs:BT behavior_logprobs:BT mask:BT",
    "BT",
    label=f"_{estimator}",
    estimator=estimator,
  )
  for estimator in ("k2", "k3", "k3_unbiased")
]
CASES += [
  _case(
    "token_importance_weights",
    _PAIR,
    "BT",
    label=f"_{mode}",
    mode=mode,
    lower=0.5,
    upper=1.5,
  )
  for mode in ("truncate", "mask", "clamp", "none")
]
CASES += [
  _case("sequence_importance_weights", _PAIR, "B", label=f"_{how}", reduce=how)
  for how in ("sum", "mean")
]
CASES += [
  _case(
    "sequence_keep_mask",
    _PAIR,
    "B",
    label=f"_{metric}",
    differentiable=False,
    metric=metric,
    upper=upper,
  )
  for metric, upper in (("geometric_ratio", 1.0), ("k3", 0.1), ("max_ratio", 2))
]
CASES += [
  _case(
    "aggregate",
    "values:BT mask:BT",
    "scalar",
    label=f"_{mode}",
    mode=mode,
    length=5.0,
  )
  for mode in ("token_mean", "sequence_mean", "sequence_sum", "fixed_length")
]

MASKS = {
  "mask": ACTION_MASK,
  "action_mask": ACTION_MASK,
  "turn_mask": TURN_MASK,
  "stage_mask": TURN_MASK,
  "row_mask": ROW_MASK,
}
# The layout names the argument: ids of nothing are -1, of no group at all none.
_OPTIONAL_IDS = ("state_ids", "edge_ids", "context_ids")


def arrays(case: Case, seed: int = 0) -> dict[str, np.ndarray]:
  """Arguments of a case, drawn at random, as they come from a clean batch."""
  rng = np.random.default_rng(seed)
  made: dict[str, np.ndarray] = {"row_mask": ROW_MASK}
  for name, layout in case.layouts.items():
    shape = tuple(SIZES[axis] for axis in layout)
    if name in MASKS:
      made[name] = MASKS[name]
    elif name == "turn_ids":
      made[name] = TURN_IDS
    elif name in _OPTIONAL_IDS:
      made[name] = rng.integers(-1, 4, shape).astype(np.int32)
    elif name.endswith("_ids"):
      made[name] = np.array([0, 0, 0, 0, 0, 1], np.int32)
    elif name in ("truncated", "turn_is_void"):
      made[name] = rng.integers(0, 2, shape).astype(bool)
    elif name.endswith("lengths"):
      made[name] = rng.integers(1, 8, shape).astype(np.float32)
    elif "logprobs" in name:
      made[name] = -rng.exponential(0.5, shape).astype(np.float32)
    elif name == "ages":
      made[name] = rng.integers(0, 5, shape).astype(np.float32)
    elif name in ("weights", "main_steps", "sub_steps"):
      made[name] = rng.exponential(1.0, shape).astype(np.float32)
    else:
      made[name] = rng.normal(size=shape).astype(np.float32)
  return made


def live_places(
  case: Case, given: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Per argument, where its values may matter."""
  layouts = case.layouts
  rows = np.ones(SIZES["B"], bool)
  if case.takes_row_mask:
    rows = rows & given["row_mask"]
  masks = {layouts[n]: given[n] for n in layouts if n in MASKS}
  if "turn_ids" in layouts and "BT" not in masks:
    masks["BT"] = given["turn_ids"] >= 0
    if layouts.get("values") == "BK":  # a turn that no token names
      turns = np.arange(SIZES["K"])
      masks["BK"] = (given["turn_ids"][..., None] == turns).any(axis=1)
  for mask in masks.values():
    rows = rows & mask.any(axis=1)
  places = {}
  for name, layout in layouts.items():
    live = np.ones(tuple(SIZES[axis] for axis in layout), bool)
    if name in MASKS or (
      name == "turn_ids"
      and "action_mask" not in layouts
      and "mask" not in layouts
    ):
      places[name] = live
      continue
    if layout == "BP":
      live = np.concatenate([rows[:, None], masks["BK"]], axis=1)
    elif layout == "BSA":
      live = live & masks["BS"][..., None]
    elif layout in masks:
      live = live & masks[layout]
    elif layout == "CBK":
      live = live & masks["BK"]
    if layout[0] == "B" and not name.startswith("all_"):
      live = live & rows.reshape(-1, *[1] * (live.ndim - 1))
    elif layout == "CBK":
      live = live & rows[:, None]
    places[name] = live
  return places
