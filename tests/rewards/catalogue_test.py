"""Golden numbers of the rewards that a configuration can name."""

import dataclasses

import pytest

from arl_jax.episode import EpisodeStatus
from arl_jax.rewards import (
  axes,
  citations,
  efficiency,
  milestones,
  process,
  research,
)
from arl_jax.rewards.citations import ANSWER, Rubric
from arl_jax.rewards.compose import number
from tests.rewards import played
from tests.rewards.played import answer, turn

# 4 turns, 5 calls of which 1 failed, and the failure was recovered from.
TURNS = (turn("a"), turn("b", "no", calls=2, errors=1), turn("c", "x", calls=2))
RIGHT = played.episode(*TURNS, answer())
WRONG = played.episode(*TURNS, answer(), success=False)
CUT_OFF = dataclasses.replace(WRONG, status=EpisodeStatus.MAX_TURNS)


def test_an_efficient_outcome():
  # 1 - 0.1 · 4/10 - 0.5
  assert efficiency.efficient_outcome()(RIGHT) == pytest.approx(0.46)
  assert efficiency.efficient_outcome()(WRONG) == pytest.approx(-0.54)
  clean = played.episode(turn(), answer())
  assert efficiency.efficient_outcome()(clean) == pytest.approx(0.98)
  free = efficiency.efficient_outcome(turn_weight=0.0, format_weight=0.0)
  assert free(RIGHT) == 1.0
  with pytest.raises(ValueError, match="max_turns is 0"):
    efficiency.efficient_outcome(max_turns=0)


def test_searches_cost():
  assert efficiency.search_outcome()(RIGHT) == pytest.approx(0.75)
  many = played.episode(*[turn()] * 9, answer(), success=False)
  assert efficiency.search_outcome()(many) == pytest.approx(-0.25)
  counted = efficiency.search_outcome(num_searches=lambda episode: 2)
  assert counted(RIGHT) == pytest.approx(0.9)


def test_a_search_is_worth_little_and_no_answer_less():
  value = efficiency.search_or_submit()
  assert value(RIGHT) == 1.0
  assert value(WRONG) == pytest.approx(0.15)
  assert value(CUT_OFF) == -0.1


def test_three_axes():
  assert axes.effective_calls(RIGHT) == pytest.approx(0.8)
  assert axes.coherence(RIGHT) == axes.recovery(RIGHT) == 1.0
  # 0.5 + 0.3 (0.4 · 0.8 + 0.3 + 0.3) + 0.2 · 0.6
  assert axes.three_axes()(RIGHT) == pytest.approx(0.5 + 0.276 + 0.12)
  assert axes.three_axes()(WRONG) == pytest.approx(0.276 + 0.12)
  half = axes.three_axes(completion=lambda episode: 0.5)
  assert half(WRONG) == pytest.approx(0.25 + 0.276 + 0.12)


def test_recovery_needs_a_later_call_that_works():
  stuck = played.episode(turn(), turn(errors=1), turn(errors=1))
  assert axes.recovery(stuck) == 0.0
  half = played.episode(turn(errors=1), turn(), turn(errors=1))
  assert axes.recovery(half) == 0.5
  # A turn does not recover from itself.
  assert axes.recovery(played.episode(turn(calls=2, errors=1))) == 0.0
  assert axes.recovery(played.episode()) == 1.0


def test_research_in_stages():
  support = {"success": 1.0, "support": 0.5}
  episode = played.episode(*TURNS, answer(), components=support)

  def stage(number, **options):
    return research.staged_research(number, **options)(episode)

  assert stage(1) == 1.0
  assert stage(2) == pytest.approx(1.0 + 0.2 * 0.8 - 0.1 * 0.4)
  third = stage(3, cross_validation=lambda episode: 1.0)
  assert third == pytest.approx(0.4 + 0.3 * 0.5 + 0.2 + 0.1 * 0.6)
  with pytest.raises(ValueError, match="stage is 4"):
    research.staged_research(4)
  with pytest.raises(ValueError, match="cross_validation"):
    research.staged_research(3)


@pytest.mark.parametrize(
  ("version", "wanted"), [(0, 0.5), (5, 0.75), (10, 1.0), (99, 1.0)]
)
def test_the_process_fades_with_the_version_of_the_weights(version, wanted):
  # 0 for the process and 1 for the outcome: what is left is 1 - α.
  value = research.annealed(lambda episode: 0.0, num_steps=10)
  row = played.sampled_by(version, version + 1)
  assert value(dataclasses.replace(RIGHT, rows=(row,))) == wanted


def test_rubrics_have_to_lead_to_the_answer():
  def rubric(*entities, identified=True, supported=True):
    return Rubric(entities=entities, identified=identified, supported=supported)

  chain = [rubric("b", "c"), rubric("a", "b"), rubric(ANSWER, "a")]
  assert citations.connected_share(chain) == 1.0
  # Without the link in the middle only the last is connected.
  broken = [chain[0], rubric("a", "b", supported=False), chain[2]]
  assert citations.connected_share(broken) == pytest.approx(1 / 3)
  unnamed = [chain[0], chain[1], rubric(ANSWER, "a", identified=False)]
  assert citations.connected_share(unnamed) == 0.0
  assert citations.connected_share([]) == 0.0
  value = citations.rubric_outcome(lambda episode: broken)
  assert value(RIGHT) == pytest.approx(0.7 + 0.1)
  assert value(WRONG) == 0.0


def test_a_milestone_is_paid_once():
  looked = milestones.milestone(milestones.wrote(r"^look"))
  episode = played.episode(turn("go"), turn("look"), turn("look"))
  assert looked(episode) == (0.0, 1.0, 0.0)
  assert looked(played.episode(turn("go"))) == (0.0,)
  shown = milestones.milestone(milestones.was_shown("key: [0-9]"))
  assert shown(played.episode(turn("", "x"), turn("", "a key: 7"))) == (0, 1)
  worked = milestones.milestone(milestones.call_worked)
  assert worked(played.episode(turn(errors=1), turn(), turn())) == (0, 1, 0)


@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("reached", [None, 0, 1, 2, 3])
def test_a_potential_changes_no_return_but_moves_it(reached, discount):
  words = ["look" if k == reached else "go" for k in range(4)]
  episode = played.episode(*map(turn, words))
  pays = milestones.milestone_potential(
    milestones.wrote("look"), discount=discount
  )
  values = pays(episode)
  assert sum(discount**k * v for k, v in enumerate(values)) == pytest.approx(0)
  # What is reached on the last turn is not paid: the episode is over.
  paid = reached if reached is not None and reached < 3 else None
  assert [k for k, value in enumerate(values) if value > 0] == (
    [] if paid is None else [paid]
  )
  if paid is not None:
    # The turns after it are worth less from there on: it is behind them.
    later = values[paid + 1 :]
    assert sum(discount**k * v for k, v in enumerate(later)) == pytest.approx(
      -1.0
    )


def test_stages_of_using_a_tool():
  value = milestones.tool_progress()
  assert value(RIGHT) == pytest.approx(0.1 + 0.15 + 0.5)
  half = played.episode(turn(calls=2, errors=1), success=False)
  assert value(half) == pytest.approx(0.1)
  slow = played.episode(*[turn(errors=1)] * 8, success=False)
  assert value(slow) == pytest.approx(0.1 - 0.06)
  assert value(played.episode(*[turn(calls=0)] * 9, success=False)) == 0.0


def test_rules_score_each_turn():
  episode = played.episode(
    turn("a", "one", state="prompt"),
    turn("b", "two", calls=2, errors=1, state="s0"),
    turn("a", "one", state="s1"),
    turn("", "one", calls=0, state="s1"),
    answer(),
  )

  def each(rule):
    return [rule(episode, k) for k in range(5)]

  assert each(process.valid_call) == [1, 0.5, 1, 0, 1]
  assert each(process.new_information) == [1, 1, 0, 0, None]
  assert each(process.no_repetition) == [1, 1, 0, 1, 1]
  assert each(process.progress) == [None, 1, 0, None, None]
  assert process.rule_scores()(episode) == pytest.approx(
    [1, 3.5 / 4, 1 / 4, 1 / 3, 1]
  )
  only = process.rule_scores({"valid_call": 1.0, "progress": 3.0})
  assert only(episode) == pytest.approx([1, 3.5 / 4, 1 / 4, 0, 1])
  assert process.rule_scores({"progress": 1.0})(episode)[0] == 0.0


def test_a_cycle_of_the_same_calls_gains_nothing():
  loop = played.episode(*[turn("a", "one", state="s")] * 5)
  scores = process.rule_scores({"no_repetition": 1.0, "progress": 1.0})
  assert scores(loop) == (1.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
  ("weights", "match"),
  [({"speed": 1.0}, "names 'speed'"), ({"progress": 0.0}, "has 0.0")],
)
def test_rules_are_checked(weights, match):
  with pytest.raises(ValueError, match=match):
    process.rule_scores(weights)


def test_verdicts_of_turns_add_up_to_golden_sums():
  verdicts = process.turn_verdicts()
  assert verdicts(RIGHT) == (0.3, -0.3, 0.3, 1.0)
  assert verdicts(WRONG) == (0.3, -0.3, 0.3, -0.5)
  assert number(verdicts, CUT_OFF) == pytest.approx(-0.2)
