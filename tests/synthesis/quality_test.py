"""Tests of the filters, and of mixes by difficulty."""

import collections
import dataclasses
import random

import pytest

from arl_jax.episode import Message, Task
from arl_jax.synthesis.difficulty import (
  DIFFICULTIES,
  Difficulty,
  level_difficulty,
  mix_by_difficulty,
  rate_difficulty,
)
from arl_jax.synthesis.quality import (
  FilterSettings,
  drop_duplicates,
  filter_episodes,
  jaccard,
  quality,
)
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode, SyntheticTurn


def episode(*actions, success=True, read="seen"):
  return SyntheticEpisode(
    task=Task(task_id="t", prompt="p"),
    source="test",
    turns=tuple(
      SyntheticTurn(
        observations=(Message(role="tool", content=read),), action=action
      )
      for action in actions
    ),
    success=success,
    reward=float(success),
  )


def letters(number, start=0):
  return [f"action {start + index}" for index in range(number)]


def test_quality_is_half_brevity_and_half_completeness():
  assert quality(episode("a", "b", "c")) == pytest.approx(0.5 * 0.8 + 0.5)
  assert quality(episode(*letters(9))) == pytest.approx(0.6)
  assert quality(episode(*letters(20))) == pytest.approx(0.5)
  # Of three turns one is blank.
  assert quality(episode("a", " ", "c")) == pytest.approx(0.4 + 0.5 * 2 / 3)
  # No answer came to the first two.
  assert quality(episode("a", "b", "c", read=" ")) == pytest.approx(
    0.4 + 0.5 / 3
  )
  thoughtful = quality(
    episode("hm: a", "b"), has_thought=lambda text: text.startswith("hm")
  )
  assert thoughtful == pytest.approx(0.45 + 0.25)


def test_each_filter_counts_what_it_drops():
  good = episode(*letters(4))
  kept, counts = filter_episodes(
    [
      good,
      episode("x", "y", success=False),
      episode("alone"),
      episode(*letters(10, 100)),
      episode(*letters(9, 200)),
      episode(*letters(5, 300)),
      episode("b", " ", "", success=True),
      dataclasses.replace(good, source="again"),
    ],
    FilterSettings(max_tokens=20),
    count_tokens=lambda e: 100 if "action 300" in e.actions else 20,
  )
  assert [e.actions[0] for e in kept] == ["action 0", "action 200"]
  assert counts == {
    "given": 8,
    "failed": 1,
    "too_short": 1,
    "too_long": 1,
    "too_many_tokens": 1,
    "low_quality": 1,
    "duplicate": 1,
    "kept": 2,
  }


def test_sets_that_are_alike_up_to_the_bound_are_kept():
  # 6 of 7 actions are shared: 0.857; 5 of 6: 0.833.
  assert (
    len(
      drop_duplicates(
        [episode(*letters(7)), episode(*letters(6))], max_jaccard=0.85
      )
    )
    == 1
  )
  assert (
    len(
      drop_duplicates(
        [episode(*letters(6)), episode(*letters(5))], max_jaccard=0.85
      )
    )
    == 2
  )
  assert jaccard("abc", "cba") == 1.0
  assert jaccard("ab", "bc") == pytest.approx(1 / 3)


@pytest.mark.parametrize("bound", [0.0, 0.3, 0.5, 0.85, 1.0])
def test_duplicates_are_those_of_a_comparison_of_all_pairs(bound):
  rng = random.Random(f"quality/{bound}")
  episodes = [
    episode(*rng.sample("abcdefghij", rng.randint(1, 8))) for _ in range(150)
  ]
  slow = []
  for one in episodes:
    if all(jaccard(one.actions, o.actions) <= bound for o in slow):
      slow.append(one)
  assert drop_duplicates(episodes, max_jaccard=bound) == slow


def test_bad_settings_are_named():
  with pytest.raises(ValueError, match="max_jaccard is 1.5"):
    FilterSettings(max_jaccard=1.5)
  with pytest.raises(ValueError, match="min_turns is 4 and max_calls is 2"):
    FilterSettings(min_turns=4, max_calls=2)
  with pytest.raises(ValueError, match="count_tokens is None"):
    filter_episodes([], FilterSettings(max_tokens=5))


NAMES: list[Difficulty] = [name for name in DIFFICULTIES for _ in range(40)]


def test_a_mix_has_the_shares_and_says_what_was_missing():
  items = list(enumerate(NAMES))
  mix = mix_by_difficulty(items, lambda item: item[1], number=60)
  found = collections.Counter(name for _, name in mix.items)
  assert found == mix.counts == {"easy": 18, "mid": 30, "hard": 12}
  assert not mix.missing
  assert len(set(mix.items)) == 60
  drawn = [name for _, name in mix.items]
  assert drawn != sorted(drawn, key=DIFFICULTIES.index)
  more = mix_by_difficulty(items, lambda item: item[1], number=100)
  assert more.counts == {"easy": 30, "mid": 40, "hard": 20}
  assert more.missing == {"mid": 10}


def test_a_mix_without_a_number_is_the_largest_with_the_shares():
  mix = mix_by_difficulty(NAMES, lambda name: name)
  # 80 need all 40 middling ones.
  assert mix.counts == {"easy": 24, "mid": 40, "hard": 16}
  assert not mix.missing
  none = mix_by_difficulty(NAMES[:5], lambda name: name)
  assert len(none.items) <= 1


def test_a_seed_fixes_the_mix():
  items = list(enumerate(NAMES))

  def mix(seed):
    return mix_by_difficulty(items, lambda i: i[1], number=20, seed=seed).items

  assert mix(1) == mix(1)
  assert mix(1) != mix(2)


def test_difficulty_is_read_from_rates_and_from_levels():
  rates = [rate_difficulty(rate) for rate in (0.0, 0.3, 0.5, 0.7, 1.0)]
  assert rates == ["hard", "hard", "mid", "easy", "easy"]
  levels = [level_difficulty(level, (4, 1, 2, 3)) for level in (1, 2, 3, 4)]
  assert levels == ["easy", "mid", "mid", "hard"]
  assert level_difficulty(3, [3, 3]) == "mid"
  with pytest.raises(ValueError, match="level is 7"):
    level_difficulty(7, [1, 2])
  with pytest.raises(ValueError, match="expected three that sum to 1"):
    mix_by_difficulty(NAMES, lambda name: name, shares=(0.5, 0.5, 0.5))
