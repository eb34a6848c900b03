"""Tests of a warm start on stored episodes."""

import asyncio
import dataclasses
import functools
import importlib.util
import itertools

import jax
import numpy as np
import pytest

from arl_jax.learner import sharding
from arl_jax.learner.optimizer import OptimizerConfig
from arl_jax.learner.sharding import MeshConfig
from arl_jax.learner.state import ModelFns
from arl_jax.models import transformer
from arl_jax.models.transformer import ModelConfig
from arl_jax.run import imitation, synthesizers, warmup
from arl_jax.run.flight_suite import FlightSettings, flight_booking_suite
from arl_jax.run.suite import Demonstration
from arl_jax.run.warmup import WarmupSettings
from arl_jax.synthesis.episode_dataset import prepare_dataset
from arl_jax.synthesis.episode_file import load_episodes, save_episodes
from arl_jax.text.chat import ChatFormat
from arl_jax.text.tokenizer import train_tokenizer

SETTINGS = WarmupSettings(
  num_steps=2,
  batch_size=4,
  length_buckets=(),
  optimizer=OptimizerConfig(name="adamw", learning_rate=1e-2),
)


@functools.cache
def parts():
  suite = flight_booking_suite(FlightSettings())
  texts = [
    text
    for one in suite.demonstrate(100, 0, 0.5, True)
    for observations, action in one.turns
    for text in (*(message.content for message in observations), action)
  ]
  tokenizer = train_tokenizer(
    texts, vocab_size=500, split_pattern=suite.split_pattern
  )
  return suite, tokenizer, ChatFormat(tokenizer)


@functools.cache
def experts(number=16, seed=7):
  """Episodes as the command makes them, failed ones included."""
  suite, _, _ = parts()
  episodes, counts = asyncio.run(
    synthesizers.make_experts(
      suite,
      number,
      reward_weights={"success": 1.0},
      seed=seed,
      careful=0.25,
      drill=True,
    )
  )
  assert counts["not_reproduced"] == 0
  return tuple(episodes)


@functools.cache
def recoveries():
  suite, _, _ = parts()
  good = [episode for episode in experts() if episode.success]
  episodes, _ = asyncio.run(
    synthesizers.make_recoveries(
      suite,
      synthesizers.flight_synthesizer(FlightSettings()),
      good,
      reward_weights={"success": 1.0},
      seed=0,
    )
  )
  return tuple(episodes)


def encode(episode):
  _, tokenizer, chat = parts()
  return imitation.synthetic_row(episode, chat=chat, tokenizer=tokenizer)


def as_set(rows):
  return sorted(
    (row.tokens.tobytes(), row.action_mask.tobytes(), row.turn_ids.tobytes())
    for row in rows
  )


def prepare(settings, *, suite=None, max_length=320):
  flights, tokenizer, chat = parts()
  return imitation.prepare_batches(
    settings,
    suite or flights,
    chat=chat,
    tokenizer=tokenizer,
    max_length=max_length,
    max_observation_chars=32768,
    step_timeout_seconds=10.0,
    seed=3,
  )


def learn(path, **changes):
  """Parameters after two updates, and their metrics."""
  settings = dataclasses.replace(SETTINGS, episodes=str(path), **changes)
  _, tokenizer, _ = parts()
  vocab_size = -(-tokenizer.vocab_size // 64) * 64
  model = ModelConfig(
    vocab_size=vocab_size,
    num_layers=1,
    model_dim=16,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    mlp_dim=32,
    dtype="float32",
  )
  mesh = sharding.make_mesh(MeshConfig(), jax.devices()[:1])
  params = transformer.init_params(jax.random.key(0), model)
  metrics = []
  found = warmup.run_warmup(
    params,
    prepare(settings),
    settings=settings,
    model=ModelFns(
      apply=lambda params, tokens, positions, segment_ids: transformer.forward(
        params, tokens, positions, segment_ids, config=model
      ),
      unembedding=functools.partial(
        transformer.unembedding,
        config=model,
        transposed=model.tie_embeddings,
      ),
      transposed=model.tie_embeddings,
    ),
    shardings=sharding.param_shardings(mesh, transformer.param_specs(model)),
    mesh=mesh,
    max_length=320,
    on_step=lambda step, values: metrics.append(values),
  )
  return jax.device_get(found), metrics


def differ(one, other):
  pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
  return max(float(np.abs(a - b).max()) for a, b in pairs)


def test_a_file_gives_the_rows_of_the_experts_who_wrote_it(tmp_path):
  suite, tokenizer, chat = parts()
  save_episodes(tmp_path / "file.jsonl", experts(number=32))
  shown = suite.demonstrate(32, 7, 0.25, True)
  wanted = [
    imitation.demonstration_row(one, chat=chat, tokenizer=tokenizer)
    for one in shown
  ]
  stored = load_episodes(tmp_path / "file.jsonl")
  drawn = imitation._rows(SETTINGS, suite, stored, chat, tokenizer, seed=0)
  first, second = itertools.islice(drawn, 2)
  assert len(first) == 32  # the file once
  assert as_set(first) == as_set(second) == as_set(wanted)
  assert [len(row) for row in first] != [len(row) for row in second]


def test_every_episode_comes_once_before_any_comes_again():
  order = list(itertools.islice(imitation._endless_order(10, seed=1), 40))
  for start in range(0, 40, 10):
    assert sorted(order[start : start + 10]) == list(range(10))
  assert order[:10] != order[10:20]
  again = list(itertools.islice(imitation._endless_order(10, seed=1), 40))
  assert again == order


def test_the_tokens_of_a_mistake_are_in_the_row_and_not_in_the_mask():
  _, tokenizer, _ = parts()
  for episode in recoveries():
    row = encode(episode)
    trained = dataclasses.replace(
      episode,
      turns=tuple(
        dataclasses.replace(turn, trained=True) for turn in episode.turns
      ),
    )
    whole = encode(trained)
    np.testing.assert_array_equal(row.tokens, whole.tokens)
    np.testing.assert_array_equal(row.turn_ids, whole.turn_ids)
    (place,) = [k for k, turn in enumerate(episode.turns) if not turn.trained]
    left_out = whole.action_mask & ~row.action_mask
    np.testing.assert_array_equal(left_out, row.turn_ids == place)
    said = [*tokenizer.encode(episode.actions[place]), tokenizer.stop_ids[0]]
    np.testing.assert_array_equal(row.tokens[left_out], said)


def test_the_tokens_of_a_mistake_are_not_in_the_loss(tmp_path):
  first = recoveries()[0]
  save_episodes(tmp_path / "file.jsonl", [first] * 4)
  _, (metrics,) = learn(tmp_path / "file.jsonl", num_steps=1)
  row = encode(first)
  assert metrics["tokens"] == 4 * row.action_mask.sum()
  assert metrics["tokens"] < 4 * (row.turn_ids >= 0).sum()


def test_what_was_read_is_learned_only_with_a_weight(tmp_path):
  path = tmp_path / "file.jsonl"
  save_episodes(path, experts())
  plain, actions = learn(path)
  again, _ = learn(path, observation_weight=0.0)
  weighed, both = learn(path, observation_weight=0.5)
  assert differ(plain, again) == 0.0
  assert differ(plain, weighed) > 1e-4
  assert both[0]["tokens"] > actions[0]["tokens"]
  assert set(both[0]) == set(actions[0])
  # Before any update, tokens of both kinds are about as unlikely.
  assert both[0]["loss"] == pytest.approx(actions[0]["loss"], rel=0.05)


def test_weights_are_what_was_asked_for_and_their_mean_is_one():
  rows = [encode(episode) for episode in recoveries()[:3]]
  batch = warmup.batching.pad_rows(rows, num_rows=4, length=320, num_turns=1)
  ((weighed, weights),) = warmup.weigh_tokens([batch], 0.25)
  assert weights is not None
  np.testing.assert_allclose(weights[weighed.action_mask].mean(), 1.0, 1e-6)
  assert not weights[~np.asarray(weighed.action_mask)].any()
  one = weights[np.asarray(batch.action_mask)][0]
  for row, episode in enumerate(recoveries()[:3]):
    (place,) = [k for k, turn in enumerate(episode.turns) if not turn.trained]
    size = len(rows[row])
    ids = rows[row].turn_ids
    expected = np.where(ids >= 0, one, 0.25 * one)
    expected[ids == place] = 0.0
    expected[0] = 0.0
    np.testing.assert_allclose(weights[row, :size], expected, rtol=1e-6)
    assert not weights[row, size:].any()
  assert not weights[3].any()
  assert warmup.weigh_tokens([batch], 0.0) == [(batch, None)]


def test_the_parts_of_an_update_share_one_scale():
  rows = [encode(episode) for episode in experts()[:4]]
  whole = warmup.batching.pad_rows(rows, num_rows=4, length=320, num_turns=1)
  pad = functools.partial(
    warmup.batching.pad_rows, num_rows=2, length=320, num_turns=1
  )
  halves = [pad(rows[:2]), pad(rows[2:])]
  ((_, together),) = warmup.weigh_tokens([whole], 0.5)
  (_, first), (_, second) = warmup.weigh_tokens(halves, 0.5)
  assert together is not None
  assert first is not None
  assert second is not None
  np.testing.assert_allclose(together, np.vstack([first, second]), rtol=1e-6)


@pytest.mark.skipif(
  importlib.util.find_spec("tensorflow_datasets") is None,
  reason="pip install 'arl-jax[data]'",
)
def test_a_dataset_teaches_what_its_file_teaches(tmp_path):
  save_episodes(tmp_path / "file.jsonl", experts())
  prepare_dataset(tmp_path / "data", load_episodes(tmp_path / "file.jsonl"))
  from_file, _ = learn(tmp_path / "file.jsonl")
  from_dataset, _ = learn(tmp_path / "data")
  assert differ(from_file, from_dataset) == 0.0


def test_demonstrations_without_a_task_cannot_be_stored():
  suite, _, _ = parts()
  (one,) = suite.demonstrate(1, 0, 1.0, False)
  nameless = Demonstration(turns=one.turns, success=one.success)
  bare = dataclasses.replace(suite, demonstrate=lambda *_: [nameless])
  with pytest.raises(ValueError, match=r"set Demonstration\.task"):
    asyncio.run(
      synthesizers.make_experts(
        bare, 1, reward_weights={}, seed=0, careful=1.0, drill=False
      )
    )
