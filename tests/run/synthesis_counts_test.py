"""Tests of the counts of a synthesis, and of why it left nothing."""

import pytest

from arl_jax.run.synthesis_counts import explain_nothing, format_counts


def test_the_rarest_kinds_are_summed_up():
  kinds = {f"kept/{k}": 20 - k for k in range(11)}
  shown = format_counts({"graph": {"run": 200, "kept": 165, **kinds}})
  lines = [line.split() for line in shown.splitlines()]
  assert lines[:3] == [["graph"], ["run", "200"], ["kept", "165"]]
  assert lines[-1] == ["kept/3", "others", str(12 + 11 + 10)]
  assert len(lines) == 12


@pytest.mark.parametrize(
  ("counts", "expected"),
  [
    (
      {"rejection": {"played": 240, "rejected": 237, "kept": 0}},
      "none of the episodes that the policy of runs/a played succeeded"
      " (rejection: 240 played, 237 rejected). Train it for longer, or give it"
      " more tries with --num_samples or --number",
    ),
    (
      {
        "experts": {"played": 9, "succeeded": 9, "not_reproduced": 0},
        "hindsight": {"given": 9, "succeeded": 9, "kept": 0},
      },
      "no failure achieved what another request asks for (experts: 9 played,"
      " 9 succeeded; hindsight: 9 given, 9 succeeded). Have the experts fail"
      " more often with a lower config.warmup.careful_fraction",
    ),
    # The first stage that kept nothing counts, not the filters behind it.
    (
      {
        "failures": {"played": 4, "rejected": 4, "kept": 0},
        "hindsight": {"given": 0, "kept": 0},
      },
      "none of the episodes that the policy of runs/a played ended as a"
      " failure (failures: 4 played, 4 rejected). Keep its successes with"
      " --method=rejection",
    ),
    (
      {
        "experts": {"played": 9, "succeeded": 4},
        "filters": {"given": 9, "failed": 5, "too_many_tokens": 4, "kept": 0},
      },
      "the filters dropped all that was made (experts: 9 played, 4 succeeded;"
      " filters: 9 given, 5 failed, 4 too_many_tokens). Raise"
      " config.rollout.max_length, or keep what cannot be trained on with it"
      " with --filters=false",
    ),
    (
      {"experts": {"played": 9, "succeeded": 0, "not_reproduced": 9}},
      "no episode of the experts goes the same way when it is played again"
      " (experts: 9 played, 9 not_reproduced). Use another --method",
    ),
  ],
)
def test_why_nothing_is_left_is_one_line(counts, expected):
  assert explain_nothing(counts, workdir="runs/a") == expected
