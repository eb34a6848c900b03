"""A transformer that compiles in no time, in an engine of four slots."""

import asyncio

import jax
import numpy as np

from arl_jax.bridge.engine import Engine
from arl_jax.bridge.engine_config import EngineConfig
from arl_jax.models import transformer

MODEL = transformer.ModelConfig(
  vocab_size=61,
  num_layers=2,
  model_dim=32,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  mlp_dim=48,
)
CONFIG = EngineConfig(
  num_slots=4,
  max_length=48,
  chunk_size=4,
  prefill_rows=(4,),
  prefill_lengths=(8,),
)


def draw_params(seed):
  drawn = transformer.init_params(jax.random.key(seed), MODEL)
  # A sharper head makes likely and unlikely tokens differ.
  return {**drawn, "unembed": drawn["unembed"] * 20}


def with_engine(params, body, config=CONFIG, **kwargs):
  async def main():
    async with Engine(MODEL, params, config, **kwargs) as engine:
      return await body(engine)

  return asyncio.run(main())


def prompt(seed, length=11):
  return np.random.default_rng(seed).integers(0, 60, length).astype(np.int32)


def when_on_device(engine):
  """Returns an event that is set whenever a chunk has begun."""
  loop, event = asyncio.get_running_loop(), asyncio.Event()
  step = engine._device.step

  def watched(*args):
    loop.call_soon_threadsafe(event.set)
    return step(*args)

  engine._device.step = watched
  return event


def before_steps(engine, call):
  """Calls `call(number, placements)` on the loop while each chunk runs."""
  loop, step, numbers = asyncio.get_running_loop(), engine._device.step, []

  def hooked(placements, *rest):
    async def run():
      call(len(numbers), placements)

    # The chunk has its weights; whatever happens now is too late for it.
    asyncio.run_coroutine_threadsafe(run(), loop).result()
    numbers.append(None)
    return step(placements, *rest)

  engine._device.step = hooked
