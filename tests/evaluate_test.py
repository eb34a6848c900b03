"""An evaluation's numbers, worked out by hand."""

import asyncio
import dataclasses

import numpy as np
import pytest

from arl_jax.episode import Episode, EpisodeStatus, Group, Row, Task, Turn
from arl_jax.evaluate import (
  evaluate_policy,
  format_evaluation,
  summarize,
  warn_of_components,
)
from arl_jax.reporting.episode_metrics import episode_metrics, group_metrics


def episode(
  success, *, level=1, status=EpisodeStatus.TERMINATED, turns=1, errors=0
):
  failed = status is EpisodeStatus.FAILED
  return Episode(
    task=Task(task_id="t", prompt="p", level=level),
    member=0,
    status=status,
    rows=(
      Row(
        tokens=np.arange(5, dtype=np.int32),
        action_mask=np.array([0, 0, 1, 1, 0], bool),
        turn_ids=np.array([-1, -1, 0, 0, -1], np.int32),
        behavior_logprobs=np.zeros(5, np.float32),
        policy_versions=np.array([-1, -1, 3, 3, -1], np.int32),
      ),
    ),
    turns=tuple(
      Turn(
        action="",
        finish_reason="stop",
        reward=float(success) if i == turns - 1 else 0.0,
        num_tool_calls=1,
        num_tool_errors=errors if i == 0 else 0,
      )
      for i in range(turns)
    ),
    reward_components={} if failed else {"success": float(success)},
    error="boom" if failed else "",
  )


def test_pass_at_k_and_levels():
  episodes = [
    *[episode(s, level=1) for s in (1, 0, 0, 0)],
    *[episode(s, level=2) for s in (1, 1, 1, 1)],
  ]
  metrics = summarize(episodes, samples_per_task=4)
  assert metrics["pass@1"] == pytest.approx(5 / 8)
  # Of the pairs of task one, half hold its one success.
  assert metrics["pass@2"] == pytest.approx((0.5 + 1.0) / 2)
  assert metrics["pass@4"] == pytest.approx(1.0)
  assert metrics["success/level_1"] == 0.25
  assert metrics["success/level_2"] == 1.0
  # Wilson's interval of 1.25 successes in 2 trials.
  z = 1.959963984540054
  centre = (0.625 + z**2 / 4) / (1 + z**2 / 2)
  half = z * (0.625 * 0.375 / 2 + z**2 / 16) ** 0.5 / (1 + z**2 / 2)
  assert metrics["pass@1/low"] == pytest.approx(centre - half)
  assert metrics["pass@1/high"] == pytest.approx(centre + half)


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("success", [0, 1])
def test_the_interval_never_closes(samples, success):
  metrics = summarize([episode(success)] * 16, samples_per_task=samples)
  width = metrics["pass@1/high"] - metrics["pass@1/low"]
  assert width > 0.15
  assert metrics["pass@1/low" if success == 0 else "pass@1/high"] == success


def test_failed_episodes_count_as_failures():
  episodes = [episode(1), episode(0, status=EpisodeStatus.FAILED)]
  metrics = summarize(episodes, samples_per_task=1)
  assert metrics["pass@1"] == 0.5
  assert metrics["failed_fraction"] == 0.5


def evaluate(monkeypatch, episodes):
  async def run_tasks(actor, tasks, **_):
    del actor, tasks
    return episodes

  monkeypatch.setattr("arl_jax.evaluate.run_tasks", run_tasks)
  return asyncio.run(
    evaluate_policy(None, [], samples_per_task=1, max_concurrent=1)  # pyright: ignore[reportArgumentType]
  )


def test_the_first_cause_of_failed_episodes_is_said(monkeypatch, caplog):
  failed = episode(0, status=EpisodeStatus.FAILED)
  found = evaluate(monkeypatch, [episode(1), failed, failed])
  assert found.metrics["pass@1"] == pytest.approx(1 / 3)
  assert "2 of 3 episodes" in caplog.text
  assert "boom" in caplog.text


def test_an_evaluation_that_only_failed_measures_nothing(monkeypatch):
  failed = episode(0, status=EpisodeStatus.FAILED)
  with pytest.raises(RuntimeError, match="none of the 2 .*of task 't': boom"):
    evaluate(monkeypatch, [failed, failed])


def test_a_component_that_no_episode_has_is_warned_of(caplog):
  failed = episode(0, status=EpisodeStatus.FAILED)
  episodes = [failed, episode(0), episode(1)]
  warn_of_components(episodes, {"success": 1.0, "unpaid": 0.0})
  warn_of_components([failed], {"sucess": 1.0})
  assert not caplog.records
  warn_of_components(episodes, {"sucess": 1.0})
  (record,) = caplog.records
  assert record.getMessage().startswith(
    "config.environment.reward_weights names sucess, but none of the 2"
  )
  assert "they have success" in record.getMessage()


def test_that_success_is_missing_is_warned_of(caplog):
  one = dataclasses.replace(episode(1), reward_components={"sucess": 1.0})
  warn_of_components([one], {"sucess": 1.0})
  (record,) = caplog.records
  assert "has the component success" in record.getMessage()
  assert "they have sucess" in record.getMessage()


def test_lengths_tools_and_truncation():
  metrics = episode_metrics(
    [
      episode(1, turns=3, errors=1),
      episode(0, status=EpisodeStatus.MAX_TURNS, turns=1),
    ]
  )
  assert metrics["num_turns/mean"] == 2.0
  assert metrics["response_length/mean"] == 2.0
  assert metrics["truncated_fraction"] == 0.5
  assert metrics["tools/failure_fraction"] == 0.25
  assert metrics["tools/episodes_with_error"] == 0.5
  assert metrics["reward/mean"] == 0.5


def test_group_metrics_count_groups_without_variance():
  def group(ordinal, *successes):
    return Group(
      ordinal=ordinal,
      task=Task(task_id="t", prompt="p"),
      episodes=tuple(episode(s) for s in successes),
    )

  metrics = group_metrics(
    [group(0, 1, 1), group(1, 1, 0), group(2, 0, 0), group(3, 0, 0)], version=5
  )
  assert metrics["frac_reward_zero_std"] == 0.75
  assert metrics["groups/solved_all"] == 0.25
  assert metrics["groups/solved_none"] == 0.5
  assert metrics["staleness/mean"] == metrics["staleness/max"] == 2.0


def test_the_table_shows_interval_and_every_level():
  metrics = summarize(
    [episode(1, level=1), episode(0, level=3)], samples_per_task=1
  )
  table = format_evaluation(metrics)
  assert "0.500  [0.095, 0.905]" in table
  assert "success/level_3" in table
  assert "truncated" in table
