"""The engine against whole-row forward passes of the same weights."""

import asyncio
import dataclasses
import time
from typing import Any

import jax
import numpy as np
import pytest

from arl_jax.actors.policy import SamplingParams
from arl_jax.bridge.engine_config import EngineConfig
from arl_jax.models import transformer
from tests.bridge.tiny_engine import (
  CONFIG,
  MODEL,
  draw_params,
  prompt,
  with_engine,
)


@pytest.fixture(scope="module")
def params():
  return draw_params(0)


_forward = jax.jit(transformer.forward, static_argnames="config")


def row_logits(params, ids):
  """Logits behind each token of a row by one plain forward pass."""
  width = CONFIG.max_length
  tokens = np.zeros((1, width), np.int32)
  tokens[0, : len(ids)] = ids
  segments = (np.arange(width) < len(ids)).astype(np.int32)[None]
  hidden = _forward(
    params, tokens, np.arange(width)[None], segments, config=MODEL
  )
  return np.asarray(hidden[0] @ transformer.unembedding(params, MODEL))


def row_logprobs(params, ids, temperature=1.0):
  """Log-probabilities of each token of a row."""
  logits = row_logits(params, ids) / temperature
  logprobs = np.asarray(jax.nn.log_softmax(logits))
  return np.array([0.0] + [logprobs[t - 1, ids[t]] for t in range(1, len(ids))])


@pytest.mark.parametrize(
  "shapes",
  [{}, {"decode_rows": (1, 2, 3), "kv_lengths": (16, 32)}],
  ids=["every slot", "busy slots alone"],
)
def test_multi_turn_logprobs_equal_the_forward_pass(params, shapes):
  async def episode(engine, member):
    ids = prompt(member, 5 + member)
    masks = np.zeros(len(ids), bool)
    logprobs = np.zeros(len(ids))
    # Turns of different lengths: those who decode are scattered over slots.
    num = 3 + member % 4
    for turn in range(3):
      done = await engine.generate(
        ids,
        sampling=SamplingParams(
          temperature=0.7, max_tokens=num, seed=100 * member + turn
        ),
        session=str(member),
      )
      observation = prompt(1000 + turn, 3)
      ids = np.concatenate([ids, done.token_ids, observation])
      masks = np.concatenate([masks, np.ones(num, bool), np.zeros(3, bool)])
      logprobs = np.concatenate([logprobs, done.logprobs, np.zeros(3)])
    engine.end_session(str(member))
    return ids, masks, logprobs

  async def body(engine):
    # More episodes than slots: some wait, parked ones are evicted.
    return await asyncio.gather(*(episode(engine, m) for m in range(7)))

  config = dataclasses.replace(CONFIG, **shapes)
  for ids, masks, logprobs in with_engine(params, body, config):
    expected = row_logprobs(params, ids, temperature=0.7)
    np.testing.assert_allclose(logprobs[masks], expected[masks], atol=1e-4)


def test_group_members_share_the_prompt_and_differ(params):
  ids = prompt(3, 20)

  async def body(engine):
    done = await asyncio.gather(
      *(
        engine.generate(
          ids, sampling=SamplingParams(max_tokens=8, seed=m), session=str(m)
        )
        for m in range(4)
      )
    )
    return done, engine.stats

  done, stats = with_engine(params, body)
  assert len({tuple(d.token_ids) for d in done}) == 4
  # One prefill of 19 tokens; the last one is pending and fed by decode.
  assert stats.prefilled_tokens == 19
  assert stats.shared_tokens == 3 * 19
  for one in done:
    expected = row_logprobs(params, np.concatenate([ids, one.token_ids]))
    np.testing.assert_allclose(one.logprobs, expected[20:], atol=1e-4)


def test_a_turn_prefills_only_its_new_tokens(params):
  async def body(engine):
    ids = prompt(5, 12)
    for turn in range(3):
      done = await engine.generate(
        ids, sampling=SamplingParams(max_tokens=5, seed=turn), session="a"
      )
      ids = np.concatenate([ids, done.token_ids, prompt(turn, 4)])
    return engine.stats.prefilled_tokens

  # 11 of the prompt; then each turn the pending sampled token and 3 of the 4
  # observed ones.
  assert with_engine(params, body) == 11 + 2 * 4


def test_same_seed_repeats_whatever_shares_the_batch(params):
  ids = prompt(8)

  async def alone(engine):
    return await engine.generate(
      ids, sampling=SamplingParams(max_tokens=9, seed=42), session="x"
    )

  async def crowded(engine):
    done = await asyncio.gather(
      *(
        engine.generate(
          prompt(m),
          sampling=SamplingParams(max_tokens=3, seed=m),
          session=str(m),
        )
        for m in range(3)
      ),
      alone(engine),
    )
    return done[-1]

  first, second = with_engine(params, alone), with_engine(params, crowded)
  np.testing.assert_array_equal(first.token_ids, second.token_ids)


def test_stop_ids_end_a_turn_and_are_kept(params):
  async def body(engine):
    plain = await engine.generate(
      prompt(1), sampling=SamplingParams(max_tokens=12, seed=7), session="a"
    )
    stop = int(plain.token_ids[5])
    stopped = await engine.generate(
      prompt(1),
      sampling=SamplingParams(max_tokens=12, seed=7, stop_ids=(stop,)),
      session="b",
    )
    return plain, stopped, stop

  plain, stopped, stop = with_engine(params, body)
  end = plain.token_ids.tolist().index(stop) + 1
  assert plain.finish_reason == "length"
  assert len(plain.token_ids) == 12
  assert stopped.finish_reason == "stop"
  np.testing.assert_array_equal(stopped.token_ids, plain.token_ids[:end])


def test_the_budget_never_passes_the_slot(params):
  async def body(engine):
    return await engine.generate(
      prompt(1, 40), sampling=SamplingParams(max_tokens=99), session="a"
    )

  done = with_engine(params, body)
  assert len(done.token_ids) == 8
  assert done.finish_reason == "length"


def test_greedy_takes_the_argmax_with_logprob_zero(params):
  ids = prompt(2)

  async def body(engine):
    return await engine.generate(
      ids, sampling=SamplingParams(temperature=0.0, max_tokens=5), session="a"
    )

  done = with_engine(params, body)
  row = ids.tolist()
  for token in done.token_ids:
    assert row_logits(params, row)[len(row) - 1].argmax() == token
    row.append(int(token))
  np.testing.assert_array_equal(done.logprobs, 0.0)


def test_no_compile_after_the_first_shapes(params):
  from arl_jax.models import decode

  jitted: tuple[Any, ...] = (decode.decode_chunk, decode.prefill_extend)

  def sizes():
    return [function._cache_size() for function in jitted]

  async def body(engine):
    async def turns(base):
      for turn in range(2):
        await engine.generate(
          prompt(base + turn, 9 + turn),
          sampling=SamplingParams(
            max_tokens=3 + turn,
            seed=turn,
            temperature=0.5 + turn,
            top_k=turn * 3,
            stop_ids=(turn,),
          ),
          session=str(base),
        )

    await turns(0)
    before = sizes()
    await turns(50)
    await turns(80)
    return before, sizes()

  before, after = with_engine(params, body)
  assert before == after


def test_nothing_compiles_after_the_warm_up_whatever_the_lengths(params):
  config = EngineConfig(
    num_slots=4,
    max_length=48,
    chunk_size=4,
    decode_rows=(1, 9),
    prefill_rows=(1, 4),
    prefill_lengths=(4, 12),
    kv_lengths=(16, 32, 99),
  )
  compiled = []

  def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
    del duration_secs, kwargs
    if event == "/jax/core/compile/backend_compile_duration":
      compiled.append(event)

  async def body(engine):
    await engine.warm_up()
    jax.monitoring.register_event_duration_secs_listener(listen)
    rng = np.random.default_rng(0)

    async def episode(member):
      row = prompt(member, int(rng.integers(1, 20)))
      while len(row) < 46:
        turn = await engine.generate(
          row,
          sampling=SamplingParams(
            max_tokens=int(rng.integers(1, 9)), seed=member, top_k=member % 3
          ),
          session=str(member),
        )
        heard = rng.integers(0, 20, int(rng.integers(0, 14)))
        row = np.concatenate([row, turn.token_ids, heard]).astype(np.int32)
      engine.end_session(str(member))

    for wave in (range(1), range(1, 3), range(3, 9)):
      await asyncio.gather(*map(episode, wave))

  try:
    with_engine(params, body, config)
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)
  assert not compiled


@pytest.mark.parametrize(
  ("ids", "sampling", "named"),
  [
    ([], {}, "token_ids"),
    ([1] * 48, {}, "max_length"),
    ([61], {}, "token_ids"),
    ([1], {"temperature": -1.0}, "temperature"),
    ([1], {"top_p": 0.0}, "top_p"),
    ([1], {"top_k": -1}, "top_k"),
    ([1], {"max_tokens": 0}, "max_tokens"),
    ([1], {"stop_ids": tuple(range(9))}, "stop_ids"),
  ],
)
def test_bad_requests_name_the_argument(params, ids, sampling, named):
  async def body(engine):
    await engine.generate(
      np.array(ids, np.int32), sampling=SamplingParams(**sampling), session="a"
    )

  with pytest.raises(ValueError, match=named):
    with_engine(params, body)


def test_batches_do_not_depend_on_the_speed_of_the_device(params):
  """What the device computes is the same however late its answers come."""

  def run(delay):
    calls = []

    async def body(engine):
      original = engine._device.step

      def step(placements, *rest):
        calls.append([(p.slot, p.source, p.start) for p in placements])
        time.sleep(delay * (len(calls) % 2))
        return original(placements, *rest)

      engine._device.step = step

      async def episode(member):
        # Members start some ticks apart, as the groups of a pool do.
        for _ in range(member):
          await asyncio.sleep(0)
        ids = prompt(member, 4 + member)
        for turn in range(2):
          done = await engine.generate(
            ids,
            sampling=SamplingParams(max_tokens=3 + member, seed=turn),
            session=str(member),
          )
          ids = np.concatenate([ids, done.token_ids, prompt(turn, 2)])
        engine.end_session(str(member))

      await asyncio.gather(*(episode(m) for m in range(6)))

    with_engine(params, body)
    return calls

  assert run(0.0) == run(0.02)
