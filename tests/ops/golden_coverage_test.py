import pathlib
import re

from tests.ops import golden

# Examples of what lies outside of ops, each with the place that it belongs to.
ELSEWHERE = {
  "adaptive_kl_controller": "a weight between updates: the caller's loop",
  "afm_rewards": "a reward of text: the host's environments",
  "arpo_branch_decision": "when to fork an episode: the host's actors",
  "deepresearcher_reward": "a reward of text: the host's environments",
  "malt_value_iteration": "labels of preference pairs: not learned from here",
  "retool_torl_rewards": "a reward of text: the host's environments",
  "search_r1_reward_table": "a reward of text: the host's environments",
}


def test_every_worked_example_is_tested_or_lies_elsewhere():
  folder = pathlib.Path(__file__).parent
  loaded = {
    name
    for path in folder.glob("*_test.py")
    for name in re.findall(r'golden\.load\(\s*"(\w+)"', path.read_text())
  }
  assert loaded.isdisjoint(ELSEWHERE)
  assert loaded | set(ELSEWHERE) == set(golden.names())
