"""Requests that are cancelled, an engine that fails or is stopped."""

import asyncio

import numpy as np
import pytest

from arl_jax.actors.policy import SamplingParams
from arl_jax.bridge.engine import Engine
from arl_jax.models import transformer
from tests.bridge.tiny_engine import (
  CONFIG,
  MODEL,
  draw_params,
  prompt,
  when_on_device,
  with_engine,
)
from tests.bridge.version_reference import Sample, assert_exact


@pytest.fixture(scope="module")
def params():
  return transformer.unstack_layers(draw_params(0))


def test_cancelled_requests_give_their_slots_back(params):
  async def body(engine):
    on_device = when_on_device(engine)
    for round_ in range(3):
      tasks = [
        asyncio.create_task(
          engine.generate(
            prompt(m),
            sampling=SamplingParams(max_tokens=30),
            session=f"{round_}{m}",
          )
        )
        for m in range(6)
      ]
      if round_:  # while four of them decode
        on_device.clear()
        await on_device.wait()
      else:
        await asyncio.sleep(0)
      for task in tasks:
        task.cancel()
      await asyncio.gather(*tasks, return_exceptions=True)
      for m in range(6):
        engine.end_session(f"{round_}{m}")
    done = await engine.generate(
      prompt(0), sampling=SamplingParams(max_tokens=3), session="last"
    )
    engine.end_session("last")
    return done, engine

  done, engine = with_engine(params, body)
  assert len(done.token_ids) == 3
  # Nobody decodes on for those who are gone: of 30 tokens, a chunk at most.
  assert engine.stats.sampled_tokens <= 2 * 4 * CONFIG.chunk_size + 3
  assert not engine._table._busy.any()
  assert engine._table._owner == [None] * CONFIG.num_slots


def test_a_cancelled_turn_can_be_asked_for_again_at_once(params):
  """The second try owes nothing to the first one (slime#1861)."""
  ids, sampling = prompt(7), SamplingParams(max_tokens=10, seed=3)

  async def body(engine):
    on_device = when_on_device(engine)
    first = asyncio.create_task(
      engine.generate(ids, sampling=sampling, session="a")
    )
    await on_device.wait()
    with pytest.raises(ValueError, match="'a' is already generating"):
      await engine.generate(ids, sampling=sampling, session="a")
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    again = await engine.generate(ids, sampling=sampling, session="a")
    clean = await engine.generate(ids, sampling=sampling, session="b")
    return again, clean

  again, clean = with_engine(params, body)
  np.testing.assert_array_equal(again.token_ids, clean.token_ids)
  np.testing.assert_allclose(again.logprobs, clean.logprobs, atol=1e-5)
  assert len(again.token_ids) == len(again.policy_versions) == 10


def test_a_session_that_ends_in_its_turn_still_gets_its_tokens(params):
  ids, other = prompt(7), prompt(8)

  async def body(engine):
    on_device = when_on_device(engine)
    first = asyncio.create_task(
      engine.generate(ids, sampling=SamplingParams(max_tokens=10), session="a")
    )
    await on_device.wait()
    engine.end_session("a")
    engine.forget()  # its slot is filled again, where it lies
    second = await engine.generate(
      other, sampling=SamplingParams(max_tokens=10), session="b"
    )
    return await first, second, engine

  first, second, engine = with_engine(params, body)
  for fed, done in ((ids, first), (other, second)):
    assert_exact([Sample(fed=fed, done=done)], [params])
  assert not engine._table._busy.any()


def test_the_status_counts(params):
  async def body(engine):
    seen, step = [], engine._device.step

    def watched(*args):
      seen.append(engine.status())
      return step(*args)

    engine._device.step = watched
    seen.append(engine.status())
    await asyncio.gather(
      *(
        engine.generate(
          prompt(m), sampling=SamplingParams(max_tokens=3), session=str(m)
        )
        for m in range(6)
      )
    )
    return [*seen, engine.status()]

  assert with_engine(params, body, version=7) == [
    "version 7, 0 decoding, 0 waiting, 0 tokens sampled, 0 prefilled",
    "version 7, 4 decoding, 2 waiting, 0 tokens sampled, 0 prefilled",
    "version 7, 2 decoding, 0 waiting, 12 tokens sampled, 40 prefilled",
    "version 7, 0 decoding, 0 waiting, 18 tokens sampled, 60 prefilled",
  ]


def test_a_broken_device_step_reaches_every_waiter(params):
  boom = FloatingPointError("boom")

  async def body(engine):
    def explode(*args):
      raise boom

    engine._device.step = explode
    # Four decode and two wait for a slot.
    results = await asyncio.gather(
      *(
        engine.generate(prompt(m), sampling=SamplingParams(), session=str(m))
        for m in range(6)
      ),
      return_exceptions=True,
    )
    with pytest.raises(RuntimeError) as later:
      await engine.generate(prompt(0), sampling=SamplingParams(), session="z")
    return [*results, later.value], engine

  errors, engine = with_engine(params, body)
  with pytest.raises(RuntimeError) as after:
    asyncio.run(
      engine.generate(prompt(0), sampling=SamplingParams(), session="z")
    )
  assert len(set(map(id, errors))) == 7
  for error in [*errors, after.value]:
    assert isinstance(error, RuntimeError)
    assert str(error) == "the engine failed: FloatingPointError: boom"
    assert error.__cause__ is boom


def test_a_stopped_engine_lets_nobody_wait(params):
  def generate(engine, session):
    return engine.generate(
      prompt(0), sampling=SamplingParams(max_tokens=30), session=session
    )

  async def main():
    engine = Engine(MODEL, params, CONFIG)
    with pytest.raises(RuntimeError, match="is not running"):
      await generate(engine, "early")
    async with engine:
      on_device = when_on_device(engine)
      decoding = asyncio.create_task(generate(engine, "decoding"))
      await on_device.wait()
      waiting = asyncio.create_task(generate(engine, "waiting"))
    for request in (decoding, waiting, generate(engine, "late")):
      with pytest.raises(RuntimeError, match="the engine was stopped") as told:
        await asyncio.wait_for(request, 60)
      assert isinstance(told.value.__cause__, asyncio.CancelledError)

  asyncio.run(main())


def test_an_engine_that_stops_before_it_starts_lets_nobody_wait(params):
  async def main():
    async with Engine(MODEL, params, CONFIG) as engine:
      request = asyncio.create_task(
        engine.generate(prompt(0), sampling=SamplingParams(), session="a")
      )
    with pytest.raises(RuntimeError, match="the engine was stopped"):
      await asyncio.wait_for(request, 60)

  asyncio.run(main())
