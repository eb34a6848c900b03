"""An update gives the device back between its calls."""

import asyncio
from concurrent import futures
import threading
from typing import Any

import jax
import numpy as np

from arl_jax.learner.update import UpdateFns
from arl_jax.run.device_turns import take_turns


def test_other_work_comes_in_between_and_results_are_whole():
  order = []
  threads = set()

  def piece(name) -> Any:
    def run(*values):
      threads.add(threading.current_thread().name)
      order.append(name)
      return jax.numpy.asarray(sum(values))

    return run

  with futures.ThreadPoolExecutor(1, "device") as device:
    fns = take_turns(
      UpdateFns(
        normalizer=piece("normalizer"),
        zeros=piece("zeros"),
        gradient=piece("gradient"),
        apply=piece("apply"),
        logprobs=piece("logprobs"),
        needs_reference=False,
      ),
      device,
    )
    started = threading.Event()
    asked = threading.Event()

    def learn():
      turns: Any = fns
      total = turns.zeros(0)
      started.set()
      asked.wait(10)
      for value in range(3):
        total = turns.gradient(total, value)
      return turns.apply(total)

    async def run():
      learning = asyncio.create_task(asyncio.to_thread(learn))
      await asyncio.to_thread(started.wait, 10)
      # Asked for before the gradients, so it comes before them.
      engine = asyncio.get_running_loop().run_in_executor(
        device, piece("decode")
      )
      asked.set()
      await engine
      return await learning

    result = asyncio.run(run())
  assert np.asarray(result) == 3
  assert order == ["zeros", "decode", *["gradient"] * 3, "apply"]
  assert threads == {"device_0"}


def test_no_accumulator_stays_none():
  with futures.ThreadPoolExecutor(1) as device:
    parts: dict = dict.fromkeys(
      ("normalizer", "gradient", "apply", "logprobs"), lambda: None
    )
    fns = UpdateFns(zeros=None, needs_reference=False, **parts)
    assert take_turns(fns, device).zeros is None
