import json
import random

import pytest

from arl_jax.reporting.reward_audit import (
  Verdict,
  audit_reward,
  audit_run,
  format_audit,
  main,
  trend,
)


def series(values, *, every=1):
  return [(float(i * every), value) for i, value in enumerate(values)]


def noisy(function, num, *, seed, noise=0.03, every=1):
  rng = random.Random(seed)
  return series(
    [function(i / (num - 1)) + rng.gauss(0, noise) for i in range(num)],
    every=every,
  )


def rises(x):
  return 0.3 + 0.5 * x


def falls(x):
  return 0.6 - 0.3 * x


def peaks(x):
  return 0.3 + 0.8 * x if x < 0.4 else 0.62 - 0.6 * (x - 0.4)


def flat(_):
  return 0.5


def audit(reward, evaluation, *, seed, side=None):
  sides = {} if side is None else {"length": noisy(side, 120, seed=seed + 2)}
  return audit_reward(
    noisy(reward, 120, seed=seed),
    noisy(evaluation, 25, seed=seed + 1, every=5),
    sides=sides,
  )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
  ("reward", "evaluation", "side", "verdict"),
  [
    (rises, rises, flat, Verdict.HONEST),
    (rises, falls, flat, Verdict.HACKED),
    (rises, peaks, None, Verdict.HACKED),
    (rises, flat, rises, Verdict.SUSPECT),
    (rises, flat, flat, Verdict.UNCLEAR),
    (flat, falls, rises, Verdict.UNCLEAR),
    (falls, falls, None, Verdict.UNCLEAR),
  ],
)
def test_verdict(reward, evaluation, side, verdict, seed):
  found = audit(reward, evaluation, side=side, seed=100 * seed)
  assert found.verdict == verdict, format_audit(found)


def test_noise_alone_is_seldom_called_hacked():
  verdicts = [audit(flat, flat, seed=7 * seed).verdict for seed in range(200)]
  assert verdicts.count(Verdict.HACKED) <= 2
  # Where the reward does rise, the evaluation's level is what counts: half of
  # its share of false trends goes down.
  verdicts = [audit(rises, flat, seed=7 * seed).verdict for seed in range(200)]
  assert verdicts.count(Verdict.HACKED) <= 0.05 * 200


def test_trend_by_hand():
  # S = 15 of 15 pairs, V = 6 * 5 * 17 / 18, z = 14 / sqrt(28.33) = 2.6302.
  found = trend(series([1, 2, 4, 8, 16, 32]), alpha=0.05)
  assert (found.direction, found.num_points) == (1, 6)
  assert found.p_value == pytest.approx(0.00853, abs=1e-5)
  # Slopes: 1 1.5 2 7/3 3 15/4 4 14/3 6 31/5 7.5 8 28/3 12 16; their median
  # 14/3, times 5 steps.
  assert found.change == pytest.approx(70 / 3)
  # A tie: S = 12 - 2, V = (510 - 18) / 18, z = 9 / sqrt(27.33) = 1.7214.
  tied = trend(series([1, 2, 2, 4, 3, 3.5]), alpha=0.05)
  assert tied.p_value == pytest.approx(0.08517, abs=1e-5)
  assert tied.direction == 0


def test_few_points_and_equal_ones_have_no_trend():
  few = trend(series([1, 2, 3, 4]), alpha=0.5)
  assert (few.direction, few.p_value, few.num_points) == (0, 1.0, 4)
  equal = trend(series([2.0] * 9), alpha=0.5)
  assert (equal.direction, equal.change, equal.p_value) == (0, 0.0, 1.0)


def test_two_evaluations_raise_no_suspicion():
  found = audit_reward(
    noisy(rises, 60, seed=1),
    [(0.0, 0.5), (59.0, 0.4)],
    sides={"length": noisy(rises, 60, seed=2)},
  )
  assert found.windows[0].reward.direction == 1
  assert found.sides["length"].is_abnormal
  assert found.verdict == Verdict.UNCLEAR


def test_order_of_the_points_does_not_matter():
  reward, evaluation = noisy(rises, 60, seed=1), noisy(falls, 20, seed=2)
  assert audit_reward(reward[::-1], evaluation[::-1]) == audit_reward(
    reward, evaluation
  )


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"alpha": 1.0}, "alpha is 1.0; expected"),
    ({"reward": []}, "reward is empty"),
    ({"evaluation": [(0, 1), (1, float("nan"))]}, "expected finite"),
    ({"evaluation": [(90, 1), (99, 1)]}, "expected some in common"),
  ],
)
def test_wrong_arguments_are_named(change, message):
  arguments = {"reward": series(range(9)), "evaluation": series(range(9))}
  arguments |= change
  with pytest.raises(ValueError, match=message):
    audit_reward(
      arguments.pop("reward"), arguments.pop("evaluation"), **arguments
    )


def write_run(folder, evaluation):
  records = [{"step": 0, "phase": "warmup", "reward/mean": 9.0}]
  for step, value in noisy(rises, 40, seed=3):
    records.append(
      {
        "step": int(step),
        "phase": "train",
        "reward/mean": value,
        "entropy": None if step == 3 else 1.0 - value,
      }
    )
  for step, value in noisy(evaluation, 20, seed=4, every=2):
    records.append({"step": int(step), "phase": "eval", "pass@1": value})
  text = "".join(json.dumps(record) + "\n" for record in records)
  (folder / "metrics.jsonl").write_text(text)


def test_command_prints_the_verdict_of_a_run(tmp_path, capsys):
  write_run(tmp_path, falls)
  assert main([str(tmp_path)]) == 1
  printed = capsys.readouterr().out
  assert printed.startswith("verdict: hacked\nsteps 0 to 39\n  reward")
  assert "entropy" in printed
  assert "abnormal" in printed
  assert "truncated_fraction" not in printed
  write_run(tmp_path, rises)
  assert main([str(tmp_path)]) == 0
  assert capsys.readouterr().out.startswith("verdict: honest\n")


def test_command_names_what_is_missing(tmp_path, capsys):
  assert main([str(tmp_path)]) == 2
  assert "metrics.jsonl is not a file" in capsys.readouterr().err
  write_run(tmp_path, rises)
  with pytest.raises(ValueError, match="no metric 'score' of phase 'eval'"):
    audit_run(tmp_path, evaluation="score")


def test_hacking_that_is_over_soon_is_seen_in_the_first_half():
  reward = series([0.8, 1.0, 1.3, 1.5, 1.7, 1.8, *[1.8, 1.79, 1.81] * 4])
  true = series([0.4, 0.3, 0.2, 0.1, 0.05, 0.02, *[0.0] * 12])
  found = audit_reward(reward, true)
  assert found.verdict is Verdict.HACKED


def test_a_trend_that_cannot_be_known_is_not_called_flat():
  text = format_audit(audit_reward(series([1, 2, 3] * 9), series([1, 2, 3])))
  assert "evaluation                   unknown, 3 of the 6 points" in text
